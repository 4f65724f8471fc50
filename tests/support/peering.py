"""What the tests of peers share: a problem dealt out, and rounds of agents side by side."""

from functools import cache

import jax
import numpy as np
import pytest
from fast_compilation import skip_loss_checks
from helpers import ALGORITHMS, ESTIMATORS, build

from diamond.auto import loss_monitor
from diamond.peers.max_consensus import MaxConsensus, NotAgreed
from diamond.peers.site_agent import Agent
from diamond.peers.site_rollback import low
from diamond.problem import Problem

OPTIONS = dict(alpha=0.05, beta=0.2, eta=0.3, gamma=0.3, batch=3, period=4)


def given(name, **options):
    """An algorithm with numbers throughout."""
    estimator = "conjugate_gradient" if name == "interact" else "neumann"
    return build(name, **OPTIONS | {"hypergradient": ESTIMATORS[estimator]} | options)


@cache
def own(problem, agent):
    """The problem as one agent has it: with its own rows only."""
    return like(problem, {part: [rows[agent]] for part, rows in problem.rows.items()})


def like(problem, parts):
    """The same problem on other rows."""
    rest = {"metrics": problem.metrics, "shuffle": False, "constant": problem.constant}
    losses = problem.upper, problem.lower, problem.init
    if problem.lower is None:  # given as functions of x alone
        losses = problem.upper.loss, None, lambda key: problem.init(key)[0]
        parts = {"train": parts["train"]}
    else:
        rest["lower_level"] = problem.lower_level
    with pytest.MonkeyPatch.context() as patch:
        skip_loss_checks(patch)  # was looked over already
        return Problem(*losses, **parts, **rest)


def agents(problem, network, algorithm, **options):
    """All agents of the network, each with its own rows only."""
    return [Agent(own(problem, i), network, algorithm, i, **options) for i in range(network.agents)]


def settled(team, progress):
    """All agents with the numbers they leave open, found from what everyone measures."""
    tallies, found = [MaxConsensus() for _ in team], [None] * len(team)
    while any(p is None for p in found):
        asked = {}
        for i, agent in enumerate(team):
            try:
                found[i] = agent.find(progress[i], tallies[i])
            except NotAgreed as open:
                asked.setdefault(open.name, []).append(open.values)
        for name, values in asked.items():
            assert len(values) == len(team)  # all come to the same question
            for tally in tallies:
                tally.settled[name] = np.max(values, axis=0)
    return found


def lockstep(team, rounds):
    """Rounds of all agents, with messages handed over in memory; where each stands at the end."""
    progress = settled(team, [agent.begin() for agent in team])
    while progress[0].t < rounds:
        for turn in range(team[0].exchanges):
            local_results = [agent.think(p, turn) for agent, p in zip(team, progress)]
            told = [
                agent.tell(p, turn, None if agent.early(turn) else local_result)
                for agent, p, local_result in zip(team, progress, local_results)
            ]
            messages = dict(enumerate(told))
            progress = [
                a.step(p, turn, th, messages) for a, p, th in zip(team, progress, local_results)
            ]
        progress = [agent.end(p) for agent, p in zip(team, progress)]
        if team[0].renews(progress[0]):
            progress = settled(team, progress)
            while loss_monitor.loss_increase_message(progress[0].found):
                back = [low(agent, p, rounds + 1)[0] for agent, p in zip(team, progress)]
                progress = settled(team, back)
    return progress


def stacked(progress):
    """The states of all agents as `simulate` has them, the agent axis first."""
    return jax.tree.map(lambda *a: jax.numpy.stack(a), *(p.state for p in progress))


NAMES = sorted(ALGORITHMS)
