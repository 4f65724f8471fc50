"""Accuracy against epsilon: what a privacy budget costs, for eighteen pairs of method and problem.

    python benchmarks/privacy.py                 all runs, and the table
    python benchmarks/privacy.py --table         the table of the stored runs

Three problems with 20 sites. `digits`: one shared penalty per pixel above a classifier of each
site's own 36 rows (personal lower level). `a9a`: a logistic regression of 1,600 rows per site, no
lower level. `cleaning`: weights of digits with wrong labels above a common classifier. Steps are
chosen for every method and epsilon on a seed of their own; the choice itself is not private. Noise
multipliers are calibrated once and stored with the results, so that runs need no accountant.
"""

import argparse
import itertools
import json
import math
import multiprocessing
import os
import statistics
from pathlib import Path

EPSILONS = (1.0, 2.0, 4.0, 8.0, math.inf)
DELTA, SITES, TUNING_SEED = 1e-5, 20, 1000
OUT = Path(__file__).with_suffix(".json")


def split_rows(a, b, sizes, sites=SITES):
    """Deal equal numbers of rows to all sites, in a fixed random order."""
    import numpy as np

    order = np.random.default_rng(0).permutation(len(b))[: sites * sum(sizes)]
    parts, first = [], 0
    for size in sizes:
        indices = order[first : first + sites * size].reshape(sites, size)
        parts.append([{"a": a[i], "b": b[i]} for i in indices])
        first += sites * size
    return parts


def make_digits():
    import diamond

    return diamond.gallery.hyperparameter(
        *split_rows(*diamond.data.digits().train, (36, 36, 17)), 10
    )


def make_a9a():
    import jax.numpy as jnp
    import numpy as np

    import diamond

    dataset = diamond.data.a9a(os.environ.get("A9A"))
    with_bias = lambda a: np.concatenate([a, np.ones((len(a), 1), a.dtype)], 1)
    train = split_rows(with_bias(dataset.train[0]), dataset.train[1], (1600,))[0]
    test = split_rows(with_bias(dataset.test[0]), dataset.test[1], (800,))[0]
    sign = lambda rows: 2.0 * rows["b"] - 1.0
    loss = lambda x, rows: jnp.mean(jnp.logaddexp(0.0, -sign(rows) * (rows["a"] @ x)))
    accuracy = lambda x, rows: jnp.mean((rows["a"] @ x > 0) == (rows["b"] > 0))
    start = lambda key: jnp.zeros(train[0]["a"].shape[1])
    return diamond.Problem(loss, None, start, train, test=test, metrics={"accuracy": accuracy})


def make_cleaning():
    import diamond

    rows = split_rows(*diamond.data.digits().train, (40, 30, 19))
    return diamond.gallery.hyper_cleaning(*rows, 10, corrupted=0.3)


def methods():
    """Return, by problem: rounds, batch, clips, grids of alpha and beta, and the methods."""
    import diamond as d

    lower = lambda make: lambda a, b, batch: make(alpha=a, beta=b, delta=b, batch=batch)
    alone = lambda make: lambda a, b, batch: make(alpha=a, batch=batch)
    pair = lambda make: lambda a, b, batch: make(alpha=a, beta=b, batch=batch)
    digits = {"dsgd": pair(d.dsgd), "gt_sgd": pair(d.gt_sgd), "diamond": pair(d.diamond)}
    digits |= {"soba": lower(d.soba), "lopa": lower(d.lopa), "f2sa_fused": lower(d.f2sa_fused)}
    single = "dsgd", "gt_sgd", "exact_diffusion", "momentum_tracking", "gt_storm", "extra"
    a9a = {name: alone(getattr(d, name)) for name in single}
    common = "d_soba", "sparkle", "fab", "dsgda_gt", "diamond_common", "sldbo"
    cleaning = {name: lower(getattr(d, name)) for name in common}
    small, large = (0.03, 0.3), (0.1, 0.5)
    return {
        "digits": (make_digits, 100, 18, {"x": 0.1, "y": 1.0, "z": 1.0}, small, large, digits),
        "a9a": (make_a9a, 200, 64, {"x": 1.0}, (0.1, 0.5, 2.0), (0.0,), a9a),
        "cleaning": (
            make_cleaning,
            100,
            20,
            {"x": 0.1, "y": 1.0, "z": 1.0},
            (1.0, 10.0),
            (0.1, 0.5),
            cleaning,
        ),
    }


