"""Runs of a comparison: every algorithm from every seed on one problem and network."""

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import jax

from ..catalogue import maker
from ..core.exclusions import check_combination
from ..core.sampling import Sampling
from ..core.validation import as_int
from ..engine.many_runs import simulate_seeds
from ..engine.simulate import check_algorithm, check_setting, simulate
from ..interface.round_interface import Algorithm
from ..metrics import stopping
from ..metrics.display import progress_display
from ..metrics.divergence_error import Diverged
from ..metrics.evaluations import default_every
from ..metrics.measures import Measure, parse_measures
from ..metrics.stopping import Stop
from ..network import Network
from ..problem import Problem
from ..records.run import Run
from ..records.run_inputs import check_same
from .comparison import Comparison, run_name


def compare(
    problem: Problem,
    network: Network,
    algorithms: Mapping[str, Algorithm] | Sequence[str],
    rounds: int,
    seeds: int | Sequence[int] = 1,
    every: int | None = None,
    sampling: Sampling = "blocks",
    on_evaluation: Callable[[str, int, dict[str, float]], None] | None = None,
    batched: bool | None = None,
    *,
    stop: Stop | None = None,
    resume: Comparison | None = None,
    progress: bool = True,
    measure: Measure | None = None,
) -> Comparison:
    """Run every algorithm from every seed on the same problem, network and samples.

    A run that diverges or fails does not stop the others: a warning and `failed` give the reason.

    Args:
        problem: Problem to solve.
        network: Network of the agents.
        algorithms: Algorithms by label, {"mine": diamond.diamond(alpha=0.3)}, or names of
            algorithms with their defaults, ["diamond", "gt_sgd"].
        rounds: Number of rounds of each run.
        seeds: Number of seeds, or the seeds themselves.
        every: Rounds between evaluations; None: a fortieth of the rounds.
        sampling: As in `simulate`.
        on_evaluation: Called with (label, seed, entry of the history); if `batched`, at the end.
        batched: Run the seeds of an algorithm as one program, with results equal up to rounding. By
            default on an accelerator, which one small run leaves idle, unless the runs choose K.
        stop: Target or budget that ends each run, as in `simulate`; see `costs_to_target`.
        resume: Earlier comparison, as in `resume=diamond.load(folder, problem)`. Its runs continue
            up to `rounds`, except those that diverged; new labels and seeds start at round 0.
        progress: Show all runs on stderr if it is a terminal or a notebook.
        measure: Measures of every run, as in `simulate`.

    Raises:
        Exception: The error of the first run, if all runs fail.

    Examples:
        >>> problem = diamond.gallery.quadratic(agents=4, upper=3, lower=3, rows=20)
        >>> methods = {"D-SGD": diamond.dsgd(batch=4), "GT-SGD": diamond.gt_sgd(batch=4)}
        >>> len(diamond.compare(problem, diamond.network.ring(4), methods, rounds=2, seeds=2).runs)
        4
    """
    by_label = dict(algorithms) if isinstance(algorithms, Mapping) else _build_by_name(algorithms)
    if not by_label:
        raise ValueError("there is no algorithm to compare; name some, as in ['diamond', 'dsgd']")
    if isinstance(seeds, str) or not isinstance(seeds, Iterable):
        seeds = range(as_int("seeds", seeds, 1))
    seed_list = [as_int("seed", seed) for seed in seeds]
    check_setting(problem, network, rounds, every, sampling=sampling)
    every = default_every(rounds) if every is None else every
    for label, algorithm in by_label.items():
        with _label_errors(label):
            check_algorithm(problem, network, algorithm)
    measures = parse_measures(measure, problem)
    metric_names = (*problem.metrics, *(name for name, _ in measures.functions))
    stop = stopping.check_stop(stop, metric_names, network.links)
    measures.check_measured(list(stop), "stop")
    check_combination({"batched=True": batched, "stop": stop, "resume": resume}, "compare")
    earlier_runs = _resumable(resume, by_label, network)
    runs: dict[tuple[str, int], Run] = {}
    diverged: dict[tuple[str, int], str] = {}
    wall_seconds: dict[tuple[str, int], float] = {}
    errors: dict[tuple[str, int], Exception] = {}
    names = [run_name(label, seed) for label in by_label for seed in seed_list]
    with progress_display(names, rounds, progress) as display:
        for label, algorithm in by_label.items():
            started = time.monotonic()
            run_by_seed: dict[int, Run | None] = {}
            # Runs of one program all end in the same round.
            may_batch = batched is None and not stop and not resume
            is_faster = jax.default_backend() != "cpu" and len(seed_list) > 1
            if batched or (may_batch and is_faster):
                for seed in seed_list:
                    display.begin(run_name(label, seed), rounds)
                    display.stage(run_name(label, seed), "all seeds as one program")
                try:
                    inputs = problem, network, algorithm, rounds, every, sampling, measure
                    run_by_seed = dict(zip(seed_list, simulate_seeds(seed_list, *inputs)))
                except Exception as error:
                    errors |= {(label, seed): error for seed in seed_list}
                    for seed in seed_list:
                        display.end(run_name(label, seed), {"status": "failed"})
                    continue
            shared_seconds = (time.monotonic() - started) / max(len(seed_list), 1)
            for seed in seed_list:
                started = time.monotonic()
                name = run_name(label, seed)
                display.begin(name, rounds)
                callback = _Callback(on_evaluation, label, seed, partial(display.progress, name))
                earlier_run = earlier_runs.get((label, seed))
                is_over = earlier_run is not None and (
                    earlier_run.status == "diverged" or earlier_run.rounds >= rounds
                )
                run = earlier_run if is_over else run_by_seed.get(seed)
                if run is None:  # a single run explains its divergence
                    try:
                        run = simulate(
                            problem,
                            network,
                            algorithm,
                            rounds,
                            seed,
                            every,
                            sampling,
                            callback,
                            stop=stop,
                            resume=earlier_run,
                            on_stage=partial(display.stage, name),
                            measure=measure,
                        )
                    except Diverged as error:
                        run, diverged[label, seed] = error.run, str(error)
                    except Exception as error:
                        if error is callback.error:
                            raise
                        errors[label, seed] = error
                        display.end(name, {"status": "failed"})
                        continue
                elif run is earlier_run:
                    diverged |= {(label, seed): run.message} if run.status == "diverged" else {}
                else:
                    for i in range(len(run.history["round"])):
                        callback({key: values[i].item() for key, values in run.history.items()})
                runs[label, seed] = run
                status = "diverged" if (label, seed) in diverged else run.status
                display.end(name, {"status": status})
                seconds = time.monotonic() - started + shared_seconds
                seconds += resume.wall_seconds.get((label, seed), 0.0) if resume else 0.0
                wall_seconds[label, seed] = seconds
    if errors and not runs:
        raise next(iter(errors.values()))
    failed = {run_key: f"{type(error).__name__}: {error}" for run_key, error in errors.items()}
    for (label, seed), reason in failed.items():
        warnings.warn(f"{label}, seed {seed}, failed: {reason}", RuntimeWarning, stacklevel=2)
    return Comparison(
        problem, network, by_label, runs, diverged, wall_seconds, rounds, every, stop, failed
    )


