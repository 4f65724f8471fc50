"""What `clip` saves where one site lies, and what it costs where none does: `clipping.py [ROUNDS]`.

`clipping.py clinics [ROUNDS]`: the same on the rows of docs/tutorials/three_sites.md, with steps
that the sites find: the local losses f_i(x_i, y_i) of the honest sites. There the last site may
also send 10 x and 10 u, or x + 1 to some neighbours and x - 1 to others.

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
import warnings

import jax
import jax.numpy as jnp
import numpy as np

import diamond
from diamond.sites.rounds.site_agent import Agent

SITES, WIDTH = 8, 6
ALGORITHM = diamond.gt_sgd(0.5, 0.1, 16, diamond.hypergradient.conjugate_gradient(20))
NETWORK = diamond.network.complete(SITES)
CLIPS = (None, 3.0, 1.0)
CLINIC_LIES = ("scaled", "flipped", "constant", "two-faced")


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
    site_rows = rows(site)
    train, valid = (
        {k: v[part] for k, v in site_rows.items()} for part in (slice(32), slice(32, 64))
    )
    return diamond.Problem(upper, lower, start, [train], [valid])


ATTACKS = {  # (x, u, random numbers, receiver) -> what the receiver gets
    "flipped": lambda x, u, random, to: (-x, -u),
    "constant": lambda x, u, random, to: (np.ones_like(x), u),
    "biased": lambda x, u, random, to: (x, u + 0.3),
    "noise": lambda x, u, random, to: (
        x + random.normal(size=x.shape),
        u + random.normal(size=u.shape),
    ),
    "scaled": lambda x, u, random, to: (10 * x, 10 * u),
    "two-faced": lambda x, u, random, to: (x + (-1) ** to, u),
}


class DeceivedAgent(Agent):
    """Hears lies of the last site, which itself goes on as an honest one does."""

    attack: str | None = None

    def finish_exchange(self, progress, exchange, local_result, messages):
        """See `Agent`."""
        liar = self.network.agents - 1
        if self.attack and self.number != liar and liar in messages:
            inputs = *messages[liar], np.random.default_rng(progress.t), self.number
            lies = [
                np.asarray(lie, a.dtype) for lie, a in zip(ATTACKS[self.attack](*inputs), inputs)
            ]
            messages = {**messages, liar: lies}
        return super().finish_exchange(progress, exchange, local_result, messages)


def run_rehearsal(problems, network, algorithm, rounds, clip, attack):
    """Where the sites of a rehearsal stand at its end; None if it diverged for good."""
    from diamond.engine import site_rehearsal

    def make_agent(*args, **options):
        agent = DeceivedAgent(*args, **options)
        agent.attack = attack
        return agent

    original, site_rehearsal.Agent = site_rehearsal.Agent, make_agent
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `clip` is tried here on purpose
            return site_rehearsal.rehearse(problems, network, algorithm, rounds, clip=clip)
    except FloatingPointError:
        return None
    finally:
        site_rehearsal.Agent = original


def objective(x: np.ndarray, honest: list[int]) -> float:
    """mean_i f_i(x, y_i*(x)) over the honest, with y_i* from normal equations."""

    def site_loss(site):
        site_rows = rows(site)
        a, b = (jnp.asarray(site_rows[k][:32], float) for k in "ab")
        y = jnp.linalg.solve(a.T @ a / 32 + jnp.diag(jnp.exp(x)), a.T @ b / 32)
        return upper(x, y, {k: jnp.asarray(site_rows[k][32:], float) for k in "ab"})

    return float(np.mean([site_loss(site) for site in honest]))


def trial(rounds: int, clip: float | None, attack: str | None) -> tuple[float, float]:
    """The two numbers at the end of a run."""
    ends = run_rehearsal(list(map(problem, range(SITES))), NETWORK, ALGORITHM, rounds, clip, attack)
    if ends is None:
        return np.inf, np.inf
    honest = list(range(SITES - 1))
    x = np.stack([np.asarray(ends[i].state.x, float) for i in honest])
    return objective(x.mean(0), honest), float(((x - x.mean(0)) ** 2).sum(1).mean())


def main(rounds: int) -> None:
    """The table."""
    start = objective(np.zeros(WIDTH), list(range(SITES - 1)))
    print(f"{rounds} rounds; the objective is {start:.4f} at the start")
    kinds = {"all honest": None} | {
        name: name for name in ATTACKS if name not in ("scaled", "two-faced")
    }
    print(f"{'clip':<8}" + "".join(f"{name:>20}" for name in kinds))
    for clip in CLIPS:
        ends = [trial(rounds, clip, attack) for attack in kinds.values()]
        cells = "".join(f"{loss:>11.4f} ({distance:.0e})" for loss, distance in ends)
        print(f"{clip or 'none':<8}{cells}", flush=True)


def squares(x, y, rows):
    """The loss of docs/tutorials/three_sites.md."""
    return jnp.mean((rows["a"] @ y - rows["b"]) ** 2)


def penalized(x, y, rows):
    """Its lower level."""
    return squares(x, y, rows) + jnp.mean(jnp.exp(x) * y**2)


def clinic(site: int, shift: float) -> diamond.Problem:
    """A site of docs/tutorials/three_sites.md; shift 0: rows of one distribution."""
    a = np.random.default_rng(site).normal(shift * site, 1, (60, 4)).astype(np.float32)
    site_rows = {"a": a, "b": a[:, 0] - a[:, 1]}
    train, valid = (
        {k: v[part] for k, v in site_rows.items()} for part in (slice(30), slice(30, 60))
    )
    start = lambda key: (jnp.zeros(4, np.float32), jnp.zeros(4, np.float32))
    return diamond.Problem(squares, penalized, start, [train], [valid])


def clinics(rounds: int) -> None:
    """Local losses f_i(x_i, y_i) of the honest sites, and how often the run rolled back."""
    rollbacks = []
    log = logging.getLogger("diamond.sites")
    log.setLevel(logging.WARNING)
    log.addHandler(handler := logging.Handler())
    log.propagate = False
    handler.emit = lambda record: (
        "back to round" in record.getMessage() and rollbacks.append(record)
    )
    five = diamond.network.complete(5)
    cases = {
        "ring of 3": (diamond.network.ring(3), 1.0, diamond.gt_sgd(batch=8), (None, *CLINIC_LIES)),
        "complete, 5": (five, 0.0, diamond.gt_sgd(batch=8), (None,)),
        "alpha = 1": (diamond.network.ring(3), 1.0, diamond.gt_sgd(alpha=1.0, batch=8), (None,)),
    }
    for name, (network, shift, method, attacks) in cases.items():
        problems = [clinic(site, shift) for site in range(network.agents)]
        for attack in attacks:
            for clip in (None, 3.0):
                rollbacks.clear()
                ends = run_rehearsal(problems, network, method, rounds, clip, attack)
                losses = "diverged"
                if ends is not None:
                    points = [(p.state.x, p.state.y) for p in ends[: -1 if attack else None]]
                    local_losses = [
                        squares(*point, problem.rows["valid"][0])
                        for point, problem in zip(points, problems)
                    ]
                    losses = " ".join(f"{loss:.2g}" for loss in local_losses)
                rollback_count = len(rollbacks) // network.agents
                label = f"{name:<12} {attack or 'all honest':<11} clip {clip or 'none':<5}"
                print(f"{label} rollbacks {rollback_count}  losses {losses}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["clinics"]:
        clinics(int(sys.argv[2]) if len(sys.argv) > 2 else 300)
        sys.exit()
    jax.config.update("jax_enable_x64", True)
    logging.getLogger("diamond.sites").setLevel(logging.ERROR)  # it would say who lies
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 150)
