"""Speed of a DIAMOND round beside a hand-written JAX loop and the best public code, in one run.

    python benchmarks/speed.py [--anchor CLONE] [--small]

The reference work: logistic regression, 123 features, 16,000 training and validation rows per
agent, batch 64, K = 10 with random depth, float32, one core. Agent-iterations a second of the
processor, best of several warm runs, taken in turns; compile time apart. Ratios are what to trust.
`--anchor`: a clone of benchmark_bilevel, whose SUSTAIN is the same estimator of one agent
(`anchor.py`); an iteration of it stands beside an agent's round, however many agents there are.
"""

import argparse
import os
import sys
import time
from pathlib import Path

if __name__ == "__main__" and hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"

import handwritten
import jax
import jax.numpy as jnp
import numpy as np

import diamond
from diamond.core.sampling import key
from diamond.engine.round_program import initial_progress, run_rounds
from diamond.network.mixing.mixer import mixer
from diamond.schedules.deferred import ResolutionContext, resolve

SMALL = "--small" in sys.argv
FEATURES, BATCH = 123, 64
ROWS, ROUNDS, REPEATS = (256, 100, 1) if SMALL else (16_000, 1000, 5)
LARGEST_RING = 32 if SMALL else 1024
LIPSCHITZ = 1.0


def part(seed, rows):
    random = np.random.default_rng(seed)
    a = random.normal(size=(rows, FEATURES)).astype(np.float32) / np.sqrt(FEATURES)
    truth = 3 * np.random.default_rng(9).normal(size=FEATURES)
    return {"a": a, "c": np.sign(a @ truth + random.normal(size=rows)).astype(np.float32)}


def problem(agents, rows=ROWS):
    zeros = lambda key: (jnp.zeros(FEATURES), jnp.zeros(FEATURES))
    train, valid = ([part(2 * i + odd, rows) for i in range(agents)] for odd in (0, 1))
    return diamond.Problem(handwritten.upper, handwritten.lower, zeros, train, valid)


def once(function):
    """Processor seconds, and what the function returned."""
    begun = time.process_time()
    result = jax.block_until_ready(function())
    return time.process_time() - begun, result


def ours(problem, network, rounds):
    alpha = diamond.schedules.power(0.1)
    eta = diamond.schedules.squared(0.1, alpha)
    chain = diamond.hypergradient.neumann(handwritten.K, LIPSCHITZ)
    method = diamond.diamond(alpha, alpha, eta, eta, BATCH, chain)
    algorithm = resolve(method, ResolutionContext(problem, network, BATCH, 0)).algorithm
    fixed = algorithm, problem.objectives(BATCH), mixer(network), key(0)
    begin = initial_progress(algorithm, *problem.start(0), problem.agents)
    go = lambda until: run_rounds(*fixed, begin, jnp.int32(until), sampling="blocks")
    compiling, _ = once(lambda: go(0))
    return compiling, lambda: go(rounds)[0].state[:2]


def theirs(problem, network, rounds):
    work = problem.objectives(BATCH)
    data = work.train.data, work.valid.data, jnp.asarray(network.matrix, jnp.float32)
    go = jax.jit(handwritten.advance, static_argnums=(5, 6, 7))
    program = go.lower(*data, key(0), LIPSCHITZ, rounds, BATCH, ROWS)
    compiling, compiled = once(lambda: program.compile())
    return compiling, lambda: compiled(*data, key(0), LIPSCHITZ)


def public(clone):
    """benchmark_bilevel's SUSTAIN: a function that makes ROUNDS iterations of one agent."""
    import anchor

    go = anchor.loop(clone, part(0, ROWS), part(1, ROWS), BATCH, ROUNDS)
    x, _ = jax.block_until_ready(go())
    assert jnp.isfinite(x).all() and jnp.any(x != 0)
    return go


def beside(agents, third=None):
    """Agent-iterations per processor second of all, and the largest difference of x of two."""
    work = problem(agents)
    network = diamond.network.complete(agents)
    rounds = max(100, ROUNDS // agents)
    (compiling, library), (_, hand) = ours(work, network, rounds), theirs(work, network, rounds)
    (_, a), (_, b) = once(library), once(hand)
    turns = [library, hand, *([third] if third else [])]
    iterations = [rounds * agents, rounds * agents, ROUNDS]
    times = [[once(program)[0] for program in turns] for _ in range(REPEATS)]
    rates = [count / min(took) for count, took in zip(iterations, zip(*times))]
    return rates, compiling, float(jnp.max(jnp.abs(a[0] - b[0])))


def ring(agents):
    """Seconds per agent-iteration on a ring; 256,000 + 256,000 rows in all, whatever m is."""
    work = problem(agents, 16 * ROWS // agents)
    rounds = max(20, 4000 // agents)
    _, library = ours(work, diamond.network.ring(agents), rounds)
    once(library)
    return min(once(library)[0] for _ in range(REPEATS)) / rounds / agents


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--anchor", type=Path, metavar="CLONE", help="of benchmark_bilevel")
    parser.add_argument("--small", action="store_true", help="few rows, rounds and agents")
    clone = parser.parse_args().anchor
    print(__doc__.splitlines()[0])
    print(f"{FEATURES} features, {ROWS} + {ROWS} rows an agent, batch {BATCH}, K = {handwritten.K}")
    print(f"JAX {jax.__version__}, {jax.devices()[0].device_kind}, one core, best of {REPEATS}\n")
    if not clone:
        print("SKIPPED: benchmark_bilevel's SUSTAIN, for want of --anchor CLONE\n")
    third = public(clone.resolve()) if clone else None
    print("agents   ours, agent-it/s   by hand   ratio   anchor   ratio   compile, s   x apart")
    for agents in (1, 5) if SMALL else (1, 5, 9, 15):
        (fast, slow, *rest), compiling, apart = beside(agents, third)
        row = f"{agents:6d}   {fast:16.0f}   {slow:7.0f}   {fast / slow:5.2f}"
        row += f"   {rest[0]:6.0f}   {fast / rest[0]:5.2f}" if rest else f"   {'-':>6}   {'-':>5}"
        print(f"{row}   {compiling:10.1f}   {apart:.1e}", flush=True)
    few, many = ring(16), ring(LARGEST_RING)
    print(
        f"\nring of 16: {few * 1e6:.1f} us an agent-iteration; of {LARGEST_RING}: {many * 1e6:.1f}"
    )
    print(f"per-agent cost at m = {LARGEST_RING} is {many / few:.2f} times that at m = 16")


if __name__ == "__main__":
    sys.exit(main())
