"""The loss monitor: when the loss has increased, what is recorded, and how small alpha is."""

import math

import numpy as np
import pytest
from helpers import quad, ring

from diamond.auto import loss_monitor
from diamond.schedules.deferred import ResolutionContext, ResolvedValue

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
    return loss_monitor.loss_increase_message(memory_after(*losses))


def test_the_loss_has_increased_if_it_is_above_its_start_by_more_than_its_noise():
    """It started at 3 and fell to 1: its noise is a tenth of that, and five hundredths of 3."""
    assert not increase(3.0) and loss_monitor.is_lowest(memory_after(3.0))
    assert not increase(3.0, 1.0, 3.34)
    assert not loss_monitor.is_lowest(memory_after(3.0, 1.0, 3.34))
    assert "is 3.36 on the first rows of each agent, after 1 at its least and 3 at the " in (
        increase(3.0, 1.0, 3.36)
    )
    assert increase(3.0, 3.16) and not increase(3.0, 3.14)
    assert increase(-3.0, -2.84) and not increase(-3.0, -2.86)
    assert increase(3.0, math.nan) and increase(3.0, math.inf)
    assert not increase(math.nan, 5.0)
    assert not loss_monitor.loss_increase_message({})  # no check was made
    assert not loss_monitor.is_lowest({})


def test_after_a_rollback_the_loss_is_the_lowest_and_the_first_loss_stays():
    memory = memory_after(3.0, 1.0, 2.0, forget=[2])
    assert loss_monitor.is_lowest(memory) and memory["_began"].value == 3.0
    np.testing.assert_array_equal(memory["_losses"].value, [2.0, 2.0])
    np.testing.assert_array_equal(memory_after(3.0, 1.0, 2.0)["_losses"].value, [2.0, 1.0])


def test_steps_are_a_quarter_each_time_four_times_at_most():
    memory, seen = memory_after(3.0, 4.0), []
    while reason := loss_monitor.loss_increase_message(memory):
        message = loss_monitor.record_rollback(memory, reason, now=50, target=25)
        seen.append(loss_monitor.alpha_scale(memory))
    np.testing.assert_allclose(seen, 0.25 ** np.arange(1, 5))
    assert memory["lost"].value == 4 * 25 and all(memory[n].lasting for n in ("lost", "risen"))
    assert "; back to round 25 with steps 0.00390625 times as long" in message
    assert loss_monitor.step_scale(memory) == 1  # no run that broke
    loss_monitor.record_shrink(memory, 0.25, 7)
    assert loss_monitor.step_scale(memory) == 0.25 and memory["lost"].value == 107
    assert loss_monitor.rollback_count({"risen": ResolvedValue(2)}) == 2
