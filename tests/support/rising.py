"""Runs that must roll back: with an upper loss that rises, or that is not a number too far out."""

from copy import copy

import jax.numpy as jnp

from diamond.auto import loss_monitor
from diamond.core import pytrees

note = loss_monitor.note


def rise_at(patch, high, low):
    """The monitor sees a loss of 3, but 1 in round `low`, and 9 in round `high` at full steps."""

    def scripted(setting, loss):
        long = loss_monitor.share(setting.memory) == 1
        losses = {low: 1.0, high: 9.0 if long else 0.5}
        note(setting, losses.get(setting.round, 3.0))

    patch.setattr(loss_monitor, "note", scripted)


def poisoned(problem, radius):
    """The problem with an upper loss that is not a number where ||x - x_0|| > radius."""
    upper, start = problem.upper, problem.start(0)[0]

    def loss(x, y, rows):
        off = pytrees.norm(pytrees.sub(x, start))
        return jnp.where(off > radius, jnp.nan, 1.0) * upper(x, y, rows)

    found = copy(problem)
    found.upper = loss
    return found
