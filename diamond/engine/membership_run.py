"""Simulation of a run whose members change: one driver per epoch, one history.

Every epoch of `network.changing({0: ..., 100: ...}, members=...)` has its own members, network and
compiled program. `interface.member_changes` says how an epoch begins. An agent draws by its number
among all agents, so the sites of such a run, each alone, draw the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..core import cost_counter, host_transfer
from ..core.exclusions import check_combination
from ..core.sampling import Sampling
from ..interface.member_changes import (
    check_member_changes,
    common_point,
    mean_over_staying,
    start_between,
)
from ..interface.round_interface import Algorithm, Method
from ..metrics import stopping
from ..metrics.evaluations import Every
from ..metrics.measures import Measures
from ..metrics.stopping import Stop
from ..network import Network
from ..network.membership_epochs import Epoch, epoch_ends
from ..network.mixing.exact_mean import mean_tree
from ..privacy.private_runs import with_simulated_secrets
from ..problem import Problem
from ..records.run import Run
from ..records.run_inputs import describe
from .recorder import OnEvaluation
from .round_program import Progress
from .single_device import SingleDevice
from .single_driver import SingleDriver


class SimulationSettings(NamedTuple):
    """Arguments of `simulate` that every epoch uses."""

    seed: int
    every: Every
    sampling: Sampling
    measures: Measures
    stop: Stop
    on_evaluation: OnEvaluation | None
    precision: Any
    memory: Any
    shrinks: bool


class Everyone(NamedTuple):
    """State and counters of all agents, members or not: those that left keep their last ones."""

    state: Any
    spent: np.ndarray
    uses: dict[tuple[int, int], int]  # bytes of rounds over each edge
    messages: int = 0
    bytes: int = 0
    seconds: float = 0.0
    compile_seconds: float = 0.0


def check_epochs(problem: Problem, network: Network, algorithm: Algorithm) -> None:
    """Refuse runs that cannot go on with other members."""
    check_member_changes(problem, algorithm)
    absent = {*range(problem.agents)} - {*network.epochs[0].members}
    is_elsewhere = any(problem.rows[part]._sources.keys() & absent for part in problem.rows)
    used = {"changing members": True, "rows in other processes": is_elsewhere}
    check_combination(used, network.name)


def simulate_epochs(
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    rounds: int,
    *,
    settings: SimulationSettings,
    on_entries: Callable[[list[dict[str, float]]], None] = lambda entries: None,
) -> Run:
    """Run all epochs one after another; see `simulate` for the arguments.

    The run has x, y, costs and traffic of all agents; those of agents that left are their last.
    The best point is that of the last epoch, since the objective is the mean over the members.
    """
    entries: list[dict[str, float]] = []
    per_agent: list[dict[str, np.ndarray]] = []
    everyone: Everyone | None = None
    before: Epoch | None = None
    for epoch, end in epoch_ends(network, rounds):
        members, seed = list(epoch.members), settings.seed
        part = problem.select_agents(members)
        inputs = part, epoch.network, algorithm.batch, settings.sampling
        backend = SingleDevice(*inputs, settings.precision, settings.memory, epoch)
        driver = SingleDriver(
            part,
            epoch.network,
            with_simulated_secrets(algorithm, members),
            seed,
            settings.sampling,
            backend,
            settings.measures,
            settings.shrinks,
        )
        if everyone is None:
            start = host_transfer.broadcast_to_agents(problem.start(seed), problem.agents)
            state = jax.vmap(driver.policy.algorithm.init)(*start)
            counters = cost_counter.agent_counters(cost_counter.Cost(), problem.agents)
            everyone = Everyone(state, counters, dict.fromkeys(network.edges, 0))
        else:
            assert before is not None
            _begin_epoch(driver, backend, settings, epoch, before=before, everyone=everyone)
            driver.recorder.entries = entries
        recorder = driver.recorder

        def evaluate(driver: SingleDriver = driver) -> None:
            driver.evaluate(settings.on_evaluation, rounds)
            on_entries(driver.recorder.entries)

        if not entries:
            evaluate()
            driver.check_measures(last=end == 0)
        is_reached = lambda entry: stopping.stop_reason(settings.stop, entry)
        driver.drive(end, settings.every, is_reached, evaluate)
        entries = recorder.entries
        per_agent += [_spread(values, members, problem.agents) for values in recorder.per_agent]
        run = recorder.run(driver.progress)
        everyone = _after_epoch(everyone, driver, run, epoch)
        before = epoch
        if is_reached(entries[-1]):
            break
    assert everyone is not None
    return _whole_run(
        run, problem, network, algorithm, everyone=everyone, per_agent=per_agent, members=members
    )


def _begin_epoch(
    driver: SingleDriver,
    backend: SingleDevice,
    settings: SimulationSettings,
    epoch: Epoch,
    *,
    before: Epoch,
    everyone: Everyone,
) -> None:
    """Set the driver of an epoch to its first round; see `interface.member_changes`."""
    algorithm: Method = driver.policy.algorithm  # with `restart_trackers`: `check_member_changes`
    members, fresh, recorder = np.asarray(epoch.members), driver.progress, driver.recorder
    state = jax.tree.map(lambda a: a[members], everyone.state)
    stays = [agent in before.members for agent in epoch.members]
    traffic, join_bytes = recorder.inputs.traffic, 0
    if traffic.means:
        state, join_bytes = _at_exact_mean(driver.problem, epoch, state, stays)
    state = jax.vmap(algorithm.restart_trackers)(state)
    for place, agent in enumerate(epoch.members):
        if stays[place] or traffic.means:
            continue
        sources = [j for j in epoch.neighbours(agent) if j in before.members]
        sources = [] if epoch.network.mask_limit is not None else sources
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(everyone.state.x)]
        x, y = jax.tree.map(lambda a, place=place: a[place], (fresh.state.x, fresh.state.y))
        points = [[leaf[j] for leaf in leaves] for j in sources]
        begun = algorithm.init(start_between(points, x, epoch.network), y)
        state = jax.tree.map(lambda a, own, place=place: a.at[place].set(own), state, begun)
        join_bytes += len(sources) * sum(leaf[0].nbytes for leaf in leaves)
    shapes = [jax.tree.map(jnp.shape, tree) for tree in (state, fresh.state)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"round {epoch.from_round}: the state of this method depends on members")
    earlier = np.where(np.reshape(stays, (-1, 1, 1)), everyone.spent[members], 0)
    spent = cost_counter.add(fresh.spent, jnp.asarray(earlier, jnp.uint32))
    t = host_transfer.to_device(epoch.from_round, np.int32)
    progress = backend.scatter_progress(Progress(t, state, spent, fresh.link_states))
    driver.begin(progress, settings.shrinks)
    driver.seconds, driver.compile_seconds = everyone.seconds, everyone.compile_seconds
    counted = traffic.count_bytes(epoch.network, epoch.from_round)
    recorder.earlier_bytes = everyone.bytes + join_bytes - counted


def _at_exact_mean(
    problem: Problem, epoch: Epoch, state: Any, stays: Sequence[bool]
) -> tuple[Any, int]:
    """Return the state with x, and a common y, at the mean over the agents that stay; and bytes."""
    leaves, structure = jax.tree.flatten(common_point(problem, state.x, state.y))
    masked = [np.where(np.reshape(stays, (-1, *[1] * (a.ndim - 1))), a, 0) for a in leaves]
    tree, count = mean_tree(epoch.network), len(stays)
    means = [np.asarray(tree.mean(jnp.asarray(a))) for a in masked]
    means = mean_over_staying(means, count, sum(stays))
    shared = [jnp.broadcast_to(jnp.asarray(mean), (count, *mean.shape)) for mean in means]
    point = dict(zip("xy", jax.tree.unflatten(structure, shared)))
    return state._replace(**point), 2 * (count - 1) * sum(mean.nbytes for mean in means)


def _after_epoch(everyone: Everyone, driver: SingleDriver, run: Run, epoch: Epoch) -> Everyone:
    """Return all agents after an epoch."""
    places, progress, recorder = np.asarray(epoch.members), driver.progress, driver.recorder
    state = jax.tree.map(lambda a, own: a.at[places].set(own), everyone.state, progress.state)
    spent = everyone.spent.copy()
    spent[places] = np.asarray(progress.spent)
    traffic, before = recorder.inputs.traffic, (epoch.network, epoch.from_round)
    bytes_before, uses = traffic.count_bytes_by_edge(*before), dict(everyone.uses)
    for edge, pair in zip(epoch.edges, epoch.network.edges):
        uses[edge] += run.traffic[pair] - bytes_before[pair]
    return Everyone(
        state,
        spent,
        uses,
        everyone.messages + run.messages - traffic.count_messages(*before),
        int(recorder.entries[-1]["bytes"]),
        driver.seconds,
        driver.compile_seconds,
    )


def _whole_run(
    run: Run,
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    *,
    everyone: Everyone,
    per_agent: list[dict[str, np.ndarray]],
    members: list[int],
) -> Run:
    """Return the run of all agents, given that of the last epoch."""
    spent = cost_counter.total(jnp.asarray(everyone.spent))
    share = everyone.bytes / max(sum(everyone.uses.values()), 1)
    best = run.best
    if best is not None:
        start = everyone.state.x, everyone.state.y
        x, y = jax.tree.map(lambda a, own: a.at[np.asarray(members)].set(own), start, best[2:])
        best = best._replace(x=x, y=y)
    return replace(
        run,
        last_x=everyone.state.x,
        last_y=everyone.state.y,
        state=everyone.state,
        per_agent={n: np.array([values[n] for values in per_agent]) for n in per_agent[0]},
        network=network,
        problem=problem,
        costs={name: spent[:, i] for i, name in enumerate(cost_counter.Cost._fields)},
        traffic={edge: round(n * share) for edge, n in everyone.uses.items()},
        messages=everyone.messages,
        best=best,
        snapshot=None,
        inputs=describe(network, algorithm),
        compile_seconds=everyone.compile_seconds,
    )


def _spread(
    values: dict[str, np.ndarray], members: Sequence[int], agents: int
) -> dict[str, np.ndarray]:
    """Return measures of the members as measures of all agents, nan for those that are absent."""
    spread = {}
    for name, value in values.items():
        spread[name] = np.full((agents, *np.shape(value)[1:]), np.nan)
        spread[name][np.asarray(members)] = value
    return spread
