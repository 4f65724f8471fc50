"""Measures that a site can compute alone, without the mean of all x."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...core import cost_counter, pytrees
from ...core.cost_counter import Cost
from ...core.pytrees import Tree
from ...hardware.compiler import FAST_COMPILE_OPTIONS, MEASURE_OPTIONS, compile_program
from ...metrics import lower_solution, sampled_measures
from ...metrics.exact_measures import Metrics
from ...metrics.standard_errors import SUFFIX, average_variances
from ...problem import Objectives, Rows
from ...schedules.deferred import agreed_bytes, count_exchanges
from .round_progress import AgentProgress
from .site_agent import Agent


def measure_agent(
    agent: Agent, progress: AgentProgress, messages: Sequence[Mapping[int, Sequence[Any]]]
) -> dict[str, float]:
    """Evaluate on all of the site's rows; for a stream, on its sample.

    `local_loss` is f_i(x_i, y_i). `lower_error` is ||y_i*(x_i) - y_i||^2 if the lower level is the
    site's own (nobody knows y* of a common one) and the agent's `measure` is exact. Metrics are
    measured at (x_i, y_i). If y is large or the lower level not convex, losses and metrics are
    those of fixed samples of rows, and `lower_loss`, `lower_gradient` and `value_gap` are measured
    instead of `lower_error` (`metrics.sampled_measures`). `samples` and so on are counted as in
    `diamond.Run`, for this agent alone, and `bytes` are those it sent. Columns of what the method
    learns are those of `diamond.Run`. `disagreement` is the
    squared distance of the last sent x to the mean over the agent and its neighbours.
    """
    problem, metrics = agent.problem, tuple(agent.problem.metrics.items())
    rows, state = problem.stack(problem.measured_part).for_agent(0), progress.state
    objectives = problem.objectives().for_agent(0)
    measures = _measure(objectives, rows, metrics, state.x, state.y, agent.measure)
    spent = zip(Cost._fields, cost_counter.total(progress.spent))
    return {
        "round": progress.t,
        **{name: float(value) for name, value in measures.items()},
        "disagreement": disagreement(agent, messages, progress),
        **_learned_values(progress),
        **{name: float(count) for name, count in spent},
        "bytes": bytes_sent(agent, progress),
    }


@compile_program(
    "metrics", "measure", options=MEASURE_OPTIONS, small=2**19, small_options=FAST_COMPILE_OPTIONS
)
def _measure(
    problem: Objectives, rows: Rows, metrics: Metrics, x: Tree, y: Tree, measure: str = "exact"
) -> dict[str, jax.Array]:
    chunk = getattr(rows, "chunk", None)
    with jax.default_matmul_precision("highest"):
        if chunk is not None and measure == "cheap":  # y is large or the lower level not convex
            valid = problem.valid.sample_rows(sampled_measures.ROWS, chunk)
            tested = rows.sample_rows(sampled_measures.ROWS, chunk)
            measures = {"local_loss": valid.mean(problem.upper, x, y)}
            if problem.lower_level == "personal":
                measures |= sampled_measures.measure_lower_level(problem, x, y, chunk)
            return measures | {name: tested.mean(loss, x, y) for name, loss in metrics}
        measures = {
            "local_loss": problem.f(x, y, None),
            **{name: rows.mean(loss, x, y) for name, loss in metrics},
        }
        if problem.lower_level == "personal" and measure == "exact":
            solved = lower_solution.solve_lower_level(problem, x, y)
            gap = pytrees.sub(solved.y, y)
            measures |= {"lower_error": pytrees.dot(gap, gap), "solver_error": solved.error}
        if problem.valid.is_sample or rows.is_sample:
            spread = average_variances(metrics, problem, rows, x, y)
            measures |= {name + SUFFIX: jnp.sqrt(value) for name, value in spread.items()}
    return jax.tree.map(jnp.asarray, measures)


def _learned_values(progress: AgentProgress) -> dict[str, float]:
    """Return what the algorithm learns, as in the history of `diamond.Run`."""
    state = jax.tree.map(lambda a: a[None], progress.state)
    values = progress.algorithm.learned_values(state)
    return {name: float(value[0]) for name, value in values.items()}


def disagreement(
    agent: Agent, messages: Sequence[Mapping[int, Sequence[Any]]], progress: AgentProgress
) -> float:
    """Return ||x_i - mean_j x_j||^2 over the agent and its neighbours; 0 before round 0.

    With masked sums the mean has the weights of the network, sum_j M_ij x_j.
    """
    for exchange, arrays in reversed(list(enumerate(messages))):
        if agent.masked is not None:
            change = agent.unflatten_message(agent.masked_change(arrays), exchange)
            if x_change := _x_arrays(change.average):
                return float(sum((a**2).sum() for a in x_change))
            continue
        decoded = agent.last_messages(progress, arrays, exchange)
        x = {j: _x_arrays(message.average) for j, message in decoded.items()}
        if x[agent.number]:
            mean = [np.mean(leaves, axis=0) for leaves in zip(*x.values())]
            return float(sum(((a - b) ** 2).sum() for a, b in zip(x[agent.number], mean)))
    return 0.0


def _x_arrays(average: Any) -> list[np.ndarray]:
    """Return the arrays of x in the averaged part; none if it does not contain x."""
    if isinstance(average, dict) and "method" in average:  # with learned step sizes
        average = average["method"]
    if isinstance(average, dict):
        average = average.get("x")
    return [np.asarray(leaf, float) for leaf in jax.tree.leaves(getattr(average, "x", average))]


def bytes_sent(agent: Agent, progress: AgentProgress) -> int:
    """Return the bytes that the agent has sent, in rounds and for estimates."""
    return agent.earlier_bytes + sum(bytes_by_neighbour(agent, progress).values())


def bytes_by_neighbour(agent: Agent, progress: AgentProgress) -> dict[int, int]:
    """Return the bytes that the agent has sent to each neighbour; exact means go along a tree."""
    consensus_bytes = agreed_bytes(progress.estimates) * agent.links.diameter
    rounds = progress.rounds_run // agent.exchange_every
    rounds -= agent.first_round // agent.exchange_every
    sent = dict.fromkeys(agent.neighbours, rounds * agent.bytes_per_round + consensus_bytes)
    for j in agent.tree_neighbours:
        sent[j] += rounds * agent.mean_bytes_per_round
    return sent


def messages_sent(agent: Agent, progress: AgentProgress) -> int:
    """Return the number of messages that the agent has sent, in rounds and for estimates."""
    means = sum(map(agent.sends_mean, range(agent.exchange_count)))
    rounds, consensus = progress.rounds_run, count_exchanges(progress.estimates).talks
    exchanges = agent.count_exchanges(rounds) - rounds * means + consensus * agent.links.diameter
    return len(agent.neighbours) * exchanges + rounds * means * len(agent.tree_neighbours)
