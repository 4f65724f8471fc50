"""Jobs: the single runs of an experiment."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import NamedTuple

import jax

from ..config.components import Part
from ..config.experiment_file import Experiment
from ..config.validation_errors import BadExperiment, Mistake
from ..engine.multi_device import named
from ..engine.simulate import fits, suits
from ..hardware.sharding import AgentSharding
from ..metrics.measures import parse_measures
from ..metrics.stopping import checked
from ..problem import Problem
from .folder_names import apart, folder_name

FAULTS = (ValueError, TypeError, OSError, ImportError)  # errors that building a problem may raise


class Job(NamedTuple):
    """One run: its name, and the experiment restricted to it."""

    name: str
    experiment: Experiment


def jobs(experiment: Experiment) -> list[Job]:
    """List the runs of every algorithm on every network from every seed, with distinct names."""
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
        found.append(Job(folder_name("-".join(name) or label), experiment.model_copy(update=one)))
    names = apart(job.name for job in found)
    return [job._replace(name=name) for job, name in zip(found, names)]


@contextmanager
def precision(experiment: Experiment) -> Iterator[None]:
    """Set the precision that the experiment asks for."""
    with jax.enable_x64(experiment.precision == "float64"):
        yield


def build(experiment: Experiment, source: str) -> Problem:
    """Build the problem and check that it fits the networks; raises `BadExperiment`.

    In a job of several processes, each keeps only the rows of its own agents.
    """
    try:
        problem: Problem = experiment.problem.build()
    except FAULTS as cause:
        raise BadExperiment(source, [Mistake("problem", str(cause))]) from cause
    wrong = misfits(problem, experiment.network) + unfit(problem, experiment.algorithm)
    wrong = wrong or unsuited(problem, experiment.network, experiment.algorithm)
    try:
        measures = parse_measures(experiment.measure, problem)
        measures.refuse_unmeasured(list(experiment.stop), "stop")
    except ValueError as cause:
        wrong.append(Mistake("measure", str(cause).removeprefix("measure: ")))
    try:
        for part in experiment.network:
            checked(experiment.stop, problem.metrics, part.build().links)
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
        problem = problem.restricted_to(
            AgentSharding(problem.agents, len(devices)).of(jax.process_index(), devices)
        )
    return problem


def misfits(problem: Problem, networks: Sequence[Part]) -> list[Mistake]:
    """List the networks whose number of agents differs from the problem's."""
    made = [part.build() for part in networks]
    return [
        Mistake(
            f"network[{i}]" if len(made) > 1 else "network",
            f"{network.name} has {network.agents} agents, the problem has {problem.agents}; "
            f"make them as many",
        )
        for i, network in enumerate(made)
        if network.agents != problem.agents
    ]


def unfit(problem: Problem, algorithms: Sequence[Part]) -> list[Mistake]:
    """List the algorithms that do not solve such a problem."""
    found = []
    for i, part in enumerate(algorithms):
        try:
            fits(problem, part.build())
        except ValueError as cause:
            where = f"algorithm[{i}]" if len(algorithms) > 1 else "algorithm"
            found.append(Mistake(where, f"{part.label}: {cause}"))
    return found


def unsuited(
    problem: Problem, networks: Sequence[Part], algorithms: Sequence[Part]
) -> list[Mistake]:
    """List the algorithms that would converge to a different point on one of the networks."""
    found = []
    for i, part in enumerate(algorithms):
        for one in networks:
            try:
                suits(one.build(), part.build(), problem)
            except ValueError as cause:
                where = f"algorithm[{i}]" if len(algorithms) > 1 else "algorithm"
                found.append(Mistake(where, f"{part.label}: {cause}"))
                break
    return found


def fresh(out: Path, name: str) -> Path:
    """Return a folder that does not exist yet: out/name, or out/name-2 and so on."""
    path, number = out / name, 1
    while path.exists():
        number += 1
        path = out / f"{name}-{number}"
    return path
