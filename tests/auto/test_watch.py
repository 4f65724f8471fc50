"""The watch on the objective: when it has risen, what is remembered, and how small alpha is."""

import math

import numpy as np
import pytest
from helpers import quad, ring

from diamond.auto import loss_monitor
from diamond.schedules.deferred import ResolutionContext, ResolvedValue

pytestmark = pytest.mark.quick


def looked(*losses, forget=()):
    """What is remembered after looks that found these; the run went back before some."""
    context = ResolutionContext(quad(), ring(4), 2, 0)
    for i, loss in enumerate(losses):
        if i:
            context = context.after_rounds(None, None, forget=i in forget)
        loss_monitor.record_loss(context, loss)
    return context.memory


def test_it_has_risen_where_it_is_above_its_start_by_more_than_its_noise():
    """It began at 3 and fell to 1: a tenth of that is its noise, and five hundredths of 3."""
    assert not loss_monitor.loss_increase_message(looked(3.0)) and loss_monitor.is_lowest(
        looked(3.0)
    )
    assert not loss_monitor.loss_increase_message(
        looked(3.0, 1.0, 3.34)
    ) and not loss_monitor.is_lowest(looked(3.0, 1.0, 3.34))
    assert "is 3.36 on the first rows of each agent, after 1 at its least and 3 at the " in (
        loss_monitor.loss_increase_message(looked(3.0, 1.0, 3.36))
    )
    assert loss_monitor.loss_increase_message(
        looked(3.0, 3.16)
    ) and not loss_monitor.loss_increase_message(looked(3.0, 3.14))
    assert loss_monitor.loss_increase_message(
        looked(-3.0, -2.84)
    ) and not loss_monitor.loss_increase_message(looked(-3.0, -2.86))
    assert loss_monitor.loss_increase_message(
        looked(3.0, math.nan)
    ) and loss_monitor.loss_increase_message(looked(3.0, math.inf))
    assert not loss_monitor.loss_increase_message(
        looked(math.nan, 5.0)
    ) and not loss_monitor.loss_increase_message({})  # not told, not looked
    assert loss_monitor.has_decreased(looked(3.0, 2.9)) and not loss_monitor.has_decreased(
        looked(3.0, 3.0)
    )
    assert not loss_monitor.has_decreased({}) and not loss_monitor.is_lowest({})


def test_where_a_run_went_back_to_is_the_lowest_and_the_start_stays_what_it_was():
    memory = looked(3.0, 1.0, 2.0, forget=[2])
    assert loss_monitor.is_lowest(memory) and memory["_began"].value == 3.0
    np.testing.assert_array_equal(memory["_losses"].value, [2.0, 2.0])
    np.testing.assert_array_equal(looked(3.0, 1.0, 2.0)["_losses"].value, [2.0, 1.0])


def test_steps_are_a_quarter_each_time_twice_at_most():
    memory, seen = looked(3.0, 4.0), []
    while why := loss_monitor.loss_increase_message(memory):
        said = loss_monitor.record_rollback(memory, why, now=50, target=25)
        seen.append(loss_monitor.alpha_scale(memory))
    np.testing.assert_allclose(seen, [0.25, 0.0625])
    assert memory["lost"].value == 2 * 25 and all(memory[n].lasting for n in ("lost", "risen"))
    assert "; back to round 25 with steps 0.0625 times as long" in said
    assert loss_monitor.step_scale(memory) == 1  # of a run that was lost
    loss_monitor.record_shrink(memory, 0.25, 7)
    assert loss_monitor.step_scale(memory) == 0.25 and memory["lost"].value == 57
    assert loss_monitor.rollback_count({"risen": ResolvedValue(2)}) == 2
