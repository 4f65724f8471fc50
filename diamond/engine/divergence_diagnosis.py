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
from ..metrics.divergence import Diverged, culprit, directions, explain
from ..problem import Objectives
from ..records.run import Run
from ..schedules.deferred import Rows
from .round_program import Progress, estimate, samples
from .step_policy import StepPolicy


def diverged(
    steps: StepPolicy, seed: int, sampling: Sampling, good: Progress, after: Progress, run: Run
) -> Diverged:
    """Return the error for the round from `good` to `after`; `run` is the run at `good`."""
    t = int(good.t)
    lost = lambda: (_lost(steps, seed, sampling, good), Cost())
    quantity = culprit(steps.setting.talk.alone("lost", lost)[0], after.state)
    cause = explain(steps.setting, steps.algorithm, t, good.state)
    message = (
        f"diverged in round {t}: {quantity} is not finite; {cause}. The state before that "
        f"round is kept in `run` of this error"
    )
    return Diverged(message, t, quantity, replace(run, status="diverged", message=message))


def _lost(steps: StepPolicy, seed: int, sampling: Sampling, good: Progress) -> np.ndarray:
    """Return whether p and v of the next round are not finite, for each agent measured here."""
    algorithm, t = steps.algorithm, int(good.t)

    def look(rows: Rows, state: Any, agents: jax.Array) -> Any:
        return _broken(algorithm, rows(algorithm.batch), state, key(seed), t, agents, sampling)

    return np.stack(steps.setting.each(look, good.state), axis=1)


@compile_fast("sampling")
def _broken(
    algorithm: Algorithm,
    objectives: Objectives,
    state: Any,
    key: jax.Array,
    t: Any,
    agents: jax.Array,
    sampling: Sampling,
) -> list[jax.Array]:
    """Return whether p and v of round t are not finite, for each agent."""
    drawn = samples(algorithm, objectives, key, t, sampling, agents)
    found, _ = estimate(algorithm, objectives, state, t, drawn, agents)
    lost = jax.vmap(lambda part: ~pytrees.finite(part))
    none = jnp.zeros(len(agents), bool)
    return [lost(part) if jax.tree.leaves(part) else none for part in directions(found)]
