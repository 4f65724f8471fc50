"""DIAMOND with the lower level solved, beside the paper's DIAMOND: costs to the same metric.

    PYTHONPATH=. python benchmarks/lower_level.py --data FOLDER --processes 16 --out lower.json
    PYTHONPATH=. python benchmarks/lower_level.py --table lower.json

FOLDER holds MNIST, a9a and ijcnn1, a folder each; what is not there is skipped, and said. Each has
nine agents (Erdos-Renyi, p = 0.4) with `ROWS` training and as many validation rows: hidden layers
for all and a last layer each (MNIST, two labels or so an agent), or a penalty a feature (a9a,
ijcnn1). Three methods, all of batch 64:

    paper     eqs. (5) to (10): the chain, y by plain steps
    solved    g_yy always solved, for x and for y, whatever it costs
    auto      as it comes: a run that chooses for itself, and again where it looks; one run, no grid

The others have the same grid around the numbers that they find: alpha_0 times 1/4, 1, 4 and 16,
beta_0 times 1/2, 1 and 2, ROUNDS rounds. Targets are the lowest metric of the paper, and the lowest
upper loss, that both of these reach in the mean over three measurements in a row; what is shown is
the least that a point of the grid spends until then, infinite where auto does not get there. Small
steps may have a small metric because they have hardly moved: then the upper loss says more.
"""

import argparse
import json
import math
import os
import time
import warnings
from pathlib import Path

import auto
from auto_table import KINDS

AGENTS, ROWS, BATCH, ROUNDS, EVERY = 9, 256, 64, 1000, 25
GRID = [(a, b, 1.0) for a in (0.25, 1.0, 4.0, 16.0) for b in (0.5, 1.0, 2.0)]
PROBLEMS, METHODS = ("mnist", "a9a", "ijcnn1"), ("paper", "solved", "auto")
COSTS = ("round", "samples", "bytes")


def made(name, folder):
    """The problem and its network; raises FileNotFoundError and the like without the data."""
    import numpy as np

    import diamond
    from diamond import data, problems

    a, b = getattr(data, name)(folder).train
    few = np.random.default_rng(0).permutation(len(b))[: AGENTS * 2 * ROWS]
    a, b = np.asarray(a[few], np.float32), np.asarray(b[few])
    by_label = name == "mnist"
    deal = data.partition.by_label if by_label else data.partition.iid
    parts = data.partition.split(deal(b, AGENTS, 0), (0.5, 0.5), 0)
    train, valid = ([{"a": a[i], "b": b[i]} for i in part] for part in parts)
    build = problems.meta_learning if by_label else problems.hyperparameter
    return (
        build(train, valid, classes=10 if by_label else 2),
        diamond.network.erdos_renyi(AGENTS, p=0.4, seed=0),
    )


def one(task):
    """The histories of a part of the grid."""
    name, method, grid, folder, rounds = task
    import diamond
    from diamond.auto import inverse
    from diamond.numbers.open_numbers import Setting, resolve

    warnings.simplefilter("ignore")
    problem, network = made(name, folder)
    algorithm, rows = diamond.diamond(batch=BATCH), []
    if method == "paper":
        algorithm = diamond.diamond(batch=BATCH, hypergradient=diamond.hypergradient.neumann())
    # no chain is right enough, and no solver too slow
    inverse.BIAS, inverse.SLOWER = (0.0, math.inf) if method == "solved" else (0.1, 1.3)
    found = resolve(algorithm, Setting(problem, network, BATCH, 0)) if method != "auto" else None
    for factors in grid:
        given = auto.scaled(found.algorithm, factors) if found else algorithm
        try:
            run = diamond.simulate(problem, network, given, rounds, every=EVERY)
        except diamond.Diverged as error:
            run = error.run
        numbers, names = found.numbers if found else run.resolved, ("metric", "upper_loss", *COSTS)
        about = {"problem": name, "method": method, "factors": factors, "found": numbers}
        rows.append(about | {"history": {key: run.history[key].tolist() for key in names}})
    return rows


def smooth(row, measure):
    """A measure in the mean over three measurements in a row, from the third on."""
    seen = row["history"][measure]
    return [sum(seen[i - 2 : i + 1]) / 3 for i in range(2, len(seen))]


def lowest(rows, measure):
    """Of all these runs."""
    each = [value for row in rows for value in smooth(row, measure) if math.isfinite(value)]
    return min(each, default=math.inf)


def table(rows):
    print("| problem | target | method | inverse | points | lowest | rounds | samples | bytes |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in dict.fromkeys(row["problem"] for row in rows):
        of = {m: [r for r in rows if (r["problem"], r["method"]) == (name, m)] for m in METHODS}
        of = {method: mine for method, mine in of.items() if mine}
        for measure in ("metric", "upper_loss"):
            target = max(lowest(mine, measure) for name, mine in of.items() if name != "auto")
            for method, mine in of.items():
                kind = KINDS[int(mine[0]["found"].get("inverse", 0))]
                least = {key: math.inf for key in COSTS}
                for row in mine:
                    values = enumerate(smooth(row, measure))
                    at = next((i + 2 for i, value in values if value <= target), None)
                    for key in COSTS if at is not None else ():
                        least[key] = min(least[key], row["history"][key][at])
                shown = " | ".join(f"{least[key]:.4g}" for key in COSTS)
                print(
                    f"| {name} | {measure} {target:.3g} | {method} | {kind} | {len(mine)} | "
                    f"{lowest(mine, measure):.3g} | {shown} |"
                )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default=None, help="the folder of the data sets")
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", default="lower.json")
    parser.add_argument("--table", default="", help="print what this file holds, and run nothing")
    options = parser.parse_args()
    if options.table:
        return table(json.loads(Path(options.table).read_text()))
    os.environ |= {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    tasks = []
    for name in options.problems.split(","):
        if options.data is None or not (Path(options.data) / name).exists():
            print(f"{name}: skipped, there is no folder {name} in --data {options.data}")
            continue
        parts = [GRID[i : i + 3] for i in range(0, len(GRID), 3)]
        given = [(method, part) for part in parts for method in METHODS[:2]]
        given.insert(0, ("auto", [(1.0, 1.0, 1.0)]))
        tasks += [(name, *one, options.data, options.rounds) for one in given]
    rows, out, begun = [], Path(options.out), time.time()
    with auto.workers(options.processes) as pool:
        for found in pool.imap_unordered(one, tasks):
            rows += found
            out.write_text(json.dumps(rows, default=float))
            print(f"{time.time() - begun:.0f} s: {found[0]['problem']}, {found[0]['method']}")
    table(rows)


if __name__ == "__main__":
    main()
