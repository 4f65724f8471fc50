"""Numbers left to a run that goes on without those away: found once, by all of them, before it."""

import pytest
from compiling import unchecked
from helpers import ESTIMATORS, quad
from leaving import PATH, ROUNDS, Town
from peering import agents, settled
from test_peers_away import downs, sound

import diamond
from diamond.numbers.open_numbers import by_name

OPEN = diamond.gt_sgd(beta=0.1, batch=3, hypergradient=ESTIMATORS["exact"])  # alpha is


@pytest.fixture(scope="module")
def team():
    with pytest.MonkeyPatch.context() as patch:
        unchecked(patch)
        problem = quad(agents=3).problem
    return tuple(agents(problem, PATH, OPEN))


def test_one_that_comes_late_is_waited_for_and_one_that_leaves_finds_them_again(
    tmp_path, team, caplog
):
    """Agent 2 dies before its first checkpoint, and has to ask what was said before round 0."""
    town = Town(tmp_path, PATH, away=[(0, 0.0, 50.0), (2, 52.5, 80.0)])
    town.team = team
    found, _ = sound(town)
    wanted = settled(team, [agent.begin() for agent in team])
    for progress, start in zip(found, wanted, strict=True):
        assert progress.t == ROUNDS and "alpha" in by_name(progress.found)
        assert by_name(progress.found) == by_name(start.found)  # those of the start, to the end
    assert downs(town, 2, 1) and not caplog.messages  # done without; nobody else is suspected
    assert downs(town, 0, 1) == []  # it came late, and was waited for
