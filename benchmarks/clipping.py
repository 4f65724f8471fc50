"""What `clip` costs where nobody lies, and where a liar leads the others: `clipping.py [ROUNDS]`.

Eight sites, all joined, each with rows of its own kind, rehearsed: GT-SGD with steps given. A liar
tells 1 for every number in every round. Printed: the squared norm of the exact hypergradient of all
honest sites at their mean x, and the squared distance of the honest x to it; inf is a run that
diverged. The gradient also vanishes where x is driven far off, so with a liar a small one is no
sign of a good end: there only runs that diverge, or do not agree, can be told.
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
GIVEN = diamond.gt_sgd(0.1, 0.1, 16, diamond.hypergradient.conjugate_gradient(20))
NETWORK = diamond.network.complete(SITES)
CLIPS = (None, 10.0, 3.0, 1.0)


def upper(x, y, rows):
    """Squares."""
    return jnp.mean((rows["a"] @ y - rows["b"]) ** 2)


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


class Liar(Agent):
    """Tells one everywhere; what it does with what it hears is its own affair."""

    def tell(self, *given):
        """See `Agent`."""
        return [np.ones_like(array) for array in super().tell(*given)]


def gradient(x: np.ndarray, honest: list[int]) -> float:
    """||grad mean_i f_i(x, y_i*(x))||^2 over the honest, with y_i* from normal equations."""

    def one(x, site):
        own = rows(site)
        a, b = (jnp.asarray(own[k][:32], float) for k in "ab")
        y = jnp.linalg.solve(a.T @ a / 32 + jnp.diag(jnp.exp(x)), a.T @ b / 32)
        return upper(x, y, {k: jnp.asarray(own[k][32:], float) for k in "ab"})

    whole = lambda x: jnp.mean(jnp.stack([one(x, site) for site in honest]))
    return float(jnp.sum(jax.grad(whole)(jnp.asarray(x, float)) ** 2))


def trial(rounds: int, clip: float | None, lies: bool) -> tuple[float, float]:
    """The two numbers at the end of a run."""
    from diamond.runtimes import peers

    kept, made = peers.Agent, []

    def agent(*given, **named):
        made.append((Liar if lies and given[3] == SITES - 1 else kept)(*given, **named))
        return made[-1]

    peers.Agent = agent
    try:
        found = rehearse(list(map(problem, range(SITES))), NETWORK, GIVEN, rounds, clip=clip)
    except FloatingPointError:
        return np.inf, np.inf
    finally:
        peers.Agent = kept
    honest = list(range(SITES - lies))
    x = np.stack([np.asarray(found[i].state.x, float) for i in honest])
    return gradient(x.mean(0), honest), float(((x - x.mean(0)) ** 2).sum(1).mean())


def main(rounds: int) -> None:
    """The table."""
    print(f"{rounds} rounds{'all honest':>28}{'one liar':>30}")
    print(f"{'clip':<8}" + 2 * f"{'|gradient|^2':>16}{'spread':>12}")
    for clip in CLIPS:
        ends = [trial(rounds, clip, lies) for lies in (False, True)]
        said = "".join(f"{norm:>16.3g}{spread:>12.3g}" for norm, spread in ends)
        print(f"{clip or 'none':<8}{said}", flush=True)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    logging.getLogger("diamond.peers").setLevel(logging.ERROR)  # it would say who lies
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
