"""Runs that choose everything themselves, beside the best of two grids of 27, on drawn problems.

    PYTHONPATH=. python benchmarks/auto.py --seeds 1,2 --groups ridge --processes 16 --out a.json
    PYTHONPATH=. python benchmarks/auto.py --table a.json

The first adds to a.json, problem by problem, so that it may be run in parts, each process on a core
of its own; problems begun more than `--limit` seconds after it do without the grids. The second
prints the table and what was met. Another seed draws other problems of the same kinds
(`auto_problems.py`). A round of the problem with 10^4 features has some 150 products with a matrix
of 200 rows, 0.3 s: it is given an eighth of the rounds, its grids are dealt out to processes.

Of every problem: `auto`, DIAMOND as it chooses for itself; `chain`, the same with the chain of
eq. (5) and its steps; `chain grid`, the best of 27 settings of the chain; `own grid`, the best of
27 of the estimator that auto chose. A grid is centred on what the run found at its start: alpha_0
is 1/4, 2 and 16 times that, beta_0 1/2, 1 and 2 times, eta_0 = gamma_0 1/4, 1 and 4 times, with
the same decay; its best point is chosen afterwards by the final upper loss. The gap is (loss -
lowest) / (first - lowest), lowest the smaller of what L-BFGS finds on the exact objective in
float64 and of all runs; a gap below 1 % counts as closed. `equal` are the gaps of auto and of the
chain at equal samples: where the one that draws fewer ends, the other interpolated between its
measurements.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import time
import warnings
import zlib
from pathlib import Path

from auto_table import judged, table

GRID = tuple(itertools.product((0.25, 2.0, 16.0), (0.5, 1.0, 2.0), (0.25, 1.0, 4.0)))
STEPS = 200  # of L-BFGS
FIRST = ("features", "rows", "noise", "meta", "agents", "cleaning", "graphs")  # in this order
LARGE = {"features": 8}  # groups that have so many times fewer rounds, and their grids in parts
PARTS = 5  # of a grid, where it is dealt out
RUNS, CHAIN, OWN = "runs", "chain grid", "own grid"


def final(problem, network, algorithm, rounds, every):
    """The upper losses, and the run; infinite at the end where it diverged."""
    import diamond

    try:
        run = diamond.simulate(problem, network, algorithm, rounds, every=every)
    except diamond.Diverged as error:
        return [*error.run.history["upper_loss"].tolist(), float("inf")], error.run
    return run.history["upper_loss"].tolist(), run


def scaled(algorithm, factors):
    """An algorithm whose numbers are found, with its steps and weights times `factors`."""
    from dataclasses import replace

    from diamond.numbers.schedule import Scaled

    alpha, beta, eta = factors
    times = lambda variable, factor: replace(variable, step=Scaled(factor, variable.step))
    weights = algorithm.estimator
    weights = replace(weights, eta=Scaled(eta, weights.eta), gamma=Scaled(eta, weights.gamma))
    return replace(
        algorithm, x=times(algorithm.x, alpha), y=times(algorithm.y, beta), estimator=weights
    )


def best_of_grid(problem, network, algorithm, batch, rounds, grid=GRID):
    """The lowest final loss of these settings, its factors, and how many diverged."""
    from diamond.numbers.open_numbers import Setting, resolve

    found = resolve(algorithm, Setting(problem, network, batch, 0)).algorithm
    tried = {f: final(problem, network, scaled(found, f), rounds, rounds)[0][-1] for f in grid}
    factors = min(tried, key=tried.get)
    return tried[factors], factors, sum(loss == float("inf") for loss in tried.values())


def lowest(problem):
    """The lowest upper loss that L-BFGS finds on the exact objective, in float64."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.flatten_util import ravel_pytree
    from scipy.optimize import minimize

    from diamond.hypergradient import lower_solution

    real = lambda a: jnp.issubdtype(a.dtype, jnp.floating)
    wide = lambda t: jax.tree.map(lambda a: jnp.asarray(a, jnp.float64) if real(a) else a, t)
    with jax.enable_x64(True):
        x, y = wide(problem.start(0))
        objectives, (flat, shape) = wide(problem.objectives(1)), ravel_pytree(x)

        @jax.jit
        def exact(v, ys):
            def alone(own, y):
                found = lower_solution.solve(own, shape(v), y)
                h = lower_solution.hypergradient(own, shape(v), found.y)
                return own.f(shape(v), found.y, None), ravel_pytree(h)[0], found.y

            losses, h, ys = jax.vmap(alone)(objectives, ys)
            return losses.mean(), h.mean(0), ys

        near = [jax.tree.map(lambda a: jnp.broadcast_to(a, (problem.agents, *a.shape)), y)]
        seen = []

        def value(v):
            loss, h, ys = exact(jnp.asarray(v), near[0])
            if not np.isfinite(loss):
                return 1e30, np.zeros_like(v)
            near[0] = ys
            seen.append(float(loss))
            return float(loss), np.asarray(h, float)

        first, _ = value(np.asarray(flat))
        scale = 1 / max(abs(first), 1e-30)  # its tolerances are absolute
        about = lambda v: tuple(scale * part for part in value(v))
        options = {"maxiter": STEPS, "maxfun": 2 * STEPS, "ftol": 1e-13, "gtol": 1e-9}
        minimize(about, np.asarray(flat), jac=True, method="L-BFGS-B", options=options)
    return min(seen)


