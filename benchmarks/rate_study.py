"""Theorem 1 beside what runs do, on a problem that satisfies every assumption of the paper.

    python benchmarks/rate_study.py            # about 6 minutes of CPU time
    python benchmarks/rate_study.py --quick    # shorter runs, written elsewhere: does it work?

6 agents on a ring, 4 numbers in x and 4 in y, 200 + 200 rows an agent, batch 2, K = 12. DIAMOND has
the schedules of Theorem 1 (alpha, beta ~ t^(-1/3), eta, gamma ~ t^(-2/3)), D-SGD its own (alpha,
beta ~ t^(-1/2)). Exponents: 65,536 rounds, 4 seeds, the same constants for both. Samples to reach
epsilon: 16,384 rounds of a grid of constants, for each epsilon the best. What m, lambda, K and the
batch change: 8,192 rounds, 2 seeds. Writes figures and all numbers into docs/results/theory.

Rows of agent i are (a, b, group) with ||a|| = A, and with psi = log cosh, s the logistic function

    g_i(x, y) = mean_n s(2 x_group) psi(a'y - b) + MU/2 ||y||^2
    f_i(x, y) = SCALE mean_n psi(a'y - b) + RHO sum_k sqrt(1 + x_k^2)

so x says how much each group of training rows counts. All derivatives that the assumptions name are
bounded, l is not convex, and gradients are noisy because rows differ.
"""

import json
import math
import sys
import tempfile
import time
from functools import cache
from itertools import product
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import diamond
from diamond import schedules, theory
from diamond.engine.many_runs import simulate_many

FOLDER = Path(__file__).parent.parent / "docs" / "results" / "theory"
MU, RHO, SCALE, A, SIZE, ROWS = 1.0, 0.5, 10.0, 1.2, 4, 200
L_G = MU + A**2  # no sampled g_yy has a larger eigenvalue
AGENTS, BATCH, TERMS, OMEGA = 6, 2, 12, 10.0
SAME = (0.3, 0.25, 1.0)  # alpha, beta, eta = gamma: times the power of (omega + t)
GRID = {
    "DIAMOND": list(product((0.03, 0.1, 0.3), (0.06, 0.25), (0.3, 1.0, 3.0))),
    "D-SGD": list(product((0.03, 0.1, 0.3), (0.03, 0.06, 0.12, 0.25), (1.0,))),
}
EXPONENTS = {"DIAMOND": -2 / 3, "D-SGD": -1 / 2}  # of the average metric, in theory
COLOURS = {"DIAMOND": "#0072B2", "D-SGD": "#D55E00"}
TERM_LINES = {"stationarity": "-", "consensus": ":", "lower_error": "--"}
EPSILONS = (0.008, 0.004, 0.002, 0.0014, 0.001, 0.0007)
LONG, MIDDLE, SHORT = (65536, 4, 256), (16384, 1, 256), (8192, 2, 64)  # rounds, seeds, looks


def psi(r):
    return jnp.logaddexp(r, -r) - jnp.log(2.0)


def upper(x, y, rows):
    fit = jnp.mean(psi(rows["a"] @ y - rows["b"]))
    return SCALE * fit + RHO * jnp.sum(jnp.sqrt(1 + x**2))


def lower(x, y, rows):
    weights = jax.nn.sigmoid(2 * x[rows["group"]])
    return jnp.mean(weights * psi(rows["a"] @ y - rows["b"])) + MU / 2 * y @ y


@cache
def problem(agents=AGENTS):
    """Agents differ in their own parameters; training rows of group k are off by k wrong ones."""
    random = np.random.default_rng(0)
    common, wrong = random.normal(size=SIZE), random.normal(size=(SIZE, SIZE))
    parameters = common + 0.5 * random.normal(size=(agents, SIZE))

    def part(theta, off):
        a = random.normal(size=(ROWS, SIZE))
        a *= A / np.linalg.norm(a, axis=1, keepdims=True)
        group = random.integers(0, SIZE, ROWS)
        b = np.sum(a * (theta + off * group[:, None] * wrong[group]), 1)
        b += 0.3 * random.normal(size=ROWS)
        return {"a": a.astype("f4"), "b": b.astype("f4"), "group": group.astype("i4")}

    init = lambda key: (jnp.zeros(SIZE), jnp.zeros(SIZE))
    train, valid = ([part(theta, off) for theta in parameters] for off in (1.0, 0.0))
    return diamond.Problem(upper, lower, init, train, valid)


