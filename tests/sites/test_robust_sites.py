"""Robust mixing at sites: the trajectory of the simulation, honest and with a liar."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import skip_loss_checks, without_optimizations
from helpers import final_progress, flat, quad
from lockstep_agents import agents, build_algorithm, run_lockstep, stack_states

import diamond
from diamond.network.mixing.robust_mixer import lie_key
from diamond.sites.identity.handshake import compute_digests, describe_differences
from diamond.sites.rounds.site_agent import Agent

LIAR, ROUNDS = 4, 10


@pytest.fixture(scope="module")
def problem():
    with pytest.MonkeyPatch.context() as patch:
        skip_loss_checks(patch)
        yield quad(agents=5)


class DeceivedAgent(Agent):
    """Agent that receives the lies which the network describes."""

    def finish_exchange(self, progress, exchange, local_result, messages):
        for liar in self.network.lies:
            if liar.agent != self.number:
                key = lie_key(self._exchange_id(progress.t, exchange), liar.agent)
                true = self.unflatten_message([jnp.asarray(a) for a in messages[liar.agent]])
                false = liar.function(true, self.number, key)
                messages = {**messages, liar.agent: [np.asarray(a) for a in jax.tree.leaves(false)]}
        return super().finish_exchange(progress, exchange, local_result, messages)


def deceive(agent):
    agent = copy.copy(agent)
    agent.__class__ = DeceivedAgent
    return agent


@pytest.mark.wide(keep=["None-trimmed"])
@pytest.mark.parametrize("rule", ["clipped", "trimmed"])
@pytest.mark.parametrize("lie", [None, "two-faced", "noise"])
def test_the_trajectory_is_the_simulated_one(problem, rule, lie):
    network = diamond.network.complete(5).robust(rule)
    if lie:
        network = network.with_liar(LIAR, lie)
    method = build_algorithm("dsgd", order="paper")
    with without_optimizations(), jax.enable_x64(True):
        wanted = final_progress(problem, network, method, ROUNDS, seed=4).state
        team = [deceive(agent) for agent in agents(problem, network, method, seed=4)]
        found = stack_states(run_lockstep(team, ROUNDS))
        np.testing.assert_allclose(flat(found.x), flat(wanted.x), rtol=1e-12, atol=1e-13)


@pytest.mark.slow
def test_learned_steps_are_those_of_the_simulation(problem):
    network = diamond.network.complete(5).robust().with_liar(LIAR, "inflated")
    method = diamond.dsgd(batch=3)
    with without_optimizations(), jax.enable_x64(True):
        wanted = final_progress(problem, network, method, ROUNDS, seed=4).state
        team = [deceive(agent) for agent in agents(problem, network, method, seed=4)]
        found = stack_states(run_lockstep(team, ROUNDS))
    np.testing.assert_allclose(flat(found.x), flat(wanted.x), rtol=1e-9, atol=1e-12)
    steps = np.asarray(wanted.step.scalars.alpha)
    np.testing.assert_allclose(np.asarray(found.step.scalars.alpha), steps, rtol=1e-9)
    honest = np.delete(steps, LIAR)
    assert honest.max() < 1.5 * honest.min()


def test_sites_with_another_defense_are_another_network(problem):
    method, plain = build_algorithm("dsgd"), diamond.network.complete(5)
    first, second = (agents(problem, n, method)[0] for n in (plain, plain.robust()))
    digests = compute_digests(first, 9), compute_digests(second, 9)
    assert describe_differences(*digests) == "another network"


def test_trackers_are_refused(problem):
    network = diamond.network.complete(5).robust()
    with pytest.raises(ValueError, match="sends trackers or corrects x by sums"):
        agents(problem, network, build_algorithm("gt_sgd"))
