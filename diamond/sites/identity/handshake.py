"""Digests of everything that all agents must have in common; they reveal nothing else."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._version import __version__
from ...core import pytrees
from ...core.host_transfer import default_dtype
from ...core.parsing import refuse_unreadable
from ...core.sampling import draw
from ...privacy.private_runs import without_site_values
from ...problem import Objectives, Rows
from ...schedules.deferred import Deferred, replace_deferred
from ..rounds.site_agent import Agent
from ..transport.audit import sanitize_text
from ..transport.wire_format import FrameError

ADDRESS = re.compile(r"0x[0-9a-f]+")


def installed_versions() -> dict[str, str]:
    """Return the versions that must be equal at all sites."""
    return {"diamond": __version__, "jax": jax.__version__}


def compute_digests(
    agent: Agent, rounds: int, missing: str = "wait", start: str = "anew"
) -> dict[str, str]:
    """Return the digest of every part of the run by name; "run" is the digest of all parts.

    The digest of a problem covers the jaxprs of its losses and its initial point, not its rows or
    their number.
    """
    parts = {**_component_digests(agent), "rounds": str(rounds), "missing": missing, "start": start}
    return parts | {"run": _digest(*(f"{name}={value};" for name, value in parts.items()))}


@lru_cache(maxsize=8)
def _component_digests(agent: Agent) -> dict[str, str]:
    weights = agent.links.weights
    return {
        **installed_versions(),
        "precision": default_dtype().name,
        "problem": _digest(
            agent.problem.lower_level,
            repr(agent.problem.prox),
            *_loss_programs(agent),
            *_arrays(agent.problem.start(agent.seed)),
        ),
        "algorithm": _digest(
            *_round_programs(agent),
            *_arrays(without_site_values(agent.template)),
            *_deferred_rules(agent.algorithm),
        ),
        "network": _digest(
            weights.data, weights.indices, weights.indptr, *_describe_channels(agent)
        ),
        "seed": str(agent.seed),
        "sampling": agent.sampling,
    }


@refuse_unreadable(FrameError, "its digests cannot be read")
def describe_differences(
    digests: Mapping[str, str],
    other_digests: Any,
    own_place: str = "here",
    other_place: str = "there",
) -> str:
    """Describe the parts that differ, with the names of both places; empty if none does."""
    if not isinstance(other_digests, dict):
        return "it does not name the difference"
    names = [name for name in digests if name != "run" and digests[name] != other_digests.get(name)]
    differences = []
    for name in names:
        other_value = sanitize_text(other_digests.get(name))
        long = max(len(digests[name]), len(other_value)) > 20
        values = "" if long else f" ({digests[name]} {own_place}, {other_value} {other_place})"
        differences.append(f"another {name}{values}")
    return ", ".join(differences)


def _describe_channels(agent: Agent) -> list[str]:
    """Describe the channels of the network, if any."""
    network = agent.network
    options = [] if network.defense is None else [f"robust {network.defense}"]
    options += [] if network.mask_limit is None else [f"masked {network.mask_limit}"]
    options += [f"every {agent.exchange_every}"] * (agent.exchange_every > 1)
    options += [f"members {list(agent.members)}"] * agent.has_epochs
    return options + ([f"{network.channels} {network.damping}"] if network.channels else [])


def _loss_programs(agent: Agent) -> list[str]:
    problem = _abstract_objectives(agent)
    x, y = agent.problem.start(agent.seed)
    names = "f" if problem.lower is None else "fg"
    program = lambda name: jax.make_jaxpr(lambda problem: getattr(problem, name)(x, y, 0))(problem)
    return [_without_addresses(program(name)) for name in names]


def _round_programs(agent: Agent) -> list[str]:
    """Describe the computation of a round, independent of numbers and losses."""
    quadratic = lambda x, y, rows: pytrees.dot(x, x) + pytrees.dot(y, y)
    problem = _abstract_objectives(agent)
    problem = replace(problem, upper=quadratic, lower=None if problem.lower is None else quadratic)
    programs = [_stage_programs(agent, problem, i) for i in range(len(agent.template.stages))]
    return [text for texts in programs for text in texts]


def _stage_programs(agent: Agent, problem: Objectives, stage_index: int) -> list[str]:
    """Describe how often a stage is repeated, and its computation before and after the exchange."""
    algorithm, state, t = agent.template, agent.initial_progress().state, jnp.int32(0)
    stage, rows = algorithm.stages[stage_index], (problem.train.stored, problem.valid.stored)
    blocks = partial(
        draw, hessian_batches=stage.hessian_batches, batch=algorithm.batch, sampling="blocks"
    )
    sample = jax.eval_shape(blocks, agent.key, t, t, rows)

    def compute_stage(algorithm: Any, problem: Any, state: Any, t: Any, sample: Any) -> Any:
        stage = algorithm.stages[stage_index]
        estimate, cost = stage.estimate(problem, state, t, sample)
        return estimate, stage.outgoing(state, estimate, t), cost

    def finish_stage(algorithm: Any, state: Any, estimate: Any, message: Any, t: Any) -> Any:
        return algorithm.stages[stage_index].update(state, estimate, message, message, t)

    inputs = algorithm, problem, state, t, sample
    estimate, mixed, _ = jax.eval_shape(compute_stage, *inputs)
    compute = jax.make_jaxpr(compute_stage)(*inputs)
    finish = jax.make_jaxpr(finish_stage)(algorithm, state, estimate, mixed, t)
    return [f"{stage.repeats}", _without_addresses(compute), _without_addresses(finish)]


def _deferred_rules(algorithm: Any) -> list[str]:
    """List the numbers left to the run, and the rule that estimates each."""
    descriptions: list[str] = []

    def describe(deferred: Deferred) -> Any:
        compute = deferred.compute
        rule = compute if isinstance(compute, partial) else partial(compute)
        options = sorted(rule.keywords.items())
        qualified_name = f"{rule.func.__module__}.{rule.func.__qualname__}"
        descriptions.append(f"{deferred.name}: {qualified_name} {_without_addresses(options)}")
        return deferred

    for check in algorithm.checks:
        describe(check)
    replace_deferred(algorithm, describe)
    return descriptions


def _abstract_objectives(agent: Agent) -> Objectives:
    """Return the agent's objectives with the shapes of one row, the same for all agents."""

    def abstract(rows: Rows) -> Rows:
        shape = lambda a: jax.ShapeDtypeStruct((1, rows.batch, *a.shape[2:]), a.dtype)
        count: Any = jax.ShapeDtypeStruct((), jnp.int32)
        return Rows(jax.tree.map(shape, rows.data), count, rows.batch, 0)

    objectives = agent.objectives
    train, valid = abstract(objectives.train), abstract(objectives.valid)
    return replace(objectives, train=train, valid=valid)


def _without_addresses(text: Any) -> str:
    return ADDRESS.sub("", str(text))


def _arrays(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def _digest(*parts: Any) -> str:
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            digest.update(part.encode())
        else:
            digest.update(f"{part.dtype}{part.shape}".encode() + np.asarray(part).tobytes())
    return digest.hexdigest()
