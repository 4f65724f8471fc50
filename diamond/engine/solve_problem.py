"""Automatic solution of a problem: one call chooses method, step sizes and length."""

import math
from collections.abc import Mapping
from dataclasses import replace
from inspect import signature
from typing import Any, Literal

import numpy as np

from ..catalogue import maker
from ..core.suggestions import did_you_mean
from ..core.validation import as_int
from ..interface.round_interface import Algorithm, Method
from ..metrics.evaluations import EVALUATIONS, geometric_rounds
from ..metrics.stopping import Stop
from ..network import Network, complete
from ..problem import Problem
from ..records.run import Run
from ..schedules.deferred import for_network, specialize
from .simulate import simulate

TOLERANCE = 1e-3  # smaller relative decrease over the last half of the rounds: a plateau
SMALL_GRADIENT = 1e-4  # of the start's squared norm: largest one that counts as converged
FIRST_ROUNDS, MOST_ROUNDS = 128, 16_384
LARGEST_BLOCK = 256  # most rows in a block of a sample
OPENING_BATCH = 16  # rows of a mini-batch of first-order steps before quasi-Newton steps
LARGEST_BATCH, BATCHES = 64, 5  # most rows in a mini-batch, and fewest mini-batches per agent


def solve(
    problem: Problem,
    network: Network | None = None,
    *,
    target: float | Stop | None = None,
    rounds: int | None = None,
    seconds: float | None = None,
    calls: float | None = None,
    bytes: float | None = None,
    algorithm: Algorithm | str | None = None,
    batch: int | None = None,
    accuracy: float | Literal["rough", "normal", "exact"] = "normal",
    seed: int = 0,
    **options: Any,
) -> Run:
    """Solve `problem` over `network`; method, step sizes and length are chosen automatically.

    Each agent solves for its y on a sample of its rows, and all agents take quasi-Newton steps of x
    that are accepted only if the upper loss decreases; samples grow as far as the answer needs
    (`diamond.algorithms.solve`). The run ends at `target`, when a budget is spent, or when another
    step would decrease the upper loss by less than a share of the whole decrease, which `accuracy`
    says.

    Streams, large lower levels, lower levels that are not `convex`, and networks that change
    messages need another method: step sizes are learned on mini-batches, and the run ends when the
    upper loss has fallen by less than 0.1 % of its whole decrease in the last half of the rounds.
    `run.description` says which method was taken and why. x and y are those of the smallest upper
    loss.

    Args:
        problem: the problem.
        network: the network of the agents; not needed for one agent.
        target: an upper loss to reach, or a mapping like `stop` of `diamond.simulate`.
        rounds: maximum number of rounds; if given, a plateau does not end the run.
        seconds: time budget of the rounds, without compiling and measuring.
        calls: budget of gradients and products of single rows, averaged over the agents.
        bytes: budget of bytes sent over all links.
        algorithm: a method to use instead of the automatic choice, or its name.
        batch: rows in a mini-batch; by default a fifth of an agent's rows, at most 64. Samples of
            quasi-Newton steps are not mini-batches: they are computed in blocks of so many rows.
        accuracy: when to end: "rough", "normal", "exact", or the share of the whole decrease that
            another step may still gain (1e-3, 1e-5 and 1e-7).
        seed: seed of the mini-batches.
        **options: options of `diamond.simulate`, such as `devices` or `progress`.

    Returns:
        The run. `run.message` says why it ended and of which round x and y are, if not of the last;
        `run.description` says what was chosen and why.

    Raises:
        ValueError: several agents without a network.

    Examples:
        >>> problem = diamond.gallery.quadratic(agents=4, upper=3, lower=3, rows=20)
        >>> diamond.solve(problem, diamond.network.ring(4)).message
        'converged: ...'
    """
    own_options = {"problem", "network", "algorithm", "rounds", "seed", "stop"}
    known = [name for name in signature(simulate).parameters if name not in own_options]
    for name in options:
        if name not in known:
            names = [*known, *(n for n in signature(solve).parameters if n != "options")]
            raise TypeError(f"solve has no argument {name!r}; {did_you_mean(name, names)}")
    if network is None:
        if problem.agents > 1:
            raise ValueError(
                f"the problem has {problem.agents} agents, which need a network: give one such as "
                f"diamond.network.ring({problem.agents})"
            )
        network = complete(1)
    description = "The method was given by the user. Its numbers that were not given are found."
    if algorithm is None or isinstance(algorithm, str):
        name = (algorithm or "solve").lower().replace("-", "_")
        size = _batch_size(problem) if batch is None else as_int("batch", batch, 1)
        options_of_method = {"accuracy": accuracy} if name == "solve" else {}
        method: Algorithm = maker(name)(batch=size, **options_of_method)
        if batch is None and specialize(method, problem, network).ends_by_itself:
            size = OPENING_BATCH if problem.starts_at_random else block_size(problem)
            method = maker(name)(batch=size, **options_of_method)
        description = description if algorithm else _description(problem, network, method)
    else:
        method = algorithm
    specialized = specialize(method, problem, network)
    stop: dict[str, Any] = dict(target) if isinstance(target, Mapping) else {}
    if target is not None and not isinstance(target, Mapping):
        stop["upper_loss"] = target
    budgets = {"seconds": seconds, "calls": calls, "bytes": bytes}
    stop |= {name: value for name, value in budgets.items() if value is not None}
    resume: Run | None = options.pop("resume", None)
    max_rounds = MOST_ROUNDS if rounds is None else as_int("rounds", rounds, 0)
    end = max_rounds if rounds is not None or specialized.ends_by_itself else FIRST_ROUNDS
    every = options.pop("every", None) or geometric_rounds(max(max_rounds, 1), EVALUATIONS)
    first, rounds_discarded = 0, 0.0
    while True:
        run = simulate(
            problem, network, method, end, seed, every, stop=stop, resume=resume, **options
        )
        message = run.message
        if run.rounds < end or specialized.describe_end(run.state):
            break  # the method has ended, a target is reached, or a budget spent
        if run.resolved.get("lost", 0) > rounds_discarded:
            first, rounds_discarded = end, run.resolved["lost"]
        reason = _plateau(run, first) if rounds is None else ""
        if reason or end >= max_rounds:
            reason = reason or f"stopped at round {end}: all rounds are made"
            message = "; ".join(filter(None, [reason, message]))
            break
        resume, end = run, min(2 * end, max_rounds)
    return replace(run, message=message, config=run.config | {"description": description})


