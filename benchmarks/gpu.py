"""Rounds on one GPU beside the products it can do, in one run.

    python benchmarks/gpu.py [--small | --grid] [--data FOLDER]

The wide problem: meta-learning, 64 agents on a ring, 784-1024-1024-10, batch 256, K = 10; its
products a round, counted by hand: 7 + k passes through the layers at each of two points (3 for f_x
and f_y, 1 for g_y, 3 for g_xy z, k for the chain), less two through the first, whose input needs no
gradient. Two ceilings: products of the shape at hand (64 of 256 x 1024 x 1024, repeated), and of
two square matrices. `--grid`: the paper's MNIST problem, 9 agents, 4 algorithms x 10 seeds x 27
settings x 2,000 rounds, measured every 200; the data are loaded before the clock starts. `--small`:
only the 9-agent problem, whose rounds wait for the launches of many short kernels, with other
options of the compiler beside those of the library.
"""

import argparse
import collections
import glob
import gzip
import json
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import diamond
from diamond import hypergradient as hg
from diamond.core.sampling import key
from diamond.engine import many_runs
from diamond.engine.precision import product_precision
from diamond.engine.round_program import initial_progress, run_rounds
from diamond.engine.single_device import SingleDevice
from diamond.hardware.compiler import GRAPHS, ROUND_OPTIONS
from diamond.reproduce import paper_tuning
from diamond.reproduce.paper_case import FULL, PaperCase
from diamond.reproduce.paper_methods import METHODS

PRECISIONS = ("float32", "tf32", "bf16")
PRODUCT = 2 * 64 * 256 * 1024 * 1024


def best(function, repeats=3):
    function()
    return min(_seconds(function) for _ in range(repeats))


def _seconds(function):
    started = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - started


def ceilings(precision):
    """Products a second: of the batched shape, of square matrices."""
    random = np.random.default_rng(0)
    kind = jnp.bfloat16 if precision == "bf16" else jnp.float32
    a, b, c = (
        jnp.asarray(random.normal(size=size) / size[-1] ** 0.5, kind)
        for size in ((64, 256, 1024), (64, 1024, 1024), (8192, 8192))
    )

    repeated = jax.jit(lambda a, b, n: jax.lax.fori_loop(0, n, lambda _, a: a @ b, a))
    with product_precision(precision):
        batched = best(lambda: repeated(a, b, 100)) / 100
        square = best(lambda: repeated(c, c, 10)) / 10
    return PRODUCT / batched, 2 * 8192**3 / square


def meta(agents, widths, rows=1024, features=784):
    def part(seed):
        random = np.random.default_rng(seed)
        a = random.normal(size=(rows, features)).astype(np.float32)
        return {"a": a, "b": random.integers(0, 10, rows).astype(np.int32)}

    train, valid = ([part(2 * i + odd) for i in range(agents)] for odd in (0, 1))
    return diamond.gallery.meta_learning(train, valid, widths=widths)


def rounds(problem, batch, precision, count):
    """A function that makes `count` rounds, and the mean depth k of its chains."""
    steps = {"alpha": 0.01, "beta": 0.05, "eta": 0.3, "gamma": 0.3}
    method = diamond.diamond(**steps, batch=batch, hypergradient=hg.neumann(10, 5.0))
    algorithm = jax.tree.map(jnp.asarray, method)
    network = diamond.network.ring(problem.agents)
    backend = SingleDevice(problem, network, batch, "blocks", precision)
    progress = initial_progress(algorithm, *problem.start(0), problem.agents)

    def run():
        with product_precision(precision):
            after, is_finite = backend.run_until(algorithm, key(0), progress, count)
        assert is_finite
        return after

    hvps = diamond.cost.total(run().spent)[0, 2]
    return run, hvps / (2 * batch * count)


