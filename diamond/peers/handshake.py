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

from .._version import __version__
from ..core import pytrees
from ..core.sampling import draw
from ..problem import Objectives, Rows
from ..schedules.deferred import Deferred, swap
from .site_agent import Agent
from .text_sanitizing import printable

ADDRESS = re.compile(r"0x[0-9a-f]+")


def digest(agent: Agent, rounds: int, missing: str = "wait", start: str = "anew") -> dict[str, str]:
    """Return the digest of every part of the run by name; "run" is the digest of all parts.

    The digest of a problem covers the jaxprs of its losses and its initial point, not its rows or
    their number.
    """
    parts = {**_parts(agent), "rounds": str(rounds), "missing": missing, "start": start}
    return parts | {"run": _digest(*(f"{name}={value};" for name, value in parts.items()))}


@lru_cache(maxsize=8)
def _parts(agent: Agent) -> dict[str, str]:
    weights = agent.network.weights
    return {
        "diamond": __version__,
        "jax": jax.__version__,
        "precision": jnp.zeros(()).dtype.name,
        "problem": _digest(
            agent.problem.lower_level,
            repr(agent.problem.prox),
            *_losses(agent),
            *_leaves(agent.problem.start(agent.seed)),
        ),
        "algorithm": _digest(*_rules(agent), *_leaves(agent.outline), *_open(agent.given)),
        "network": _digest(weights.data, weights.indices, weights.indptr, *_channels(agent)),
        "seed": str(agent.seed),
        "sampling": agent.sampling,
    }


def differing(mine: Mapping[str, str], other: Any, here: str = "here", there: str = "there") -> str:
    """Describe the parts that differ; empty if none. `here` and `there` name the two sides."""
    if not isinstance(other, dict):
        return "it does not say what"
    names = [name for name in mine if name != "run" and mine[name] != other.get(name)]
    said = []
    for name in names:
        theirs = printable(other.get(name))
        long = max(len(mine[name]), len(theirs)) > 20
        values = "" if long else f" ({mine[name]} {here}, {theirs} {there})"
        said.append(f"another {name}{values}")
    return ", ".join(said)


def _channels(agent: Agent) -> list[str]:
    """Describe the channels of the network, if any."""
    network = agent.network
    clipped = [] if agent.clip is None else [f"clip {agent.clip}"]
    return clipped + ([f"{network.channels} {network.damping}"] if network.channels else [])


def _losses(agent: Agent) -> list[str]:
    problem = _abstract(agent)
    x, y = agent.problem.start(agent.seed)
    names = "f" if problem.lower is None else "fg"
    of = lambda name: jax.make_jaxpr(lambda problem: getattr(problem, name)(x, y, 0))(problem)
    return [_plain(of(name)) for name in names]


def _rules(agent: Agent) -> list[str]:
    """Describe the computation of a round, independent of numbers and losses."""
    bowl = lambda x, y, rows: pytrees.dot(x, x) + pytrees.dot(y, y)
    problem = _abstract(agent)
    problem = replace(problem, upper=bowl, lower=None if problem.lower is None else bowl)
    state, t, rule, found = agent.begin().state, jnp.int32(0), agent.outline, []
    rows = problem.train.stored, problem.valid.stored
    for number, stage in enumerate(rule.stages):
        blocks = partial(
            draw, hessian_batches=stage.hessian_batches, batch=rule.batch, sampling="blocks"
        )
        sample = jax.eval_shape(blocks, agent.key, t, t, rows)

        def before(algorithm: Any, problem: Objectives, state: Any, t: Any, sample: Any) -> Any:
            stage = algorithm.stages[number]
            estimate, cost = stage.estimate(problem, state, t, sample)
            return estimate, stage.outgoing(state, estimate, t), cost

        def after(algorithm: Any, state: Any, estimate: Any, told: Any, t: Any) -> Any:
            return algorithm.stages[number].update(state, estimate, told, told, t)

        estimate, mixed, _ = jax.eval_shape(before, rule, problem, state, t, sample)
        first = jax.make_jaxpr(before)(rule, problem, state, t, sample)
        then = jax.make_jaxpr(after)(rule, state, estimate, mixed, t)
        found += [f"{stage.repeats}", _plain(first), _plain(then)]
    return found


def _open(algorithm: Any) -> list[str]:
    """List the numbers left to the run, and the rule that estimates each."""
    found: list[str] = []

    def note(open: Deferred) -> Any:
        rule = open.compute if isinstance(open.compute, partial) else partial(open.compute)
        options = sorted(rule.keywords.items())
        where = f"{rule.func.__module__}.{rule.func.__qualname__}"
        found.append(f"{open.name}: {where} {_plain(options)}")
        return open

    swap(algorithm, note)
    return found


def _abstract(agent: Agent) -> Objectives:
    """Return the agent's objectives with the shapes of one row, the same for all agents."""

    def rows(own: Rows) -> Rows:
        shape = lambda a: jax.ShapeDtypeStruct((1, own.batch, *a.shape[2:]), a.dtype)
        count: Any = jax.ShapeDtypeStruct((), jnp.int32)
        return Rows(jax.tree.map(shape, own.data), count, own.batch, 0)

    own = agent.objectives
    train, valid = rows(own.train), rows(own.valid)
    return replace(own, train=train, valid=valid)


def _plain(written: Any) -> str:
    return ADDRESS.sub("", str(written))


def _leaves(given: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(given)]


def _digest(*parts: Any) -> str:
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            found.update(part.encode())
        else:
            found.update(f"{part.dtype}{part.shape}".encode() + np.asarray(part).tobytes())
    return found.hexdigest()
