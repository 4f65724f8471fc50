"""The single runs that an experiment consists of."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import NamedTuple

import jax

from ..cut import Cut
from ..problem import Problem
from ..runtimes.spmd import named
from ..stopping import checked
from .config import Experiment
from .mistakes import BadExperiment, Mistake


class Job(NamedTuple):
    """One run: its name, and the experiment cut down to it."""

    name: str
    experiment: Experiment


def jobs(experiment: Experiment) -> list[Job]:
    """Every algorithm on every network from every seed, under names that differ."""
    labels = apart([part.label for part in experiment.algorithm])
    graphs = apart([part.label for part in experiment.network])
    found = []
    parts = product(
        zip(graphs, experiment.network), zip(labels, experiment.algorithm), experiment.seed
    )
    for (graph, network), (label, algorithm), seed in parts:
        name = [label] if len(experiment.algorithm) > 1 else []
        name += [graph] if len(experiment.network) > 1 else []
        name += [f"seed{seed}"] if len(experiment.seed) > 1 else []
        one = {"network": [network], "algorithm": [algorithm], "seed": [seed]}
        found.append(Job(_plain("-".join(name) or label), experiment.model_copy(update=one)))
    return found


@contextmanager
def precision(experiment: Experiment) -> Iterator[None]:
    """Numbers of the precision that the experiment asks for."""
    with jax.enable_x64(experiment.precision == "float64"):
        yield


def build(experiment: Experiment, source: str) -> Problem:
    """The problem, once it is known to fit the networks; raises `BadExperiment`.

    One of several processes keeps the rows of its own agents only.
    """
    try:
        problem = experiment.problem.build()
    except (ValueError, TypeError, OSError, ImportError) as cause:
        raise BadExperiment(source, [Mistake("problem", str(cause))]) from cause
    made = [part.build() for part in experiment.network]
    many = len(made) > 1
    wrong = [
        Mistake(
            f"network[{i}]" if many else "network",
            f"{network.name} has {network.agents} agents, the problem has {problem.agents}; "
            f"make them as many",
        )
        for i, network in enumerate(made)
        if network.agents != problem.agents
    ]
    try:
        checked(experiment.stop, problem.metrics)
    except ValueError as cause:
        wrong.append(Mistake("stop", str(cause).removeprefix("stop: ")))
    if experiment.devices is not None:
        try:
            named(experiment.devices)
        except ValueError as cause:
            wrong.append(Mistake("devices", str(cause)))
    if wrong:
        raise BadExperiment(source, wrong)
    if experiment.devices is not None and jax.process_count() > 1:
        devices = named(experiment.devices)
        problem = problem.kept(Cut(problem.agents, len(devices)).of(jax.process_index(), devices))
    return problem


def fresh(out: Path, name: str) -> Path:
    """A folder that is not there yet: out/name, or out/name-2 and so on."""
    path, number = out / name, 1
    while path.exists():
        number += 1
        path = out / f"{name}-{number}"
    return path


def apart(names: Iterable[str]) -> list[str]:
    """The names, the second of a kind with -2 after it."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return found


def _plain(name: str) -> str:
    """A name that is safe as a folder's: "er(9, p=0.3)" becomes "er-9-p0.3"."""
    kept = "".join(c if c.isalnum() or c in "._" else "-" for c in name.replace("=", ""))
    return "-".join(filter(None, kept.split("-")))
