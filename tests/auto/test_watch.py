"""The watch on the objective: when it has risen, what is remembered, and how small alpha is."""

import math

import numpy as np
import pytest
from helpers import quad, ring

from diamond.auto import watch
from diamond.numbers.open_numbers import Found, Setting

pytestmark = pytest.mark.quick


def looked(*losses, forget=()):
    """What is remembered after looks that found these; the run went back before some."""
    setting = Setting(quad(), ring(4), 2, 0)
    for i, loss in enumerate(losses):
        if i:
            setting = setting.at(None, None, forget=i in forget)
        watch.note(setting, loss)
    return setting.memory


def test_it_has_risen_where_it_is_above_its_start_by_more_than_its_noise():
    """It began at 3 and fell to 1: a tenth of that is its noise, and five hundredths of 3."""
    assert not watch.risen(looked(3.0)) and watch.lowest(looked(3.0))
    assert not watch.risen(looked(3.0, 1.0, 3.34)) and not watch.lowest(looked(3.0, 1.0, 3.34))
    assert "is 3.36 on the first rows of each agent, after 1 at its least and 3 at the " in (
        watch.risen(looked(3.0, 1.0, 3.36))
    )
    assert watch.risen(looked(3.0, 3.16)) and not watch.risen(looked(3.0, 3.14))
    assert watch.risen(looked(-3.0, -2.84)) and not watch.risen(looked(-3.0, -2.86))
    assert watch.risen(looked(3.0, math.nan)) and watch.risen(looked(3.0, math.inf))
    assert not watch.risen(looked(math.nan, 5.0)) and not watch.risen({})  # not told, not looked
    assert watch.fallen(looked(3.0, 2.9)) and not watch.fallen(looked(3.0, 3.0))
    assert not watch.fallen({}) and not watch.lowest({})


def test_where_a_run_went_back_to_is_the_lowest_and_the_start_stays_what_it_was():
    memory = looked(3.0, 1.0, 2.0, forget=[2])
    assert watch.lowest(memory) and memory["_began"].value == 3.0
    np.testing.assert_array_equal(memory["_losses"].value, [2.0, 2.0])
    np.testing.assert_array_equal(looked(3.0, 1.0, 2.0)["_losses"].value, [2.0, 1.0])


def test_steps_are_a_quarter_each_time_twice_at_most():
    memory, seen = looked(3.0, 4.0), []
    while why := watch.risen(memory):
        said = watch.calm(memory, why, now=50, back=25)
        seen.append(watch.share(memory))
    np.testing.assert_allclose(seen, [0.25, 0.0625])
    assert memory["lost"].value == 2 * 25 and all(memory[n].lasting for n in ("lost", "risen"))
    assert "; back to round 25 with steps 0.0625 times as long" in said
    assert watch.factor(memory) == 1  # of a run that was lost
    watch.shrink(memory, 0.25, 7)
    assert watch.factor(memory) == 0.25 and memory["lost"].value == 57
    assert watch.times({"risen": Found(2)}) == 2
