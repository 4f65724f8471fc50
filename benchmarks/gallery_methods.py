"""Methods on the problems of the gallery, each tuned by the same rule.

Around the numbers that a method chooses for itself, alpha is tried at 1/4, 1, 4, 16, 64 and 256
times its own: six settings, one seed. The one with the smallest late upper loss is run from other
seeds. Every run is remembered by a file: the same command goes on where it was.
"""

import time
import warnings
from dataclasses import replace

import jax
import numpy as np
from gallery_entries import ENTRIES

import diamond
from diamond.bench.suites import FIRST_TUNING_SEED
from diamond.bench.tunable_values import make_tunable
from diamond.hardware.cores import pinned_process_pool
from diamond.tuning.trial_cache import TrialRequest, cached_trials, summarize_trial

ALPHAS = tuple(4.0**k for k in range(-1, 5))
METHODS = {
    "personal": ("diamond", "dsgd"),
    "common": ("diamond_common", "sparkle", "ma_dsbo", "d_soba"),
}
EVALUATIONS = 10


def compare(names, folder, seeds, processes):
    """What came of every method on every problem, by problem and method."""
    jobs = [(name, method, folder, seeds) for name in names for method in methods(name)]
    with pinned_process_pool(processes) as workers:
        found = {name: {} for name in names}
        for (name, method, *_), told in zip(jobs, workers.map(outcome, *zip(*jobs, strict=True))):
            found[name][method] = told
            print(f"{name:20} {method:15}", told.get("refused") or brief(told), flush=True)
    return found


def methods(name):
    """Those for its kind of lower level."""
    return METHODS[problem_of(ENTRIES[name].make()).lower_level]


def problem_of(made):
    return getattr(made, "problem", made)


def brief(told):
    last = [values[-1] for values in told["metric"]]
    return f"{np.mean(last):.4g} ({min(last):.4g} to {max(last):.4g}), {told['seconds']:.0f} s"


def outcome(name, method, folder, seeds):
    """One method on one problem: its numbers, and the history of the metric from every seed."""
    begun, entry = time.process_time(), ENTRIES[name]
    problem, network = problem_of(entry.make()), entry.network()
    with warnings.catch_warnings():  # a run that goes back to smaller steps says so
        warnings.simplefilter("ignore")
        try:
            own = make_tunable(method, problem, network, entry.batch, FIRST_TUNING_SEED)
        except ValueError as refusal:
            return {"refused": str(refusal)}
        if entry.solver and "hypergradient" in own.fixed:
            solver = diamond.hypergradient.conjugate_gradient(entry.solver)
            own = replace(own, fixed=own.fixed | {"hypergradient": solver})
        tried = [own.with_factors(factors) for factors in settings()]
        trials = made(name, method, problem, network, tried, [FIRST_TUNING_SEED], folder)
        losses = [summarize_trial(trial)["upper_loss"] for trial in trials]
        best = int(np.nanargmin(losses))
        runs = made(name, method, problem, network, [tried[best]], range(seeds), folder)
        x = diamond.simulate(problem, network, tried[best][0], entry.rounds, 0, entry.rounds).x
    of = lambda key: [[float(f"{v:.6g}") for v in run["history"][key]] for run in runs]
    x = jax.tree.map(lambda leaf: few(np.mean(leaf, 0)), x) if "diamond" in method else None
    return {
        "numbers": {k: float(f"{v:.4g}") for k, v in tried[best][1].items()},
        "factors": {"alpha": ALPHAS[best]},
        "diverged": [run["diverged"] for run in runs],
        "round": of("round")[0],
        "metric": of(entry.metric),
        "upper_loss": of("upper_loss"),
        "x": x,
        "seconds": round(time.process_time() - begun, 1),
    }


def few(values):
    """A list of numbers with four digits, all that a picture shows."""
    return [few(one) for one in values] if np.ndim(values) else float(f"{values:.4g}")


def settings():
    """Factors of a method's own numbers."""
    return [{"alpha": alpha, "beta": 1.0, "weight": 1.0, "lam": 1.0} for alpha in ALPHAS]


def made(name, method, problem, network, tried, seeds, folder):
    """The runs of each setting and seed."""
    entry = ENTRIES[name]
    about = {"problem": name, "method": method, "rounds": entry.rounds}
    requests = [
        TrialRequest(algorithm, seed, about | {"numbers": numbers, "seed": seed})
        for algorithm, numbers in tried
        for seed in seeds
    ]
    every = entry.rounds // EVALUATIONS
    return cached_trials(
        lambda: problem,
        network,
        requests,
        entry.rounds,
        every,
        folder / "trials",
        lambda done: None,
    )
