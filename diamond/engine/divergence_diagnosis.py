"""Diagnosis of the round in which a run stopped being finite."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core import pytrees
from ..core.cost_counter import Cost
from ..core.sampling import Sampling, key
from ..hardware.compiler import compile_fast
from ..interface.round_interface import Algorithm
from ..metrics.divergence_error import (
    Diverged,
    describe_first_nonfinite,
    directions,
    explain_divergence,
)
from ..privacy.private_runs import compare_noise
from ..problem import Objectives
from ..records.run import Run
from ..schedules.deferred import ObjectivesByBatch
from .round_program import Progress, draw_samples, estimate_gradients
from .step_policy import StepPolicy


def divergence_error(
    steps: StepPolicy, seed: int, sampling: Sampling, good: Progress, *, after: Progress, run: Run
) -> Diverged:
    """Return the error for the round from `good` to `after`; `run` is the run at `good`."""
    t = int(good.t)
    measure = lambda: (_measure_nonfinite(steps, seed, sampling, good), Cost())
    quantity = describe_first_nonfinite(
        steps.context.consensus.local("lost", measure)[0], after.state
    )
    cause = explain_cause(steps, t, good.state)
    network = steps.context.network
    if network is not None and (limit := network.mask_limit) is not None:
        cause += f"; or a message had a number above {limit:.7g}, the limit of masked sums"
    message = (
        f"diverged in round {t}: {quantity} is not finite; {cause}. The state before that "
        f"round is in `run.last_x` and `run.last_y` of this error"
    )
    return Diverged(message, t, quantity, replace(run, status="diverged", message=message))


def explain_cause(steps: StepPolicy, t: int, state: Any) -> str:
    """Explain the likely cause of divergence: the steps, or the noise of a private method."""
    requested, problem, noise = steps.requested, steps.context.problem, ""
    private = requested.privacy
    if private is not None and private.plan(requested, problem).noise > 1:
        noise = f"noise for privacy is the likely cause. {compare_noise(requested, problem)}"
    return explain_divergence(steps.context, steps.algorithm, t, state, noise=noise)


def _measure_nonfinite(
    steps: StepPolicy, seed: int, sampling: Sampling, good: Progress
) -> np.ndarray:
    """Return whether p and v of the next round are not finite, for each agent measured here."""
    algorithm, t = steps.algorithm, int(good.t)

    def check_group(rows: ObjectivesByBatch, state: Any, agents: jax.Array) -> Any:
        inputs = algorithm, rows(algorithm.batch), state, key(seed)
        return _nonfinite_directions(*inputs, t=t, agents=agents, sampling=sampling)

    return np.stack(steps.context.map_agents(check_group, good.state), axis=1)


@compile_fast("sampling")
def _nonfinite_directions(
    algorithm: Algorithm,
    objectives: Objectives,
    state: Any,
    key: jax.Array,
    *,
    t: Any,
    agents: jax.Array,
    sampling: Sampling,
) -> list[jax.Array]:
    """Return whether p and v of round t are not finite, for each agent."""
    samples = draw_samples(algorithm, objectives, key, t, sampling, agents)
    estimates, _ = estimate_gradients(
        algorithm, objectives, state, t, sample=samples, agent_indices=agents
    )
    is_nonfinite = jax.vmap(lambda part: ~pytrees.finite(part))
    all_finite = jnp.zeros(len(agents), bool)
    return [
        is_nonfinite(part) if jax.tree.leaves(part) else all_finite
        for part in directions(estimates)
    ]
