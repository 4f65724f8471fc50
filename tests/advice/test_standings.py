"""Which methods `advise` tries."""

import pytest

from diamond.advice import recommendation, standings
from diamond.catalogue import methods_for
from diamond.catalogue.registry import NETWORKS


@pytest.mark.quick
@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("level", ["personal", "common", "none"])
def test_some_that_fit_are_tried_of_every_kind(level, kind):
    right = methods_for(level, kind)
    for agents in (1, 5):
        methods = recommendation.methods_to_try(level, agents, kind)
        assert set(methods) <= set(right) and (methods or not right)


@pytest.mark.quick
def test_standings_are_those_of_the_nearest_suite_that_was_run(monkeypatch):
    monkeypatch.setattr(standings, "load_standings", lambda: {"personal": [], "links": []})
    assert standings.closest_suite("personal", 1, "symmetric") == "personal"
    assert standings.closest_suite("personal", 5, "directed") == "links"
    assert standings.closest_suite("common", 5, "directed") == "common"