def calibrate():
    """Return the noise multiplier and the kind of clipping of every problem, method and epsilon."""
    import diamond

    found = {}
    for name, (make, rounds, batch, clip, alphas, betas, makers) in methods().items():
        problem = make()
        for method, build in makers.items():
            for epsilon in EPSILONS[:-1]:
                algorithm = build(alphas[0], betas[0], batch)
                private = diamond.private(algorithm, epsilon, DELTA, clip, rounds)
                plan = private.estimator.plan(private, problem)
                kind = "row" if plan.by_row else "whole"
                found[f"{name} {method} {epsilon}"] = plan.mechanisms[0].multiplier, kind
    return found


def measure(job):
    """Return the tuned accuracies of one method on one problem, by epsilon."""
    name, method, multipliers, seeds, known_steps = job
    import numpy as np

    import diamond
    from diamond.engine.many_runs import simulate_many

    make, rounds, batch, clip, alphas, betas, makers = methods()[name]
    problem = make()
    network = diamond.network.erdos_renyi(SITES, p=0.3, seed=0)
    backends, results = {}, {}

    def accuracy(epsilon, a, b, seeds):
        algorithm = makers[method](a, b, batch)
        if math.isfinite(epsilon):
            multiplier = multipliers[f"{name} {method} {epsilon}"][0]
            algorithm = diamond.private(
                algorithm, math.inf, DELTA, clip, rounds, noise_multiplier=multiplier
            )
        outcomes = simulate_many(
            problem,
            network,
            [(algorithm, seed) for seed in seeds],
            rounds,
            rounds,
            batched=False,
            progress=False,
            measure="cheap",
            backends=backends,
        )
        last = [0.0 if o.diverged is not None else o.history["accuracy"][-1] for o in outcomes]
        return [float(value) if np.isfinite(value) else 0.0 for value in last]

    for epsilon in EPSILONS:
        grid = list(itertools.product(alphas, betas))
        if known_steps:
            grid = [known_steps[str(epsilon)]["steps"]]
        tuned = [accuracy(epsilon, *steps, [TUNING_SEED])[0] for steps in grid if len(grid) > 1]
        steps = grid[int(np.argmax(tuned or [0]))]
        values = accuracy(epsilon, *steps, range(seeds))
        results[str(epsilon)] = {"steps": steps, "accuracies": values}
        print(name, method, epsilon, steps, f"{np.mean(values):.3f}", flush=True)
    return name, method, results


def write_table(document):
    """Print the table of docs/results/privacy.md."""
    print("| problem | method | clipping |", " | ".join(f"{e:g}" for e in EPSILONS), "|")
    print("| --- | --- | --- |", " | ".join("---" for _ in EPSILONS), "|")
    for key, results in document.get("results", {}).items():
        name, method = key.split()
        kind = document["multipliers"][f"{name} {method} {EPSILONS[0]}"][1]
        cells = []
        for epsilon in EPSILONS:
            values = results[str(epsilon)]["accuracies"]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            cells.append(f"{statistics.mean(values):.3f} ± {spread:.3f}")
        print(f"| {name} | {method} | {kind} |", " | ".join(cells), "|")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--methods", nargs="*", help="default: all")
    parser.add_argument("--steps-of", help="take the steps chosen for this method, do not tune")
    parser.add_argument("--problems", nargs="*", default=list(methods()))
    parser.add_argument(
        "--table", action="store_true", help="print the table of the stored results"
    )
    parser.add_argument("--calibrate", action="store_true", help="store the noise multipliers only")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    document = json.loads(OUT.read_text()) if OUT.exists() else {}
    if options.table:
        return write_table(document)
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    document.setdefault("multipliers", {})
    if options.calibrate or not document["multipliers"]:
        document["multipliers"] = calibrate()
    results = document.setdefault("results", {})
    if not options.calibrate:
        jobs = [
            (
                name,
                method,
                document["multipliers"],
                options.seeds,
                results[f"{name} {options.steps_of}"] if options.steps_of else None,
            )
            for name in options.problems
            for method in methods()[name][-1]
            if options.methods is None or method in options.methods
        ]
        with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=1) as pool:
            for name, method, values in pool.imap_unordered(measure, jobs, 1):
                results[f"{name} {method}"] = values
                options.out.write_text(json.dumps(document, indent=1) + "\n")
        order = [f"{name} {method}" for name, part in methods().items() for method in part[-1]]
        document["results"] = {key: results[key] for key in order if key in results}
        write_table(document)
    options.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
