"""Agents with their own rows, and rounds of all of them in lockstep, without a network."""

from functools import cache

import jax
import numpy as np
import pytest
from fast_compilation import skip_loss_checks
from helpers import ALGORITHMS, ESTIMATORS, build

from diamond.auto import loss_monitor
from diamond.problem import Problem
from diamond.sites.memory.site_rollback import roll_back_to_lowest
from diamond.sites.rounds.max_consensus import MaxConsensus, NotAgreed
from diamond.sites.rounds.site_agent import Agent

OPTIONS = dict(alpha=0.05, beta=0.2, eta=0.3, gamma=0.3, batch=3, period=4)


def build_algorithm(name, **options):
    """An algorithm with numbers throughout."""
    estimator = "conjugate_gradient" if name == "interact" else "neumann"
    return build(name, **OPTIONS | {"hypergradient": ESTIMATORS[estimator]} | options)


@cache
def with_own_rows(problem, agent):
    """The problem as one agent has it: with its own rows only."""
    return with_rows(problem, {part: [rows[agent]] for part, rows in problem.rows.items()})


def with_rows(problem, parts):
    """The same problem on other rows."""
    rest = {"metrics": problem.metrics, "shuffle": False, "constant": problem.constant}
    losses = problem.upper, problem.lower, problem.init
    if problem.lower is None:  # given as functions of x alone
        losses = problem.upper.loss, None, lambda key: problem.init(key)[0]
        parts = {"train": parts["train"]}
    else:
        rest["lower_level"] = problem.lower_level
    with pytest.MonkeyPatch.context() as patch:
        skip_loss_checks(patch)  # they were checked before
        return Problem(*losses, **parts, **rest)


def agents(problem, network, algorithm, **options):
    """All agents of the network, each with its own rows only."""
    return [
        Agent(with_own_rows(problem, i), network, algorithm, i, **options)
        for i in range(network.agents)
    ]


def resolve_together(team, progress):
    """The progress of all agents with the numbers left to the run, from the measurements of all."""
    consensuses, resolved = [MaxConsensus() for _ in team], [None] * len(team)
    while any(p is None for p in resolved):
        unagreed = {}
        for i, agent in enumerate(team):
            try:
                resolved[i] = agent.resolve_deferred(progress[i], consensuses[i])
            except NotAgreed as error:
                unagreed.setdefault(error.name, []).append(error.values)
        for name, values in unagreed.items():
            assert len(values) == len(team)  # all come to the same question
            for consensus in consensuses:
                consensus.agreed[name] = np.max(values, axis=0)
    return resolved


def run_lockstep(team, rounds):
    """Rounds of all agents, with messages passed in memory; their progress at the end."""
    progress = resolve_together(team, [agent.initial_progress() for agent in team])
    while progress[0].t < rounds:
        for exchange in range(team[0].exchange_count):
            local_results = [agent.compute(p, exchange) for agent, p in zip(team, progress)]
            outgoing = [
                agent.outgoing_arrays(
                    p, exchange, None if agent.sends_before_gradient(exchange) else local_result
                )
                for agent, p, local_result in zip(team, progress, local_results)
            ]
            messages = dict(enumerate(outgoing))
            progress = [
                a.finish_exchange(p, exchange, r, messages)
                for a, p, r in zip(team, progress, local_results)
            ]
        progress = [agent.finish_round(p) for agent, p in zip(team, progress)]
        if team[0].needs_reestimation(progress[0]):
            progress = resolve_together(team, progress)
            while loss_monitor.MonitorState.read(progress[0].estimates).increase:
                back = [
                    roll_back_to_lowest(agent, p, rounds + 1)[0] for agent, p in zip(team, progress)
                ]
                progress = resolve_together(team, back)
    return progress


def stack_states(progress):
    """The states of all agents as `simulate` has them, the agent axis first."""
    return jax.tree.map(lambda *a: jax.numpy.stack(a), *(p.state for p in progress))


NAMES = sorted(ALGORITHMS)
