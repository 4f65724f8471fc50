"""Local measures of a site whose lower level is a network: no solution, fixed samples."""

import jax
import numpy as np

import diamond
from diamond.sites.rounds.local_measures import measure_agent
from diamond.sites.rounds.site_agent import Agent
from tests.problem.test_networks_below import network_problem


def test_a_site_measures_the_losses_of_its_rows_without_a_solution():
    problem = network_problem(agents=1, convex=False)
    algorithm = diamond.f2sa(batch=4, alpha=0.01, beta=0.01)
    agent = Agent(problem, diamond.network.complete(2), algorithm, 0)
    assert agent.measure == "cheap"
    entry = measure_agent(agent, agent.initial_progress(), [])
    x, y = jax.tree.map(lambda a: np.asarray(a, np.float64), problem.start(0))
    for name, loss, part in (
        ("local_loss", problem.upper, "valid"),
        ("lower_loss", problem.lower, "train"),
    ):
        np.testing.assert_allclose(entry[name], loss(x, y, problem.rows[part][0]), rtol=1e-5)
    assert entry["value_gap"] > 0 and "lower_error" not in entry