def wide():
    first, count = 784 * 1024, 40
    layers = first + 1024 * 1024 + 1024 * 10
    problem = meta(64, (1024, 1024))
    print("precision   ms/round   TFLOP/s   of the batched ceiling   of the square ceiling")
    for precision in PRECISIONS:
        batched, square = ceilings(precision)
        run, depth = rounds(problem, 256, precision, count)
        seconds = best(run) / count
        rate = 2 * 64 * 2 * 256 * ((7 + depth) * layers - 2 * first) / seconds
        row = f"{precision:9} {1e3 * seconds:10.2f} {rate / 1e12:9.0f}"
        share = lambda top, rate=rate: f"{100 * rate / top:5.0f} % of {top / 1e12:.0f}"
        print(f"{row} {share(batched):>24} {share(square):>23}", flush=True)


def small():
    run, _ = rounds(meta(9, (20, 20)), 32, None, 500)
    print(f"\n9 agents, 784-20-20-10, batch 32: {1e6 * best(run) / 500:.0f} us a round")
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(run())
        (trace,) = glob.glob(f"{folder}/**/*.trace.json.gz", recursive=True)
        events = json.loads(gzip.open(trace).read())["traceEvents"]
    names = collections.Counter(e["name"] for e in events if e.get("ph") == "X")
    copies = sum(n for name, n in names.items() if name == "MemcpyD2H")
    print(f"in a profile of these 500 rounds, copies from device to host: {copies}")


def other_options():
    """The small problem's rounds under other options of the compiler."""
    usual, buffers = ROUND_OPTIONS["gpu"], "xla_gpu_enable_command_buffer"
    options_by_name = {
        "no command buffers": {buffers: ""},
        "command buffers without loops and branches": usual | {buffers: GRAPHS},
        "one kernel after another": {buffers: usual[buffers]},
        "command buffers however short": usual | {"xla_gpu_graph_min_graph_size": 1},
        "no Triton products": usual | {"xla_gpu_enable_triton_gemm": False},
        "no autotuning": usual | {"xla_gpu_autotune_level": 0},
    }
    problem = meta(9, (20, 20))
    for name, options in options_by_name.items():
        run_rounds.options = {"gpu": options}
        run_rounds.programs.clear()
        try:
            run, _ = rounds(problem, 32, None, 500)
            outcome = f"{1e6 * best(run) / 500:.0f} us a round"
        except jax.errors.JaxRuntimeError as error:
            outcome = f"refused: {str(error).splitlines()[0][:80]}"
        print(f"{name}: {outcome}", flush=True)


def grid(folder):
    case = PaperCase("mnist", 9, "label")
    problem, started = case.problem(FULL, folder), time.perf_counter()
    settings = {method: paper_tuning.list_settings(case, method) for method in METHODS}
    names = [(method, c, s) for method, cs in settings.items() for c in cs for s in range(10)]
    runs = [(case.algorithm(method, constants), seed) for method, constants, seed in names]
    outcomes = many_runs.simulate_many(problem, case.network(), runs, 2000, every=200)
    seconds_taken = time.perf_counter() - started
    for method in settings:
        own_outcomes = [outcome for (name, *_), outcome in zip(names, outcomes) if name == method]
        diverged = sum(outcome.diverged is not None for outcome in own_outcomes)
        seconds = sum(outcome.history["seconds"][-1] for outcome in own_outcomes)
        counts = f"{len(own_outcomes)} runs, {diverged} diverged"
        print(f"{method:8} {counts}, {seconds:.1f} s in the rounds")
    print(f"{len(runs)} runs of 2,000 rounds with metrics: {seconds_taken:.1f} s, compiler and all")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--grid", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    device = jax.devices()[0]
    print(f"{__doc__.splitlines()[0]}\nJAX {jax.__version__}, {device.device_kind}\n")
    if options.grid:
        return grid(options.data)
    if options.small:
        small()
        return other_options()
    wide()
    small()


if __name__ == "__main__":
    main()
