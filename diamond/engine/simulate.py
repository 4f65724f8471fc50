"""Simulation of all agents in one process, as one axis of arrays in one compiled program."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any, Literal

import jax

from ..catalogue import methods_for, methods_without_convexity
from ..core.exclusions import check_combination
from ..core.sampling import Sampling
from ..core.validation import as_int
from ..hardware.compiler import optimized_compilation
from ..interface import traffic
from ..interface.round_interface import NETWORKS, Algorithm, Method
from ..metrics import stopping
from ..metrics.display import progress_display
from ..metrics.evaluations import Every, default_every
from ..metrics.measures import Measure, describe_measure, parse_measures, resolve_measure
from ..metrics.stopping import Stop
from ..network import Network
from ..network.spanning_tree import exact_mean_obstacle
from ..privacy.private_runs import check_private_run
from ..problem import Problem
from ..records.checkpoint_content import Snapshot
from ..records.run import Run
from ..records.run_inputs import check_same
from ..schedules.deferred import replace_deferred, specialize
from .backend_selection import select_backend
from .membership_run import SimulationSettings, check_epochs, simulate_epochs
from .model_sharding import ModelSharding
from .multi_device import Devices, MultiDevice
from .precision import Precision, product_precision
from .single_device import SingleDevice
from .single_driver import SingleDriver

OnDivergence = Literal["stop", "shrink"]
NAME = "run"  # label of a single run in the progress display


def simulate(
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    rounds: int,
    seed: int = 0,
    every: Every | None = None,
    sampling: Sampling = "blocks",
    on_evaluation: Callable[[dict[str, float]], None] | None = None,
    *,
    stop: Stop | None = None,
    on_divergence: OnDivergence | None = None,
    on_progress: Callable[[Snapshot], None] | None = None,
    resume: Snapshot | Run | None = None,
    devices: Devices | None = None,
    precision: Precision | None = None,
    memory: int | Literal["least"] | None = None,
    on_stage: Callable[[str], None] | None = None,
    progress: bool = True,
    measure: Measure | None = None,
    backend: SingleDevice | MultiDevice | None = None,
    shard: Literal["size"] | ModelSharding | None = None,
) -> Run:
    """Run `rounds` rounds of `algorithm` and measure at the start, every `every`, and at the end.

    The same seed gives the same trajectory for every value of `every`; all algorithms see the same
    draws.

    Args:
        problem: the problem.
        network: the network of the agents.
        algorithm: the method.
        rounds: number of rounds.
        seed: seed of the mini-batches and the start.
        every: rounds between evaluations, or a list of rounds such as [1, 3, 10, 30]. None: a
            fortieth of the rounds.
        sampling: "blocks" takes successive rows (shuffled once), which is fast; "rows" draws each
            row independently, with replacement.
        on_evaluation: called with each new entry of the history.
        stop: targets and budgets that end the run at the first evaluation that meets one:
            {"metric": 1e-3, "samples": 1e6, "bytes": 1e8, "seconds": 60}, {"accuracy": ">= 0.9"},
            on links {"network_seconds": 60}. `run.message` gives the reason.
        on_divergence: "stop" raises `diamond.Diverged` in the first round that leaves x, y or a
            measure not finite. "shrink" rolls back with a warning, also when x or y are a million
            times as large as at the start: to the last multiple of 100 rounds where they were not
            yet large, or further if that fails, with steps a quarter as large, at most eight times.
            Rolled-back rounds stay counted as costs; `resolved` has the factor. None shrinks if
            alpha is learned and stops if alpha was given. A run without curvature always rolls back
            when its objective rises above the start (`diamond.auto.loss_monitor`).
        on_progress: called with a `Snapshot`, from which `resume` continues to the same bits. If y
            is large, its arrays are valid during the call only, since rounds overwrite them.
        resume: a `Snapshot`, or an earlier run of the same problem, network, algorithm and seed, as
            in `diamond.load(folder, problem)`, to continue up to `rounds`.
        devices: devices to shard the agents over: a number, "all", "cores" (of this CPU), or a list
            (`diamond.engine.multi_device`). The trajectory is equal up to rounding; for different
            numbers of devices, 1 included, bit for bit if each device has at least two agents.
        precision: precision of products inside the losses of the rounds: "float32", "tf32", or
            "bf16" (losses see x and rows as bfloat16, and y too if it is large or the lower level
            not convex). Sums, states and measures stay in float32.
            None is JAX's default (TF32 on NVIDIA GPUs, float32 elsewhere).
        memory: bytes that the run may use per device; by default all. If all agents together need
            more, they are computed in groups, with a warning. "least": agents with a large y work
            one after another, as they do by themselves where that is faster or nothing else fits.
        on_stage: called with "compiling", then "running".
        progress: show stage, round and loss on the error output if it is a terminal or notebook.
        measure: "exact" solves the lower level at each evaluation for `metric` and its terms;
            "loss" measures only the upper loss at y*(x); "cheap" never solves the lower level and
            has local loss, consensus, norms of the sampled directions, and the problem's metrics.
            Or a list of measures and of functions of x, y and rows (`diamond.metrics.measures`).
            Costs are always counted. `stop` can use measured quantities only. None is "exact" if y
            has at most 20,000 numbers and the problem is `convex`, else "cheap".
        backend: backend of another run of the same problem, network, batch and sampling, to share
            compiled programs; replaces `devices`, `precision` and `memory`.
        shard: shard y of every agent over `devices` (by default all): "size" shards the largest
            axis of arrays above 1 MiB, a `diamond.engine.model_sharding.ModelSharding` says how.
            The trajectory is that of one device up to rounding.

    Returns:
        The run. `run.x` and `run.y` are those of the evaluation with the smallest upper loss
        (`run.best`), `run.last_x` and `run.last_y` those of the last round. If the upper loss is
        not measured, both are the same, and `run.message` says so.

    Raises:
        diamond.Diverged: the run diverged and may not roll back.
        diamond.hardware.device_memory.TooLarge: the run does not fit the memory.

    Examples:
        >>> problem = diamond.gallery.quadratic(agents=4, upper=3, lower=3, rows=20)
        >>> diamond.simulate(problem, diamond.network.ring(4), diamond.dsgd(batch=4), rounds=2)
        <Run: 2 rounds of 4 agents, ...>
    """
    check_arguments(problem, network, algorithm, rounds, every=every, sampling=sampling)
    every = default_every(rounds) if every is None else every
    warn_of_repeated_rows(problem, algorithm.batch)
    if resume is None:
        warn_of_convexity(problem, algorithm, network)
    measure = resolve_measure(measure, problem)
    seed = as_int("seed", seed)
    if on_divergence not in (None, "stop", "shrink"):
        raise ValueError(f"on_divergence = {on_divergence!r}; there are 'stop' and 'shrink'")
    can_shrink = algorithm.with_scaled_steps(1.0) is not None
    if on_divergence == "shrink" and not can_shrink:
        raise ValueError("on_divergence='shrink' needs an algorithm with with_scaled_steps(factor)")
    if on_divergence is None:
        on_divergence = "shrink" if can_shrink and algorithm.learns_alpha else "stop"
    check_private_run(algorithm, problem, rounds, rolls_back=on_divergence == "shrink")
    if isinstance(resume, Run):
        check_same(resume.inputs, network, algorithm)
        before, now = resume.config.get("measure", "exact"), describe_measure(measure)
        if before != now:
            raise ValueError(f"resume: the run has measure={before!r}, not {now!r}: give the same")
        resume = _snapshot_of(resume, seed, sampling)
    measures = parse_measures(measure, problem)
    own_metrics = (*problem.metrics, *(name for name, _ in measures.functions))
    stop = stopping.check_stop(stop, own_metrics, network.links)
    measured_targets = stopping.without_budgets(stop)
    is_private = algorithm.privacy is not None
    used = {"privacy": is_private, "stop by a measure": measured_targets}
    check_combination(used, f"stop = {stop}")
    measures.check_measured(list(stop), "stop")
    compute_is_measured = network.links is not None and network.links.compute is None
    timed_targets = {"seconds", *(["network_seconds"] if compute_is_measured else [])} & {*stop}
    if timed_targets and jax.process_count() > 1:
        raise ValueError("stop: seconds differ between processes; give samples or bytes instead")
    has_steps = specialize(algorithm, problem, network).with_scaled_steps(1.0) is not None
    shrinks = on_divergence == "shrink" and has_steps  # quasi-Newton steps never diverge
    if network.epochs:
        check_epochs(problem, network, algorithm)
        used = {"several devices": devices is not None, "sharded models": shard is not None}
        used |= {"backend": backend is not None, "resume": resume is not None}
        used |= {"changing members": True, "on_progress": on_progress is not None}
        check_combination(used, network.name)
    shows = progress and jax.process_index() == 0
    with (
        product_precision(precision),
        optimized_compilation(problem.is_large),
        progress_display([NAME], rounds, shows) as display,
    ):
        display.begin(NAME, rounds)

        def report_stage(stage: str) -> None:
            display.stage(NAME, stage)
            if on_stage:
                on_stage(stage)

        report_stage("compiling")
        if network.epochs:
            settings = SimulationSettings(
                seed, every, sampling, measures, stop, on_evaluation, precision, memory, shrinks
            )
            show = lambda entries: display.progress(NAME, entries)
            run = simulate_epochs(
                problem, network, algorithm, rounds, settings=settings, on_entries=show
            )
            return _configured(run, rounds, every, stop, measure=measure)
        inputs = problem, network, algorithm.batch, sampling
        chosen_backend = backend or select_backend(
            *inputs, devices=devices, precision=precision, memory=memory, shard=shard
        )
        driver = SingleDriver(
            problem, network, algorithm, seed, sampling, chosen_backend, measures, shrinks, resume
        )
        report_stage("running")

        def evaluate() -> None:
            driver.evaluate(on_evaluation, rounds)
            display.progress(NAME, driver.recorder.entries)
            if on_progress:
                on_progress(driver.snapshot())

        is_single_process = jax.process_count() == 1  # of several, only the first has the history
        if not resume or (is_single_process and not driver.recorder.has_measured(driver.t)):
            evaluate()
        if not resume or is_single_process:
            driver.check_measures(last=driver.t == rounds)
        driver.drive(rounds, every, lambda entry: stopping.stop_reason(stop, entry), evaluate)
        return _configured(driver.run(), rounds, every, stop, measure=measure)


def _configured(run: Run, rounds: int, every: Every, stop: Stop, *, measure: Measure) -> Run:
    """Return the run with the requested settings, and the reason of an early end."""
    config = run.config | {"rounds": rounds, "every": every, "stop": stop}
    if (what := describe_measure(measure)) != "exact":
        config |= {"measure": what}
    last = {name: values[-1] for name, values in run.history.items()}
    reason = stopping.stop_reason(stop, last) if run.rounds < rounds else ""
    return replace(run, message="; ".join(filter(None, [reason, run.message])), config=config)


def _snapshot_of(run: Run, seed: int, sampling: Sampling) -> Snapshot:
    """Return the snapshot of a run to continue with this seed and sampling."""
    if run.snapshot is None:
        raise ValueError(
            "resume: this run has no snapshot to continue from: it diverged, was made by several "
            "processes or sites, or was saved by an earlier version; run it from the start"
        )
    if (run.seed, run.sampling) != (seed, sampling):
        raise ValueError(
            f"resume: the run has seed={run.seed} and sampling={run.sampling!r}, not seed={seed} "
            f"and sampling={sampling!r}: give the same"
        )
    return run.snapshot


def check_arguments(
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    rounds: int,
    *,
    every: Every | None,
    sampling: Sampling,
) -> None:
    """Reject arguments that are invalid or do not fit together."""
    check_setting(problem, network, rounds, every, sampling=sampling)
    check_algorithm(problem, network, algorithm)
    check_private_run(algorithm, problem, rounds)


def check_setting(
    problem: Problem, network: Network, rounds: int, every: Every | None, *, sampling: Sampling
) -> None:
    """Check the arguments that do not depend on the algorithm."""
    if not isinstance(problem, Problem):
        inner = getattr(problem, "problem", None)
        remedy = "give its .problem" if isinstance(inner, Problem) else "give a diamond.Problem"
        raise TypeError(f"the problem is of type {type(problem).__name__}: {remedy}")
    if not isinstance(network, Network):
        raise TypeError(
            f"the network is of type {type(network).__name__}: give one such as "
            f"diamond.network.ring({problem.agents})"
        )
    as_int("rounds", rounds)
    intervals = every if isinstance(every, Sequence) and not isinstance(every, str) else [every]
    smallest = min((as_int("every", value) for value in intervals if value is not None), default=1)
    if problem.agents != network.agents:
        raise ValueError(
            f"the problem has {problem.agents} agents, the network {network.agents}; make a "
            f"network of {problem.agents}"
        )
    if rounds < 0 or smallest < 1:
        raise ValueError(f"rounds = {rounds} must be 0 or more, every = {every} at least 1")
    if sampling not in ("blocks", "rows"):
        raise ValueError(f"no sampling {sampling!r}; there are 'blocks' and 'rows'")


def check_algorithm(problem: Problem, network: Network, algorithm: Algorithm) -> None:
    """Reject an algorithm that does not fit the problem or the network."""
    if not isinstance(algorithm, Method):
        given: Any = algorithm
        is_named = isinstance(given, str | type | FunctionType)
        name = given if isinstance(given, str) else given.__name__ if is_named else "diamond"
        call = "solve() of diamond.algorithms.solve" if name == "solve" else f"diamond.{name}()"
        raise TypeError(
            f"the algorithm is {algorithm!r}: give what its function returns, as in {call}, with "
            f"the brackets, or an object of a class of your own that inherits from "
            f"diamond.interface.Method"
        )
    if as_int("batch", algorithm.batch) < 1:
        raise ValueError(f"batch = {algorithm.batch}: a mini-batch needs at least one row")
    check_lower_level(problem, algorithm, network)
    check_network_kind(network, algorithm, problem)
    traffic.check_masked_sums(network, specialize(algorithm, problem, network))
    if problem.streams or exact_mean_obstacle(network):  # tracing finds methods with all rows
        outline = replace_deferred(specialize(algorithm, problem, network), lambda open: 1)
        objectives = problem.objectives(algorithm.batch)
        shapes = traffic.message_shapes(outline, objectives, *problem.start(0))
        traffic.check_robust_mixing(network, outline, shapes)
        traffic.check_exact_means(network, shapes, {})


def warn_of_repeated_rows(problem: Problem, batch: int) -> None:
    """Warn of a batch larger than every agent's rows: correct, but it repeats rows."""
    parts = [part for part in problem.rows if part != "test" and part not in problem.streams]
    most = max((int(problem.counts(part).max()) for part in parts), default=batch)
    if batch > most:
        warnings.warn(
            f"batch = {batch}, but no agent has more than {most} training or validation rows: "
            f"every batch repeats rows, and computes them again; give batch = {most} or less",
            RuntimeWarning,
            stacklevel=3,
        )


