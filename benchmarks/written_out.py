"""Methods of the library beside the same methods written out in numpy, on the same draws.

    python benchmarks/written_out.py [--rounds 300]

One-agent methods (SOBA, MA-SOBA, TTSA, SUSTAIN) and single-level ones on a ring (D-SGD, GT-SGD,
EXTRA, exact diffusion), on noisy quadratics in double precision, with the steps below. The loops
know nothing of the library but which rows it draws; printed is how far apart the two curves are at
most, relative to how far they go, and where both end.
"""

import argparse
from collections.abc import Callable, Iterator

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402

import diamond  # noqa: E402
from diamond.core.sampling import draw, key  # noqa: E402
from diamond.engine.round_program import initial_progress, run_rounds  # noqa: E402
from diamond.gallery import quadratic  # noqa: E402
from diamond.gallery.quadratic import Quadratic  # noqa: E402
from diamond.network.mixing.mixer import mixer  # noqa: E402
from diamond.schedules.deferred import ResolutionContext, resolve  # noqa: E402

ALPHA, BETA, ETA, THETA, BATCH, ROWS, AGENTS = 0.02, 0.2, 0.3, 0.3, 4, 32, 6
EXACT = diamond.hypergradient.exact()


def mean(q: Quadratic, part: str, agent: int, first: int, name: str = "point") -> np.ndarray:
    """Of the block of rows that begins there."""
    rows = q.rows[part][agent][name]
    return rows[(int(first) + np.arange(BATCH)) % len(rows)].mean(0)


def drawn(agent: int, t: int, turn: int | None = None):
    """What the library draws."""
    return draw(key(0), t, agent, (ROWS, ROWS), 0, BATCH, "blocks", turn)


def one_agent(q: Quadratic, name: str, rounds: int) -> Iterator[np.ndarray]:
    """x after every round of a one-agent method, with exact Hessians of a quadratic."""
    A, B, D, P, c = (getattr(q, n)[0] for n in "ABDPc")
    x, y, z = np.zeros(len(c)), np.zeros(len(A)), np.zeros(len(A))
    last, old, r = (x, y), (x, y), 0.0

    def directions(x, y, z, s):
        f_y = y - mean(q, "valid", 0, s.upper) + D.T @ x
        f_x = P @ x + c + D @ y
        g_y = A @ y - B @ x - mean(q, "train", 0, s.lower)
        return f_x, f_y, g_y

    for t in range(rounds):
        s = drawn(0, t, 0 if name == "ttsa" else None)
        f_x, f_y, g_y = directions(x, y, z, s)
        if name in ("soba", "ma_soba"):
            d = f_x + B.T @ z  # -g_xy = B'
            r = d if name == "soba" or t == 0 else (1 - THETA) * r + THETA * d
            x, y, z = x - ALPHA * r, y - BETA * g_y, z - BETA * (A @ z - f_y)
        elif name == "ttsa":
            y = y - BETA * g_y
            f_x, f_y, _ = directions(x, y, z, drawn(0, t, 1))
            x = x - ALPHA * (f_x + B.T @ np.linalg.solve(A, f_y))
        else:  # sustain
            h = f_x + B.T @ np.linalg.solve(A, f_y)
            f_x, f_y, back = directions(*last, z, s)
            before = f_x + B.T @ np.linalg.solve(A, f_y)
            keep = 0.0 if t == 0 else 1 - ETA
            p, v = h + keep * (old[0] - before), g_y + keep * (old[1] - back)
            last, old = (x, y), (p, v)
            x, y = x - ALPHA * p, y - BETA * v
        yield x[None]


def single_level(q: Quadratic, M: np.ndarray, name: str, rounds: int) -> Iterator[np.ndarray]:
    """x of all agents after every round of a method without a lower level."""
    x = np.zeros(q.c.shape)
    u, old, psi, x_last, before = 0.0, 0.0, x, x, None
    for t in range(rounds):
        noisy = [mean(q, "train", i, drawn(i, t).upper, "c") for i in range(AGENTS)]
        d = np.einsum("iab,ib->ia", q.P, x) + noisy
        if name == "dsgd":
            x = M @ (x - ALPHA * d)
        elif name == "gt_sgd":
            u = u + d - old
            x, u, old = M @ (x - ALPHA * u), M @ u, d
        elif name == "exact_diffusion":
            new = x - ALPHA * d
            x, psi = M @ (new + x - psi), new
        else:  # extra
            step = M @ x - ALPHA * d
            if before is not None:
                step += x - (x_last + M @ x_last) / 2 + ALPHA * before
            x_last, x, before = x, step, d
        yield x


def library(q: Quadratic, network, method, rounds: int) -> list[np.ndarray]:
    """x of all agents after every round, as the library has it."""
    context = ResolutionContext(q, network, BATCH, 0)
    method = resolve(method, context).algorithm
    fixed = method, q.objectives(BATCH), mixer(network), key(0)
    progress, points = initial_progress(method, *q.start(0), network.agents), []
    for t in range(rounds):
        progress, _ = run_rounds(*fixed, progress, jnp.int32(t + 1), sampling="blocks")
        points.append(np.asarray(progress.state.x))
    return points


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--rounds", type=int, default=300)
    rounds = words.parse_args().rounds
    alone = quadratic(agents=1, rows=ROWS, noise=0.5)
    network_problem = quadratic(agents=AGENTS, rows=ROWS, noise=0.5, lower_level="none")
    single_agent, ring = diamond.network.complete(1), diamond.network.ring(AGENTS)
    methods: dict[str, Callable] = {
        "soba": lambda: diamond.soba(ALPHA, BETA, BETA, BATCH),
        "ma_soba": lambda: diamond.ma_soba(ALPHA, BETA, BETA, THETA, BATCH),
        "ttsa": lambda: diamond.ttsa(ALPHA, BETA, BATCH, EXACT),
        "sustain": lambda: diamond.sustain(ALPHA, BETA, ETA, ETA, BATCH, EXACT),
        "dsgd": lambda: diamond.dsgd(ALPHA, batch=BATCH, order="atc"),
        "gt_sgd": lambda: diamond.gt_sgd(ALPHA, batch=BATCH, order="atc"),
        "exact_diffusion": lambda: diamond.exact_diffusion(ALPHA, batch=BATCH),
        "extra": lambda: diamond.extra(ALPHA, batch=BATCH),
    }
    print(f"{rounds} rounds, batch {BATCH} of {ROWS} rows, alpha {ALPHA}, beta {BETA}")
    worst = 0.0
    for i, (name, make) in enumerate(methods.items()):
        q, network = (alone, single_agent) if i < 4 else (network_problem, ring)
        by_hand = (
            one_agent(q, name, rounds) if i < 4 else single_level(q, ring.matrix, name, rounds)
        )
        ours, theirs = np.array(library(q, network, make(), rounds)), np.array(list(by_hand))
        apart = np.abs(ours - theirs).max() / np.abs(theirs).max()
        error = np.linalg.norm(ours[-1].mean(0) - q.minimizer())
        print(f"{name:16} apart {apart:.1e}   ends {error:.3g} from the solution", flush=True)
        worst = max(worst, apart)
    raise SystemExit(int(worst > 1e-9))


if __name__ == "__main__":
    main()