def bounds():
    """Bounds on the constants that hold at every (x, y), from those on psi and s."""
    bent, turn = 4 / (3 * np.sqrt(3)), 1 / (6 * np.sqrt(3))  # of psi''' and of s''
    return {
        "mu_g": MU,
        "L_g": L_G,
        "C_gxy": 2 * A / 4,
        "C_fy": SCALE * A,
        "L_fx": RHO,
        "L_fy": SCALE * A**2,
        "L_gxy": A * float(np.hypot(4 * turn, 2 / 4 * A)),
        "L_gyy": A**2 * float(np.hypot(2 / 4, A * bent)),
    }


def method(name, alpha, beta, eta, batch=BATCH, terms=TERMS):
    """alpha, beta and eta = gamma, times the power of (OMEGA + t) that the method's theory has."""
    chain = dict(batch=batch, hypergradient=diamond.hypergradient.neumann(terms, L_G))
    if name == "D-SGD":
        steps = {
            "alpha": schedules.power(alpha, OMEGA, 0.5),
            "beta": schedules.power(beta, OMEGA, 0.5),
        }
        return diamond.dsgd(**steps, **chain)
    weights = eta / alpha**2
    steps = schedules.paper(alpha, beta / alpha, weights, weights, omega=OMEGA)
    return diamond.diamond(**steps, **chain)


