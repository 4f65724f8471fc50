"""The loss monitor: when the loss has increased, what is recorded, and how small alpha is."""

import math

import numpy as np
import pytest
from helpers import quad, ring

from diamond.auto import loss_monitor
from diamond.auto.loss_monitor import MonitorState
from diamond.schedules.deferred import ResolutionContext

pytestmark = pytest.mark.quick


def memory_after(*losses, forget=()):
    """Return the memory after checks of these losses; the run rolled back before some of them."""
    context = ResolutionContext(quad(), ring(4), 2, 0)
    for i, loss in enumerate(losses):
        if i:
            context = context.after_rounds(None, None, forget=i in forget)
        loss_monitor.record_loss(context, loss)
    return context.memory


def increase(*losses):
    return MonitorState.read(memory_after(*losses)).increase


def test_the_loss_has_increased_if_it_is_above_its_start_by_more_than_its_noise():
    """It started at 3 and fell to 1: its noise is a tenth of that, and five hundredths of 3."""
    assert not increase(3.0) and MonitorState.read(memory_after(3.0)).is_lowest
    assert not increase(3.0, 1.0, 3.34)
    assert not MonitorState.read(memory_after(3.0, 1.0, 3.34)).is_lowest
    assert "is 3.36 on the first rows of each agent, after 1 at its least and 3 at the " in (
        increase(3.0, 1.0, 3.36)
    )
    assert increase(3.0, 3.16) and not increase(3.0, 3.14)
    assert increase(-3.0, -2.84) and not increase(-3.0, -2.86)
    assert increase(3.0, math.nan) and increase(3.0, math.inf)
    assert not increase(math.nan, 5.0)
    no_check = MonitorState.read({})
    assert not no_check.increase and not no_check.is_lowest and no_check.scale == 1


def test_after_a_rollback_the_loss_is_the_lowest_and_the_first_loss_stays():
    state = MonitorState.read(memory_after(3.0, 1.0, 2.0, forget=[2]))
    assert state.is_lowest and (state.first, state.latest, state.least) == (3.0, 2.0, 2.0)
    state = MonitorState.read(memory_after(3.0, 1.0, 2.0))
    assert (state.first, state.latest, state.least) == (3.0, 2.0, 1.0)


def test_steps_are_a_quarter_each_time_four_times_at_most():
    memory, seen = memory_after(3.0, 4.0), []
    while MonitorState.read(memory).increase:
        message = loss_monitor.record_rollback(memory, now=50, target=25)
        seen.append(MonitorState.read(memory).alpha_scale)
    np.testing.assert_allclose(seen, 0.25 ** np.arange(1, 5))
    assert MonitorState.read(memory).rolled_back == 4 * 25
    assert all(memory[name].lasting for name in ("lost", "risen"))
    assert "; back to round 25 with steps 0.00390625 times as long" in message
    assert MonitorState.read(memory).scale == 1  # no run that broke
    loss_monitor.record_shrink(memory, 0.25, 7)
    state = MonitorState.read(memory)
    assert (state.scale, state.rolled_back, state.rises) == (0.25, 107, 4)
