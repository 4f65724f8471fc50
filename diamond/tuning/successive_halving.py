"""The tuner: successive halving over candidates (Jamieson and Talwalkar, 2016).

Callers differ in how they make candidates, how they run trials and what they write:
`diamond tune FILE.toml` (`experiment_tuning`), the benchmark and the grids of the paper.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

Candidate = TypeVar("Candidate")
Trial = dict[str, Any]
# Runs candidates from seeds for a number of rounds; returns the trials of each candidate.
RunTrials = Callable[[Sequence[Candidate], Sequence[int], int], list[list[Trial]]]


class Rung(NamedTuple):
    """One rung of successive halving; a plain grid is a single rung that keeps everything."""

    rounds: int  # of each trial
    seeds: int  # trials of each candidate: the first seeds of the tuning
    keep: float = 1.0  # share of the candidates of the rung before, best first


@dataclass(eq=False)
class Result(Generic[Candidate]):
    """A candidate with the trials of the last rung it reached."""

    candidate: Candidate
    losses: list[float] = field(default_factory=list)  # one a rung; infinite: a trial diverged
    trials: list[Trial] = field(default_factory=list)

    @property
    def loss(self) -> float:
        """Return the loss on the last rung that the candidate reached."""
        return self.losses[-1]


def tune(
    candidates: Sequence[Candidate],
    run_trials: RunTrials[Candidate],
    seeds: Sequence[int],
    budget: Sequence[Rung],
    loss: Callable[[Trial], float],
) -> list[Result[Candidate]]:
    """Try every candidate on the first rung, and the best of each rung on the next one.

    The loss of a candidate on a rung is the mean over its trials; a trial that diverged or whose
    loss is not finite makes it infinite. If all candidates that a rung keeps diverge there, the
    next best ones are tried. Trials that `run_trials` caches make an interrupted tuning resume.

    Args:
        candidates: What is compared.
        run_trials: Runs some candidates from some seeds for a number of rounds.
        seeds: Seeds of the trials.
        budget: The rungs, shortest first.
        loss: The loss of one trial.

    Returns:
        A result for every candidate, in the order of `candidates`.
    """
    results = [Result(candidate) for candidate in candidates]
    ranking = results
    for rung in budget:
        size, reached = math.ceil(rung.keep * len(ranking)), []
        for first in range(0, len(ranking), size):
            group = ranking[first : first + size]
            group_candidates = [result.candidate for result in group]
            outcomes = run_trials(group_candidates, seeds[: rung.seeds], rung.rounds)
            for result, trials in zip(group, outcomes, strict=True):
                result.trials = trials
                result.losses.append(mean_loss(trials, loss))
            reached += group
            if any(math.isfinite(result.loss) for result in group):
                break
        ranking = sorted(reached, key=lambda result: result.loss)
    return results


def best_result(results: Sequence[Result[Candidate]]) -> Result[Candidate]:
    """Return the candidate with the smallest loss among those that reached the last rung."""
    return min(results, key=lambda result: (-len(result.losses), result.loss))


def split_by_candidate(trials: list[Trial], seeds: int) -> list[list[Trial]]:
    """Split trials, ordered by candidate and then seed, into one list per candidate."""
    return [trials[i : i + seeds] for i in range(0, len(trials), seeds)]


def mean_loss(trials: Sequence[Trial], loss: Callable[[Trial], float]) -> float:
    """Return the mean over `trials`, infinite if any of them diverged."""
    if any(trial["diverged"] is not None for trial in trials):
        return math.inf
    mean = sum(map(loss, trials)) / len(trials)
    return mean if math.isfinite(mean) else math.inf
