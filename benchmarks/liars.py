"""One liar among eight agents, with robust mixing and without: `liars.py [ROUNDS [SEEDS]]`.

Eight agents on a complete graph learn their step sizes; agent 7 falsifies all it sends by each of
the lies of `diamond.network.liars` and otherwise runs like an honest one. Two problems: penalties
of a ridge regression by D-SGD (rows of one kind with shifted means) and of a logistic regression by
M-SGD (means shifted by 0.5 at random). Printed: the objective of the seven honest agents, the mean
of f_i(x, y_i*(x)) at their mean x with exact y_i*, relative to that of the same seven in a run
where all are honest and nothing is robust; inf: the run diverged. Mean over the seeds (largest).

`--time [TURNS]`: rounds without a liar, plain and robust, in short turns: processor time at the
fastest, and the ratio to plain rounds of the same turn (median and quartiles). D-SGD with given
steps, batches of 64, ten steps of conjugate gradients; 20, 200, 2,000 and 20,000 penalties.
"""

import sys
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np

import diamond
from diamond.core.sampling import key
from diamond.engine.round_program import initial_progress, run_rounds
from diamond.metrics.divergence_error import Diverged
from diamond.network.liars import LIE_FUNCTIONS
from diamond.network.mixing.lossy_mixer import make_mixer
from diamond.schedules.deferred import specialize

AGENTS, LIAR = 8, 7
HONEST = [i for i in range(AGENTS) if i != LIAR]
PLAIN = diamond.network.complete(AGENTS)
NETWORKS = {"none": PLAIN, "clipped": PLAIN.robust("clipped"), "trimmed": PLAIN.robust("trimmed")}
SIZES = ((20, 500, 30), (200, 1000, 10), (2000, 1000, 2), (20000, 200, 1))  # x, rows, rounds
METHODS = {"ridge": diamond.dsgd, "logistic": diamond.m_sgd}


def squares(x, y, rows):
    """Squares, and a little that bounds x."""
    return jnp.mean((rows["a"] @ y - rows["b"]) ** 2) + 0.05 * jnp.mean(x**2)


def logistic(x, y, rows):
    """Logistic loss, and a little that bounds x."""
    return jnp.mean(jnp.logaddexp(0.0, -rows["b"] * (rows["a"] @ y))) + 0.002 * jnp.mean(x**2)


def penalized(upper):
    """The lower level: the same loss with the penalties exp(x)."""
    return lambda x, y, rows: upper(x, y, rows) + jnp.sum(jnp.exp(x) * y**2)


def make_rows(name: str, agent: int, count: int, width: int) -> dict[str, np.ndarray]:
    """Rows of one agent."""
    random = np.random.default_rng(agent)
    truth = np.random.default_rng(100).normal(size=width)
    if name == "ridge":
        a = random.normal(0.1 * agent, 1, (count, width))
        b = a[:, 0] - a[:, 1] + 0.1 * random.normal(size=count)
    else:
        a = random.normal(size=(count, width)) + 0.5 * random.normal(size=width)
        b = np.where(a @ truth + random.normal(size=count) > 0, 1.0, -1.0)
    return {"a": a.astype(np.float32), "b": b.astype(np.float32)}


def make_problem(name: str, count: int = 128, width: int = 10) -> diamond.Problem:
    """The problem with the rows of all agents."""
    upper = squares if name == "ridge" else logistic
    rows = [make_rows(name, agent, 2 * count, width) for agent in range(AGENTS)]
    halves = [
        [{key: a[part] for key, a in one.items()} for one in rows]
        for part in (slice(count), slice(count, 2 * count))
    ]
    start = lambda key: (jnp.zeros(width), jnp.zeros(width))
    return diamond.Problem(upper, penalized(upper), start, *halves)


def make_objective(problem: diamond.Problem):
    """mean_i f_i(x, y_i*(x)) over the honest, as a function of x; y_i* by Newton steps."""

    @jax.jit
    def loss(x, train, valid):
        lower = lambda y: problem.lower(x, y, train)
        newton = lambda _, y: y - jnp.linalg.solve(jax.hessian(lower)(y), jax.grad(lower)(y))
        y = jax.lax.fori_loop(0, 20, newton, jnp.zeros_like(x))
        return problem.upper(x, y, valid)

    rows = problem.rows
    return lambda x: float(np.mean([loss(x, rows["train"][i], rows["valid"][i]) for i in HONEST]))


def run(problem, network, method, rounds, seed):
    """Mean x of the honest at the end; None if the run diverged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rollbacks of undefended runs
        try:
            ended = diamond.simulate(
                problem, network, method, rounds, every=rounds, seed=seed, measure="cheap"
            )
        except Diverged:
            return None
    return np.asarray(ended.last_x)[HONEST].mean(0)


def main(rounds: int, seeds: int = 1) -> None:
    """The table."""
    cases = [None, *LIE_FUNCTIONS]
    for name, make_method in METHODS.items():
        problem, method = make_problem(name), make_method(batch=16)
        objective = make_objective(problem)
        honest = [objective(run(problem, PLAIN, method, rounds, seed)) for seed in range(seeds)]
        start = objective(problem.start(0)[0])
        print(f"{name}, {make_method.__name__}: {start:.4f} -> {np.mean(honest):.4f}")
        print(f"{'':10}" + "".join(f"{lie or 'honest':>18}" for lie in cases))
        for rule, network in NETWORKS.items():
            print(f"{rule:10}", end="", flush=True)
            for lie in cases:
                lying = network if lie is None else network.with_liar(LIAR, lie)
                ends = [run(problem, lying, method, rounds, seed) for seed in range(seeds)]
                ratios = [
                    np.inf if x is None else objective(x) / best for x, best in zip(ends, honest)
                ]
                print(f"{np.mean(ratios):>10.3f} ({max(ratios):.3f})", end="", flush=True)
            print()


def measure_time(turns: int) -> None:
    """Processor time of rounds in which nobody lies, in short turns, beside other work."""
    for width, count, block in SIZES:
        problem = make_problem("logistic", count, width)
        runs = {name: compiled_rounds(problem, net, block) for name, net in NETWORKS.items()}
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for turn in range(turns):
            for name in list(runs)[:: 1 if turn % 2 else -1]:
                start = time.process_time()
                runs[name]()
                seconds[name].append((time.process_time() - start) / block)
        for name, values in seconds.items():
            ratios = sorted(a / b for a, b in zip(values, seconds["none"]))
            low, middle, high = (ratios[int(share * (turns - 1))] for share in (0.25, 0.5, 0.75))
            print(
                f"{width:6} numbers, {name:8} {1e6 * min(values):9.1f} us at the fastest, by plain "
                f"{min(values) / min(seconds['none']):.3f}; of turns {middle:.3f} ({low:.3f} to "
                f"{high:.3f})",
                flush=True,
            )


def compiled_rounds(problem, network, block):
    """A function that runs `block` rounds with given steps."""
    method = diamond.dsgd(0.1, 0.1, 64, diamond.hypergradient.conjugate_gradient(10))
    method = jax.tree.map(jnp.asarray, specialize(method, problem, network))
    fixed = method, problem.objectives(64), make_mixer(network), key(0)
    progress = initial_progress(method, *problem.start(0), AGENTS)
    inputs = *fixed, progress, jnp.int32(block)
    run = lambda: jax.block_until_ready(run_rounds(*inputs, sampling="blocks"))
    run()
    return run


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    if "--time" in sys.argv:
        measure_time(*(numbers or [200]))
    else:
        main(*(numbers or [200]))
