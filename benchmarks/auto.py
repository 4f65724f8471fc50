"""Steps that choose themselves beside the best of a 27-point grid, on problems they never saw.

    python benchmarks/auto.py [--design] [--rounds 600] [--algorithm diamond] [--json FILE]
    python benchmarks/auto.py --draws 5    other draws of the same problems, without the grid: does
                                           any diverge?

The grid is a strong one: it is centred on what `auto` found for the same problem, so that its
scale is right for every problem, and its best point is chosen afterwards by the final upper loss.
alpha_0 is 1, 4 and 16 times auto's, beta_0 0.5, 1 and 2 times, eta_0 = gamma_0 0.1, 1 and 10 times
(at most 1), with the decay of Theorem 1; batch, K and L_g are those of auto. The gap is the final
upper loss less the lowest known, which a run of the best grid point four times as long helps to
find; a gap below 1 % of the first one counts as closed.
"""

import argparse
import inspect
import itertools
import json
import time
import warnings

import auto_problems

import diamond
from diamond.numbers.schedule import power

BATCH = 16
CLOSED = 0.01
GRID = tuple(itertools.product((1.0, 4.0, 16.0), (0.5, 1.0, 2.0), (0.1, 1.0, 10.0)))


def given(make, found, factors):
    a, b, e = factors
    theorem = lambda c, exponent=1 / 3: power(c * 2**exponent, 2.0, exponent)
    steps = {
        "alpha": theorem(a * found["alpha"]),
        "beta": theorem(b * found["beta"]),
        "eta": theorem(min(1.0, e * found.get("eta", 1.0)), 2 / 3),
    }
    steps["gamma"] = steps["eta"]
    takes = inspect.signature(make).parameters
    return make(batch=BATCH, order="atc", **{k: v for k, v in steps.items() if k in takes})


def final(problem, network, algorithm, rounds):
    """Upper loss at the start and at the end, samples, the run; infinite where it diverged."""
    try:
        run = diamond.simulate(problem, network, algorithm, rounds, every=rounds)
    except diamond.Diverged as error:
        return error.run.history["upper_loss"][0], float("inf"), 0.0, error.run
    loss = run.history["upper_loss"]
    return loss[0], loss[-1], run.history["samples"][-1], run


def one(name, made, make, rounds):
    problem, network = made()
    begun = time.perf_counter()
    first, auto, samples, run = final(problem, network, make(batch=BATCH), rounds)
    seconds = time.perf_counter() - begun
    tried = {f: final(problem, network, given(make, run.resolved, f), rounds)[1] for f in GRID}
    factors = min(tried, key=tried.get)
    best = given(make, run.resolved, factors)
    lowest = min(auto, tried[factors], final(problem, network, best, 4 * rounds)[1])
    gap, least = auto - lowest, tried[factors] - lowest
    closed = CLOSED * (first - lowest)
    ratio = max(gap, closed) / max(least, closed)
    return {
        "problem": name,
        "first": first,
        "auto": auto,
        "grid": tried[factors],
        "lowest": lowest,
        "ratio": ratio,
        "diverged in the grid": sum(loss == float("inf") for loss in tried.values()),
        "factors": factors,
        "found": run.resolved,
        "samples": samples,
        "seconds": seconds,
    }


def draws(chosen, many, make, rounds):
    """How often it diverged, or shrank its steps, on so many other draws of every problem."""
    lost, shrank = 0, 0
    for name, made in chosen.items():
        ends = [final(*made(1000 + k), make(batch=BATCH), rounds) for k in range(many)]
        falls = [last / first for first, last, _, _ in ends]
        lost += falls.count(float("inf"))
        shrank += sum("shrunk" in run.resolved for *_, run in ends)
        print(f"{name:38} upper loss, last / first: {' '.join(f'{f:.3f}' for f in falls)}")
    print(f"of {many * len(chosen)}, {lost} diverged, {shrank} shrank their steps on the way")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--algorithm", default="diamond")
    parser.add_argument("--only", default="", help="a part of the names of those to run")
    parser.add_argument("--design", action="store_true", help="those the rule was made on")
    parser.add_argument("--json", default="")
    parser.add_argument("--draws", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    chosen = auto_problems.DESIGN if options.design else auto_problems.PROBLEMS
    chosen = {name: made for name, made in chosen.items() if options.only in name}
    make = getattr(diamond, options.algorithm)
    if options.draws:
        return draws(chosen, options.draws, make, options.rounds)
    print(f"{options.algorithm}, {options.rounds} rounds, batch {BATCH}; auto against 27 settings")
    print(f"{'problem':38} {'first':>9} {'auto':>9} {'grid':>9} {'lowest':>9} ratio NaN  verdict")
    rows = []
    for name, made in chosen.items():
        row = one(name, made, make, options.rounds)
        rows.append(row)
        verdict = "within 2" if row["ratio"] <= 2 else "MISSED"
        verdict += ", shrunk" if "shrunk" in row["found"] else ""
        shown = [f"{row[k]:9.4g}" for k in ("first", "auto", "grid", "lowest")]
        failed = row["diverged in the grid"]
        print(f"{name:38} {' '.join(shown)} {row['ratio']:5.2f} {failed:3}  {verdict}", flush=True)
    met = sum(row["ratio"] <= 2 for row in rows)
    print(f"{met} of {len(rows)} within a factor 2 of the best of 27")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1, default=float)


if __name__ == "__main__":
    main()
