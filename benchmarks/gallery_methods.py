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
        results = {name: {} for name in names}
        for (name, method, *_), outcome_of_method in zip(
            jobs, workers.map(outcome, *zip(*jobs, strict=True))
        ):
            results[name][method] = outcome_of_method
            print(
                f"{name:20} {method:15}",
                outcome_of_method.get("refused") or format_outcome(outcome_of_method),
                flush=True,
            )
    return results


def methods(name):
    """Those for its kind of lower level."""
    return METHODS[problem_of(ENTRIES[name].make()).lower_level]


def problem_of(entry):
    return getattr(entry, "problem", entry)


def format_outcome(outcome):
    last = [values[-1] for values in outcome["metric"]]
    return f"{np.mean(last):.4g} ({min(last):.4g} to {max(last):.4g}), {outcome['seconds']:.0f} s"


def outcome(name, method, folder, seeds):
    """One method on one problem: its numbers, and the history of the metric from every seed."""
    started, entry = time.process_time(), ENTRIES[name]
    problem, network = problem_of(entry.make()), entry.network()
    with warnings.catch_warnings():  # a run that goes back to smaller steps says so
        warnings.simplefilter("ignore")
        try:
            tunable = make_tunable(method, problem, network, entry.batch, seed=FIRST_TUNING_SEED)
        except ValueError as refusal:
            return {"refused": str(refusal)}
        if entry.solver and "hypergradient" in tunable.fixed:
            solver = diamond.hypergradient.conjugate_gradient(entry.solver)
            tunable = replace(tunable, fixed=tunable.fixed | {"hypergradient": solver})
        candidates = [tunable.with_factors(factors) for factors in settings()]
        trials = run_trials(name, method, problem, network, candidates, [FIRST_TUNING_SEED], folder)
        losses = [summarize_trial(trial)["upper_loss"] for trial in trials]
        best = int(np.nanargmin(losses))
        runs = run_trials(name, method, problem, network, [candidates[best]], range(seeds), folder)
        x = diamond.simulate(
            problem, network, candidates[best][0], entry.rounds, 0, entry.rounds
        ).last_x
    histories = lambda key: [[float(f"{v:.6g}") for v in run["history"][key]] for run in runs]
    x = (
        jax.tree.map(lambda leaf: round_numbers(np.mean(leaf, 0)), x)
        if "diamond" in method
        else None
    )
    return {
        "numbers": {k: float(f"{v:.4g}") for k, v in candidates[best][1].items()},
        "factors": {"alpha": ALPHAS[best]},
        "diverged": [run["diverged"] for run in runs],
        "round": histories("round")[0],
        "metric": histories(entry.metric),
        "upper_loss": histories("upper_loss"),
        "x": x,
        "seconds": round(time.process_time() - started, 1),
    }


def round_numbers(values):
    """A list of numbers with four digits, all that a picture shows."""
    return [round_numbers(value) for value in values] if np.ndim(values) else float(f"{values:.4g}")


def settings():
    """Factors of a method's own numbers."""
    return [{"alpha": alpha, "beta": 1.0, "weight": 1.0, "lam": 1.0} for alpha in ALPHAS]


def run_trials(name, method, problem, network, candidates, seeds, folder):
    """The runs of each setting and seed."""
    entry = ENTRIES[name]
    about = {"problem": name, "method": method, "rounds": entry.rounds}
    requests = [
        TrialRequest(algorithm, seed, about | {"numbers": numbers, "seed": seed})
        for algorithm, numbers in candidates
        for seed in seeds
    ]
    every = entry.rounds // EVALUATIONS
    return cached_trials(
        lambda: problem,
        network,
        requests,
        entry.rounds,
        every=every,
        folder=folder / "trials",
        on_trial=lambda done: None,
    )
