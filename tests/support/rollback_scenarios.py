"""Runs that must roll back: with an upper loss that rises, or that is not a number too far out."""

from copy import copy

import jax.numpy as jnp

from diamond.auto import loss_monitor
from diamond.core import pytrees

record_loss = loss_monitor.record_loss


def script_loss_increase(patch, high, low):
    """The monitor sees a loss of 3, but 1 in round `low`, and 9 in round `high` at full steps."""

    def record_scripted_loss(context, loss):
        long = loss_monitor.MonitorState.read(context.memory).alpha_scale == 1
        losses = {low: 1.0, high: 9.0 if long else 0.5}
        record_loss(context, losses.get(context.round, 3.0))

    patch.setattr(loss_monitor, "record_loss", record_scripted_loss)


def nan_beyond(problem, radius):
    """The problem with an upper loss that is not a number where ||x - x_0|| > radius."""
    upper, start = problem.upper, problem.start(0)[0]

    def loss(x, y, rows):
        distance = pytrees.norm(pytrees.sub(x, start))
        return jnp.where(distance > radius, jnp.nan, 1.0) * upper(x, y, rows)

    changed_problem = copy(problem)
    changed_problem.upper = loss
    return changed_problem
