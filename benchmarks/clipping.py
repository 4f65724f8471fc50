"""What `clip` saves where one site lies, and what it costs where none does: `clipping.py [ROUNDS]`.

Eight sites, all joined, each with rows of its own kind, rehearsed: GT-SGD with steps given. The
last one may lie in all it tells, while it goes on as an honest one does:

    flipped   -x and -u
    constant  1 for every number of x
    biased    u + 0.3
    noise     x and u plus normal numbers, new in every round

Printed: the objective of the honest sites, the mean of f_i(x, y_i*(x)) at their mean x with exact
y_i*, and in brackets how far they are from it; inf is a run that diverged.
"""

import logging
import sys

import jax
import jax.numpy as jnp
import numpy as np

import diamond
from diamond.peers.agent import Agent
from diamond.runtimes.peers import rehearse

SITES, WIDTH = 8, 6
GIVEN = diamond.gt_sgd(0.5, 0.1, 16, diamond.hypergradient.conjugate_gradient(20))
NETWORK = diamond.network.complete(SITES)
CLIPS = (None, 3.0, 1.0)


def upper(x, y, rows):
    """Squares, and a little to keep x where it is told from others."""
    return jnp.mean((rows["a"] @ y - rows["b"]) ** 2) + 0.05 * jnp.mean(x**2)


def lower(x, y, rows):
    """Squares, and a penalty that x weighs."""
    return upper(x, y, rows) + jnp.sum(jnp.exp(x) * y**2)


def rows(site: int) -> dict[str, np.ndarray]:
    """Of one site: the signs of its first columns are its own kind."""
    random = np.random.default_rng(site)
    a = random.normal(0.1 * site, 1, (64, WIDTH)).astype(np.float32)
    return {"a": a, "b": a[:, 0] - a[:, 1] + 0.1 * random.normal(size=64).astype(np.float32)}


def problem(site: int) -> diamond.Problem:
    """As one site has it."""
    start = lambda key: (jnp.zeros(WIDTH), jnp.zeros(WIDTH))
    own = rows(site)
    train, valid = ({k: v[part] for k, v in own.items()} for part in (slice(32), slice(32, 64)))
    return diamond.Problem(upper, lower, start, [train], [valid])


ATTACKS = {
    "flipped": lambda x, u, random: (-x, -u),
    "constant": lambda x, u, random: (np.ones_like(x), u),
    "biased": lambda x, u, random: (x, u + 0.3),
    "noise": lambda x, u, random: (
        x + random.normal(size=x.shape),
        u + random.normal(size=u.shape),
    ),
}


class Liar(Agent):
    """Tells lies, of which its own rounds know nothing."""

    attack = "flipped"

    def tell(self, progress, turn, thought):
        """See `Agent`."""
        self.honest = super().tell(progress, turn, thought)
        return list(ATTACKS[self.attack](*self.honest, np.random.default_rng(progress.t)))

    def step(self, progress, turn, thought, messages):
        """See `Agent`."""
        return super().step(progress, turn, thought, {**messages, self.number: self.honest})


def objective(x: np.ndarray, honest: list[int]) -> float:
    """mean_i f_i(x, y_i*(x)) over the honest, with y_i* from normal equations."""

    def one(site):
        own = rows(site)
        a, b = (jnp.asarray(own[k][:32], float) for k in "ab")
        y = jnp.linalg.solve(a.T @ a / 32 + jnp.diag(jnp.exp(x)), a.T @ b / 32)
        return upper(x, y, {k: jnp.asarray(own[k][32:], float) for k in "ab"})

    return float(np.mean([one(site) for site in honest]))


def trial(rounds: int, clip: float | None, attack: str | None) -> tuple[float, float]:
    """The two numbers at the end of a run."""
    from diamond.runtimes import peers

    kept = peers.Agent

    def agent(*given, **named):
        made = (Liar if attack and given[3] == SITES - 1 else kept)(*given, **named)
        made.attack = attack
        return made

    peers.Agent = agent
    try:
        found = rehearse(list(map(problem, range(SITES))), NETWORK, GIVEN, rounds, clip=clip)
    except FloatingPointError:
        return np.inf, np.inf
    finally:
        peers.Agent = kept
    honest = list(range(SITES - 1))
    x = np.stack([np.asarray(found[i].state.x, float) for i in honest])
    return objective(x.mean(0), honest), float(((x - x.mean(0)) ** 2).sum(1).mean())


def main(rounds: int) -> None:
    """The table."""
    start = objective(np.zeros(WIDTH), list(range(SITES - 1)))
    print(f"{rounds} rounds; the objective is {start:.4f} at the start")
    kinds = {"all honest": None, **{name: name for name in ATTACKS}}
    print(f"{'clip':<8}" + "".join(f"{name:>20}" for name in kinds))
    for clip in CLIPS:
        ends = [trial(rounds, clip, attack) for attack in kinds.values()]
        said = "".join(f"{loss:>11.4f} ({far:.0e})" for loss, far in ends)
        print(f"{clip or 'none':<8}{said}", flush=True)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    logging.getLogger("diamond.peers").setLevel(logging.ERROR)  # it would say who lies
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 150)