def warn_of_convexity(problem: Problem, algorithm: Algorithm, network: Network) -> None:
    """Warn of a method that needs strong convexity, on a problem that has none."""
    if problem.convex or problem.lower_level == "none":
        return
    if specialize(algorithm, problem, network).needs_strong_convexity:
        suitable = methods_without_convexity(problem.lower_level)
        warnings.warn(
            f"the lower level is not strongly convex (convex=False), and this method needs strong "
            f"convexity: where it ends may be no solution; methods that do not need it: "
            f"{', '.join(suitable)}",
            RuntimeWarning,
            stacklevel=3,
        )


def check_lower_level(
    problem: Problem, algorithm: Algorithm, network: Network | None = None
) -> None:
    """Reject an algorithm for another kind of lower level, or one that cannot use a prox of x."""
    if problem.lower_level not in algorithm.lower_levels:
        kind = problem.lower_level
        description = "no lower level" if kind == "none" else f"a {kind} lower level"
        raise ValueError(
            f"the problem has {description}, which this algorithm does not solve (it solves: "
            f"{', '.join(algorithm.lower_levels)}); those that do: {', '.join(methods_for(kind))}"
        )
    specialize(algorithm, problem, network)


def check_network_kind(network: Network, algorithm: Algorithm, problem: Problem) -> None:
    """Reject an algorithm that would converge to a different point on this network."""
    most_general = specialize(algorithm, problem, network).networks
    if NETWORKS.index(network.kind) <= NETWORKS.index(most_general):
        return
    used = {f"a method for {most_general} weights": True, f"{network.kind} weights": True}
    suitable = ", ".join(methods_for(problem.lower_level, network.kind))
    check_combination(used, network.name, remedy=f"those that do not: {suitable}")