def histories(methods, scale, network, agents=AGENTS):
    """The histories of every method, a list over the seeds for each."""
    rounds, seeds, looks = scale
    trials = [(method, seed) for method in methods for seed in range(seeds)]
    outcomes = simulate_many(problem(agents), network, trials, rounds, rounds // looks)
    if diverged := [trials[i] for i, o in enumerate(outcomes) if o.diverged is not None]:
        raise RuntimeError(
            f"{len(diverged)} runs diverged, {diverged[0]} the first; use smaller constants"
        )
    histories_of_runs = [outcome.history for outcome in outcomes]
    return [histories_of_runs[i : i + seeds] for i in range(0, len(histories_of_runs), seeds)]


def predicted(constants, rounds):
    """Theorem 1 for what was estimated, and for the bounds that hold everywhere."""
    rows = {}
    for name, c in {
        "found": constants,
        "bounds": theory.Constants(**vars(constants) | bounds()),
    }.items():
        theorem = theory.theorem1(c, rounds)
        rows[name] = {
            "K": theorem.terms,
            "L_f, L_y, L_l": theory.lemma1(c),
            "L_K": theorem.L_K,
            "alpha": theorem.alpha,
            "beta": theorem.beta,
            "omega": theorem.omega,
            "right side": theory.right_side(c, theorem, rounds).total,
            f"bias at K = {TERMS}": theory.bias(c, TERMS),
            "worst coefficient": max(theory.descent(c, theorem, theorem.alpha).values()),
        }
    return rows


def exponents(runs):
    """Slopes of the average metric, and of the average over the second half, against T."""
    first = int(runs[0]["round"][-1]) // 16
    return {
        "slope": theory.slope(runs, first),
        "late slope": theory.slope(runs, first, since=0.5),
        "late slope of": {
            term: theory.slope([run | {"metric": run[term]} for run in runs], first, since=0.5)
            for term in TERM_LINES
        },
        "average metric": float(np.mean([average(run)[-1] for run in runs])),
        "upper loss": float(np.mean([run["upper_loss"][-1] for run in runs])),
    }


def average(history):
    return theory.averages(history["round"], history["metric"])


def cheapest(settings, runs):
    """For every epsilon the setting that reaches it with the fewest samples, of a grid."""
    rows = []
    for epsilon in EPSILONS:
        costs = [theory.rate(run, None, [epsilon]).costs[epsilon] for run in runs]
        best = int(np.argmin([cost["samples"] for cost in costs]))
        if math.isfinite(costs[best]["samples"]):
            rows.append({"epsilon": epsilon, "constants": settings[best], **costs[best]})
    growth = None
    if len(rows) > 2:
        x, y = (np.log([row[key] for row in rows]) for key in ("epsilon", "samples"))
        growth = float(np.polyfit(x, y, 1)[0])
    return {"reached": rows, "samples ~ epsilon to the": growth}


def effects(scale):
    """What m, lambda, K and the batch change, all else being equal, at the same constants."""
    net = diamond.network
    rows = []

    def go(what, value, network, agents=AGENTS, **options):
        for name in EXPONENTS:
            (runs,) = histories([method(name, *SAME, **options)], scale, network, agents)
            late = lambda key, runs=runs: float(
                np.mean([run[key][scale[2] // 2 :].mean() for run in runs])
            )
            row = {
                "what": what,
                "value": value,
                "method": name,
                "stationarity": late("stationarity"),
            }
            row |= {key: late(key) / agents for key in ("consensus", "lower_error")}
            rows.append(row | {"samples": float(runs[0]["samples"][-1] / runs[0]["round"][-1])})

    for m in (4, 8, 16):  # the Laplacian mixing of a complete graph has lam = 1/3 for every m
        go("m", m, net.complete(m), m)
    for graph in (net.complete(8), net.ring(8), net.path(8)):
        go("lambda", graph.lam, graph, 8)
    for terms in (1, 4, 8, 16):
        go("K", terms, net.ring(AGENTS), terms=terms)
    for batch in (1, 4, 16):
        go("batch", batch, net.ring(AGENTS), batch=batch)
    return rows


def main():
    quick = "--quick" in sys.argv
    long, middle, short = (
        ((512, 2, 64), (256, 1, 32), (64, 1, 8)) if quick else (LONG, MIDDLE, SHORT)
    )
    begun, network = time.perf_counter(), diamond.network.ring(AGENTS)
    constants = theory.estimate(problem(), network, BATCH, terms=TERMS)
    print(constants)
    result = {"network": repr(network), "rounds, seeds, looks": {"exponents": long, "grid": middle}}
    result["rounds, seeds, looks"]["effects"] = short
    result["constants"] = {
        key: {
            "found": getattr(constants, key),
            "error": constants.errors.get(key),
            "bound": bounds().get(key),
        }
        for key in (*constants.errors, "heterogeneity", "lam")
    }
    result["theorem"] = predicted(constants, long[0])
    runs = {}
    for name in EXPONENTS:
        (runs[name],) = histories([method(name, *SAME)], long, network)
        trials = histories([method(name, *setting) for setting in GRID[name]], middle, network)
        result[name] = exponents(runs[name]) | cheapest(GRID[name], [trial[0] for trial in trials])
        print(name, json.dumps(result[name]))
    result["effects"] = effects(short)
    result["seconds"] = round(time.perf_counter() - begun)
    folder = Path(tempfile.mkdtemp()) if quick else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rate_study.json").write_text(json.dumps(result, indent=1))
    draw_rates(runs, result, folder / "rates.png")
    draw_effects(result["effects"], folder / "effects.png")
    print(f"{result['seconds']} s; numbers and figures are in {folder}")


def draw_rates(runs, result, path):
    """The averages against T, the terms of the metric, and the samples that epsilon costs."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for name, histories in runs.items():
        rounds, colour = histories[0]["round"][1:], COLOURS[name]
        mean = np.mean([average(h) for h in histories], 0)
        late = result[name]["late slope"].value
        axes[0].loglog(rounds, mean, color=colour, label=f"{name}, late slope {late:.2f}")
        guide = mean[-1] * (rounds / rounds[-1]) ** EXPONENTS[name]
        axes[0].loglog(rounds, guide, ":", color=colour)
        for term, line in TERM_LINES.items():
            value = np.mean([h[term][1:] for h in histories], 0)
            smooth = np.convolve(value, np.ones(9) / 9, "valid")
            axes[1].loglog(rounds[4:-4], smooth, line, color=colour, label=f"{name} {term}")
        reached = result[name]["reached"]
        points = ([row[key] for row in reached] for key in ("epsilon", "samples"))
        axes[2].loglog(*points, "o-", color=colour, label=name)
    titles = ("average of M_t over t <= T (dotted: T^-2/3, T^-1/2)", "terms of M_t, mean of 9")
    for axis, title in zip(axes, (*titles, "samples an agent to reach epsilon, best of a grid")):
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("epsilon" if axis is axes[2] else "rounds")
        axis.xaxis.set_minor_formatter("")
        axis.grid(alpha=0.3, which="both")
        axis.legend(fontsize=7)
    figure.savefig(path, dpi=110)


def draw_effects(rows, path):
    """The terms of the metric against m, lambda, K and the batch."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(14, 3.6), layout="constrained", sharey=True)
    for axis, what in zip(axes, ("m", "lambda", "K", "batch")):
        for (name, colour), (term, line) in product(COLOURS.items(), TERM_LINES.items()):
            rows_of_method = [row for row in rows if row["what"] == what and row["method"] == name]
            points = [row["value"] for row in rows_of_method], [row[term] for row in rows_of_method]
            axis.plot(*points, "o" + line, color=colour, label=f"{name} {term}", markersize=4)
        axis.set_yscale("log")
        if what != "lambda":
            axis.set_xscale("log", base=2)
        axis.set_xlabel(what)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("mean over the second half, per agent")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