class _Callback:
    """Wrapper of `on_evaluation` for one run; keeps its errors apart from those of the run."""

    def __init__(
        self,
        function: Callable[..., None] | None,
        label: str,
        seed: int,
        show: Callable[[list[dict[str, float]]], None],
    ):
        self.function, self.run_key, self.show = function, (label, seed), show
        self.entries: list[dict[str, float]] = []
        self.error: Exception | None = None

    def __call__(self, entry: dict[str, float]) -> None:
        self.entries.append(entry)
        self.show(self.entries)
        try:
            if self.function:
                self.function(*self.run_key, entry)
        except Exception as error:
            self.error = error
            raise


def _resumable(
    resume: Comparison | None, algorithms: Mapping[str, Algorithm], network: Network
) -> dict[tuple[str, int], Run]:
    """Return the runs to continue; refuse labels without an algorithm and runs of other inputs."""
    runs = resume.runs if resume else {}
    if unknown := {label for label, _ in runs} - {*algorithms}:
        labels = ", ".join(sorted(unknown))
        raise ValueError(f"resume: no algorithm is labelled {labels}; give it the label it had")
    for (label, _), run in runs.items():
        with _label_errors(label):
            check_same(run.inputs, network, algorithms[label])
    return runs


@contextmanager
def _label_errors(label: str) -> Iterator[None]:
    """Add the label to an error about its algorithm."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{label}: {error}") from error


def _build_by_name(names: Sequence[str]) -> dict[str, Algorithm]:
    """Build algorithms with their defaults."""
    names = [names] if isinstance(names, str) else names
    canonical = [name.lower().replace("-", "_") for name in names]
    for name, count in Counter(canonical).items():
        if count > 1:
            raise ValueError(
                f"{name!r} is named {count} times; name it once, or give labels to its variants, "
                f"as in {{'small': diamond.{name}(batch=8), 'large': diamond.{name}(batch=64)}}"
            )
    return {name: maker(canonical_name)() for name, canonical_name in zip(names, canonical)}
