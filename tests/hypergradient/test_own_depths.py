"""Chains whose depth is each agent's own."""

import jax
import jax.numpy as jnp
import pytest
from helpers import quad, sample_of

import diamond
from diamond.schedules.deferred import ResolutionContext, select_agent_values, with_numbers


def test_depths_of_ones_own_are_spread_over_the_agents():
    """Agent i of 4 has depth (k + 2 i) mod 8, k that of all; products tell how deep it went."""
    problem, terms = quad(), 8
    estimator = diamond.hypergradient.neumann(terms, 1.6, depth="own")
    result = with_numbers(estimator, ResolutionContext(problem, None, 1, 0))
    x, y = problem.start(0)
    products = jax.jit(lambda own, rows, sample: own(rows, [(x, y)], sample)[1].hvps)
    depths = []
    for i in range(4):
        sample = sample_of(problem, i, terms)._replace(bits=jnp.uint32(8 * 5 + 3))
        own = select_agent_values(result, i)
        depths.append(int(products(own, problem.objectives(1).for_agent(i), sample)))
    assert depths == [3, 5, 7, 1]
    with pytest.raises(ValueError, match="depth = 'mine'; there are 'common' and 'own'"):
        diamond.hypergradient.neumann(depth="mine")