def _plateau(run: Run, first: int) -> str:
    """Return why the run ends if its upper loss hardly falls any more, else "".

    Evaluations before round `first`, when the run last rolled back, say nothing of its steps now.
    """
    rounds_made, loss = run.history["round"], run.history.get("upper_loss", np.array([]))
    if first == run.rounds or not np.isfinite(loss).any():
        return ""
    lowest = np.fmin.accumulate(np.where(rounds_made < first, np.inf, loss))
    half = lowest[np.searchsorted(rounds_made, rounds_made[-1] / 2, side="right") - 1]
    start, least = loss[np.isfinite(loss)][0], np.nanmin(loss)
    decrease, recent = start - least, half - lowest[-1]
    if not recent <= TOLERANCE * decrease:
        return ""
    last_half = (
        f"in its last half the upper loss has fallen by {recent:.2g} of {decrease:.2g} in all"
    )
    gradients = run.history.get("stationarity", np.full(len(loss), np.nan))
    gradient = gradients[np.nanargmin(loss)] / gradients[0]
    is_least = bool(0 <= loss[-1] - least <= TOLERANCE * decrease and decrease > 0)
    end = "converged by" if is_least and gradient <= SMALL_GRADIENT else "stopped early at"
    now = f"; its squared gradient is {gradient:.1g} of that at the start"
    return f"{end} round {run.rounds}: {last_half}{now if np.isfinite(gradient) else ''}"


def block_size(problem: Problem) -> int:
    """Return the median number of rows of an agent as a power of two, at most 256."""
    counts = np.concatenate([problem.counts(part) for part in ("train", "valid")])
    return min(LARGEST_BLOCK, 2 ** int(math.log2(np.median(counts))))


def _batch_size(problem: Problem) -> int:
    """Return a fifth of the median agent's rows, as a power of two."""
    if problem.streams:
        return LARGEST_BATCH
    parts = [part for part in ("train", "valid") if part in problem.rows]
    rows = min(float(np.median(problem.counts(part))) for part in parts)
    return min(LARGEST_BATCH, 2 ** int(math.log2(max(rows / BATCHES, 1))))


def _description(problem: Problem, network: Network, method: Method) -> str:
    """Describe in two sentences what was chosen and why."""
    batch = method.batch
    agents = f"{problem.agents} agents on {network.title}" if problem.agents > 1 else "one agent"
    if problem.lower_level != "none" and not problem.has_lower_solution:
        reason = "is large" if problem.convex else "is not strongly convex"
        return (
            f"Gradient tracking of x along the directions of a penalty, with gradients on "
            f"mini-batches of {batch} rows, for {agents}: the lower level {reason}, so y*(x) is "
            f"not solved for. y and its second copy z move by Adam; x rests for 20 rounds and "
            f"moves by distance over gradients."
        )
    reason = for_network(method, network).obstacle_to(problem)
    if not reason:
        lower = {
            "personal": "Each agent solves for its own y by Newton steps.",
            "common": "All agents solve for the common y together, by Newton steps.",
            "none": "There is no lower level.",
        }[problem.lower_level]
        begins = ""
        if (opening := specialize(method, problem, network).opening) is not None:
            begins = (
                f" x starts at random: the first {opening.rounds} rounds are first-order steps."
            )
        return (
            f"Quasi-Newton steps of x on samples of rows that grow, accepted only if the upper "
            f"loss decreases, for {agents}. {lower}{begins}"
        )
    lower = {
        "personal": "Each agent follows its own y by gradient steps, and solves for it locally in "
        "rounds in which y lags behind x.",
        "common": "All agents share y, so y and z, which solves g_yy z = f_y, are tracked like x.",
        "none": "There is no lower level, so x moves along the gradient of f.",
    }[problem.lower_level]
    return (
        f"Gradient tracking of x with learned step sizes on mini-batches of {batch} rows, for "
        f"{agents}, instead of quasi-Newton steps, because {reason}. {lower}"
    )