def workers(processes):
    """A pool of processes; if several, each on a core of its own."""
    context = multiprocessing.get_context("spawn")
    if processes == 1 or not hasattr(os, "sched_setaffinity"):
        return context.Pool(processes)
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    free, cores = context.Queue(), [*os.sched_getaffinity(0)]
    for i in range(processes):
        free.put(cores[i % len(cores)])
    return context.Pool(processes, pin, (free,))


def pin(free):
    os.sched_setaffinity(0, {free.get()})


def one(task):
    """What is measured of one problem: the runs, and the points of `grid` of either grid."""
    group, name, seed, rounds, until, parts, grid = task
    import auto_problems
    import numpy as np

    import diamond

    warnings.simplefilter("ignore")
    random = np.random.default_rng([seed, zlib.crc32(name.encode())])
    problem, network, batch = auto_problems.GROUPS[group][name](random)
    every = max(1, rounds // 12)
    row = {"seed": seed, "group": group, "problem": name, "rounds": rounds, "batch": batch}
    chain = diamond.diamond(batch=batch, hypergradient=diamond.hypergradient.neumann())
    own = diamond.diamond(batch=batch)
    if RUNS in parts:
        known = [lowest(problem)]
        for label, algorithm in {"auto": own, "chain": chain}.items():
            final(
                problem, network, algorithm, rounds, every
            )  # whose seconds are the compiler's too
            losses, run = final(problem, network, algorithm, rounds, every)
            known += losses
            row[label] = {
                "losses": losses,
                "found": run.resolved,
                "drawn": run.history["samples"].tolist(),
                "hvps": float(run.history["hvps"][-1]),
                "seconds": float(run.history["seconds"][-1]),
            }
        row["lowest"] = min(known)
    about = problem, network
    if CHAIN in parts and time.time() < until:
        row[CHAIN] = best_of_grid(*about, chain, batch, rounds, grid)
    if OWN in parts and time.time() < until:
        same = CHAIN in row and "auto" in row and not row["auto"]["found"].get("inverse")
        row[OWN] = row[CHAIN] if same else best_of_grid(*about, own, batch, rounds, grid)
    return row


def merged(row, more):
    """What is known of a problem, with what another process has found."""
    for name in (CHAIN, OWN):
        if name in row and name in more:
            (loss, factors, lost), (other, there, broken) = row[name], more[name]
            best = (loss, factors) if loss <= other else (other, there)
            more = more | {name: (*best, lost + broken)}
    return row | more


def tasks_of(group, name, seed, rounds, until):
    """One for all of a problem; several where it is large."""
    about = group, name, seed, rounds // LARGE.get(group, 1), until
    if group not in LARGE:
        return [(*about, (RUNS, CHAIN, OWN), GRID)]
    dealt = [GRID[i::PARTS] for i in range(PARTS)]
    return [
        (*about, (RUNS,), ()),
        *((*about, (part,), grid) for part in (OWN, CHAIN) for grid in dealt),
    ]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--groups", default="", help="those to run, all by default")
    parser.add_argument("--only", default="", help="a part of the names of those to run")
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1e9, help="0: no grids at all")
    parser.add_argument("--out", default="auto.json")
    parser.add_argument("--table", default="", help="print what this file holds, and run nothing")
    options = parser.parse_args()
    if options.table:
        return table(json.loads(Path(options.table).read_text()))
    os.environ |= {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    import auto_problems

    groups = options.groups.split(",") if options.groups else list(auto_problems.GROUPS)
    if unknown := set(groups) - set(auto_problems.GROUPS):
        parser.error(f"no group {min(unknown)!r}; there are {', '.join(auto_problems.GROUPS)}")
    out = Path(options.out)
    rows = json.loads(out.read_text()) if out.exists() else []
    done = {(row["seed"], row["problem"]) for row in rows}
    until = time.time() + options.limit
    order = {group: i for i, group in enumerate(FIRST)}
    tasks = [
        task
        for group in sorted(groups, key=lambda group: order.get(group, len(FIRST)))
        for seed in options.seeds.split(",")
        for name in auto_problems.GROUPS[group]
        if options.only in name and (int(seed), name) not in done
        for task in tasks_of(group, name, int(seed), options.rounds, until)
    ]
    known = {(row["seed"], row["problem"]): row for row in rows}
    begun = time.time()
    with workers(options.processes) as pool:
        for more in pool.imap_unordered(one, tasks):
            key = more["seed"], more["problem"]
            known[key] = row = merged(known.get(key, {}), more)
            whole = [row for row in known.values() if "auto" in row]
            out.write_text(json.dumps(whole, indent=1, default=float))
            if "auto" in row:
                found = judged(row)
                said = " ".join(
                    f"{name} {value:.3g}" for name, value in found.items() if name != "equal"
                )
                print(f"{time.time() - begun:.0f} s: {key[0]} {key[1]}: {said}", flush=True)


if __name__ == "__main__":
    main()
