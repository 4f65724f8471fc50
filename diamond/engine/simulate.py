"""All agents in one process, as one axis of every array, in one compiled program."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import jax

from ..catalogue import solving
from ..core.sampling import Sampling
from ..core.whole_numbers import whole
from ..metrics import stopping
from ..metrics.display import displayed
from ..metrics.evaluations import Every
from ..metrics.measures import Measure, describe_measure, parse_measures
from ..metrics.stopping import Stop
from ..network import Network
from ..numbers.learned import learned_names
from ..numbers.open_numbers import suited, swap
from ..problem import Problem
from ..rounds.algorithm import NETWORKS, Algorithm
from ..rounds.traffic import messages
from ..runs.inputs import check_same
from ..runs.run import Run
from ..runs.snapshot import Snapshot
from .devices import Devices, Spmd, placed
from .driver import SingleDriver
from .one_device import OneDevice
from .precision import Precision, products

OnDivergence = Literal["stop", "shrink"]
NAME = "run"  # of a run that is alone in the display


def simulate(
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    rounds: int,
    seed: int = 0,
    every: Every = 100,
    sampling: Sampling = "blocks",
    on_evaluation: Callable[[dict[str, float]], None] | None = None,
    *,
    stop: Stop | None = None,
    on_divergence: OnDivergence | None = None,
    on_progress: Callable[[Snapshot], None] | None = None,
    resume: Snapshot | Run | None = None,
    devices: Devices | None = None,
    precision: Precision | None = None,
    memory: int | None = None,
    on_stage: Callable[[str], None] | None = None,
    progress: bool = True,
    measure: Measure = "exact",
    backend: OneDevice | Spmd | None = None,
) -> Run:
    """`rounds` rounds of `algorithm`, measured at the start, after every `every`, and at the end.

    `every` may also be the rounds to measure in, [1, 3, 10, 30]. The same seed gives the same
    trajectory, whatever `every` is; all algorithms see the same draws. `sampling`: "blocks" takes
    successive rows (shuffled once), which is fast; "rows" draws each row on its own, with
    replacement. `on_evaluation` is handed each entry of the history as it is made, `on_progress`
    a `Snapshot` of the run: given back as `resume`, the run continues from there and ends in the
    same bits. `resume` may also be an earlier run of the same problem, network, algorithm and seed,
    as in `resume=diamond.load(folder, problem)`: it is continued up to `rounds`. `on_stage` is told
    what goes on: "compiling", then "running". `progress` shows the same, and then the round and the
    loss, on the error output if that is a terminal or a notebook; False shows nothing.

    `stop` ends the run at the first evaluation that reaches a target or has spent a budget:
    {"metric": 1e-3, "samples": 1e6, "bytes": 1e8, "seconds": 60}, {"accuracy": ">= 0.9"}, on
    links {"network_seconds": 60}; `message` of the run then says which. `run.best` is the point of
    the smallest upper loss.

    `on_divergence`: in the first round that leaves x or y not finite, and where a measure is not
    finite, "stop" raises `diamond.Diverged`. "shrink", also where they are a million times the
    start, goes back to the last multiple of 100 rounds where they were not yet large (further, if
    that does not help) and on with steps a quarter as large, with a warning, eight times at most.
    What the rounds gone back on cost stays counted; `resolved` says by how much steps were shrunk.
    None shrinks where alpha is learned, and stops where alpha was given. Whatever it is, a run that
    learns alpha rolls back in the same way where its objective has risen above the start
    (`diamond.auto.watch`).

    `devices` cuts the agents over several of JAX's devices: so many of them, "all", "cores" (of
    this machine's processor), or a list (`diamond.engine.devices`). The trajectory is the same to
    rounding; between numbers of devices, `devices=1` among them, it is the same bit for bit as long
    as each has two agents or more. `precision`, of the products inside the losses of the rounds:
    "float32" in full, "tf32", or "bf16", where losses see x and the rows as bfloat16; sums, states
    and measures stay in float32. None leaves it to JAX (TF32 on NVIDIA GPUs, full elsewhere).

    `measure`: "exact" solves the lower level at each evaluation, for `metric` and its terms;
    "loss" measures the upper loss at y*(x) only; "cheap" never solves the lower level: local loss,
    consensus, norms of the sampled directions, and the problem's metrics. Or a list of measures,
    and of functions of x, y and rows (`diamond.metrics.measures`). Costs are always counted. What
    is not measured is absent from the history, and cannot be a target of `stop`.

    `backend`: of another run of the same problem, network, batch and sampling, to share compiled
    programs; in place of `devices`, `precision` and `memory`.

    `memory`: bytes that the run may have on each device, all there is by default. Agents are taken
    in groups where all at once need more, with a warning; what still does not fit is refused before
    the first round, by `diamond.machine.memory.TooLarge`.
    """
    check(problem, network, algorithm, rounds, every, sampling)
    warn_of_repeated_rows(problem, algorithm.batch)
    seed = whole("seed", seed)
    if on_divergence not in (None, "stop", "shrink"):
        raise ValueError(f"on_divergence = {on_divergence!r}; there are 'stop' and 'shrink'")
    can = hasattr(algorithm, "shrunk")
    if on_divergence == "shrink" and not can:
        raise ValueError("on_divergence='shrink' needs an algorithm with shrunk(factor)")
    if on_divergence is None:
        finds_alpha = "alpha" in learned_names(algorithm) or hasattr(algorithm, "learned")
        on_divergence = "shrink" if can and finds_alpha else "stop"
    if isinstance(resume, Run):
        check_same(resume.inputs, network, algorithm)
        before, now = resume.config.get("measure", "exact"), describe_measure(measure)
        if before != now:
            raise ValueError(f"resume: the run has measure={before!r}, not {now!r}: give the same")
        resume = _snapshot_of(resume, seed, sampling)
    measures = parse_measures(measure, problem)
    own = (*problem.metrics, *(name for name, _ in measures.functions))
    stop = stopping.checked(stop, own, network.links)
    measures.refuse_unmeasured(list(stop), "stop")
    measured = network.links is not None and network.links.compute is None
    timed = {"seconds", *(["network_seconds"] if measured else [])} & {*stop}
    if timed and jax.process_count() > 1:
        raise ValueError("stop: seconds differ between processes; give samples or bytes instead")
    shrinks = on_divergence == "shrink"
    shows = progress and jax.process_index() == 0
    with products(precision), displayed([NAME], rounds, shows) as display:
        display.begin(NAME, rounds)

        def tell(stage: str) -> None:
            display.stage(NAME, stage)
            if on_stage:
                on_stage(stage)

        tell("compiling")
        place = backend or placed(
            problem, network, algorithm.batch, sampling, devices, precision, memory
        )
        given = problem, network, algorithm, seed, sampling, place, measures
        run = SingleDriver(*given, shrinks, resume)
        tell("running")

        def evaluate() -> None:
            run.evaluate(on_evaluation, rounds)
            display.progress(NAME, run.recorder.entries)
            if on_progress:
                on_progress(run.snapshot())

        alone = jax.process_count() == 1  # of several, only the first has the history
        if not resume or (alone and not run.recorder.has_measured(run.t)):
            evaluate()
        if not resume or alone:
            run.check_measures(last=run.t == rounds)
        run.drive(rounds, every, lambda entry: stopping.reached(stop, entry), evaluate)
        made = run.run()
        config = made.config | {"rounds": rounds, "every": every, "stop": stop}
        if (what := describe_measure(measure)) != "exact":
            config |= {"measure": what}
        why = stopping.reached(stop, run.recorder.entries[-1]) if run.t < rounds else ""
        return replace(made, message=why, config=config)


def _snapshot_of(run: Run, seed: int, sampling: Sampling) -> Snapshot:
    """The snapshot of a run that is to be continued with this seed and sampling."""
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


def check(
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    rounds: int,
    every: Every,
    sampling: Sampling,
) -> None:
    """Refuse what is not what it must be, or does not fit together."""
    check_setting(problem, network, rounds, every, sampling)
    check_algorithm(problem, network, algorithm)


def check_setting(
    problem: Problem, network: Network, rounds: int, every: Every, sampling: Sampling
) -> None:
    """The part of `check` that all algorithms have in common."""
    if not isinstance(problem, Problem):
        inner = getattr(problem, "problem", None)
        remedy = "give its .problem" if isinstance(inner, Problem) else "give a diamond.Problem"
        raise TypeError(f"the problem is of type {type(problem).__name__}: {remedy}")
    if not isinstance(network, Network):
        raise TypeError(
            f"the network is of type {type(network).__name__}: give one such as "
            f"diamond.network.ring({problem.agents})"
        )
    whole("rounds", rounds)
    often = every if isinstance(every, Sequence) and not isinstance(every, str) else [every]
    least = min((whole("every", value) for value in often), default=1)
    if problem.agents != network.agents:
        raise ValueError(
            f"the problem has {problem.agents} agents, the network {network.agents}; make a "
            f"network of {problem.agents}"
        )
    if rounds < 0 or least < 1:
        raise ValueError(f"rounds = {rounds} must be 0 or more, every = {every} at least 1")
    if sampling not in ("blocks", "rows"):
        raise ValueError(f"no sampling {sampling!r}; there are 'blocks' and 'rows'")


def check_algorithm(problem: Problem, network: Network, algorithm: Algorithm) -> None:
    """Refuse an algorithm that does not fit the problem or the network."""
    if isinstance(algorithm, str | type) or not hasattr(algorithm, "batch"):
        name = (
            algorithm if isinstance(algorithm, str) else getattr(algorithm, "__name__", "diamond")
        )
        raise TypeError(
            f"the algorithm is {algorithm!r}: give what its function returns, as in "
            f"diamond.{name}(), with the brackets"
        )
    if whole("batch", algorithm.batch) < 1:
        raise ValueError(f"batch = {algorithm.batch}: a mini-batch needs at least one row")
    fits(problem, algorithm)
    suits(network, algorithm, problem)
    if problem.streams:  # traced, for a method that asks for all rows
        outline = swap(suited(algorithm, problem), lambda open: 1)
        messages(outline, problem.objectives(algorithm.batch), *problem.start(0))


def warn_of_repeated_rows(problem: Problem, batch: int) -> None:
    """Warn of a batch that no agent has rows for: correct, but it computes rows again."""
    parts = [part for part in problem.rows if part != "test" and part not in problem.streams]
    most = max((int(problem.counts(part).max()) for part in parts), default=batch)
    if batch > most:
        warnings.warn(
            f"batch = {batch}, but no agent has more than {most} training or validation rows: "
            f"every batch repeats rows, and computes them again; give batch = {most} or less",
            RuntimeWarning,
            stacklevel=3,
        )


def fits(problem: Problem, algorithm: Algorithm) -> None:
    """Refuse an algorithm for another kind of lower level, or that cannot take the prox of x."""
    if problem.lower_level not in algorithm.solves:
        kind = problem.lower_level
        has = "no lower level" if kind == "none" else f"a {kind} lower level"
        raise ValueError(
            f"the problem has {has}, which this algorithm does not solve (it solves: "
            f"{', '.join(algorithm.solves)}); those that do: {', '.join(solving(kind))}"
        )
    suited(algorithm, problem)


def suits(network: Network, algorithm: Algorithm, problem: Problem) -> None:
    """Refuse an algorithm that would end elsewhere on such a network."""
    right = getattr(suited(algorithm, problem), "networks", "symmetric")
    if NETWORKS.index(network.kind) <= NETWORKS.index(right):
        return
    needs = "symmetric weights that stay the same" if right == "symmetric" else "balanced weights"
    raise ValueError(
        f"{network.name} is {network.kind}, and this algorithm needs {needs}; those that do not: "
        f"{', '.join(solving(problem.lower_level, network.kind))}"
    )
