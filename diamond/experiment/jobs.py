"""Jobs: the single runs of an experiment."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax

from ..config.components import Component
from ..config.experiment_file import Experiment
from ..config.validation_errors import BadExperiment, Mistake
from ..engine.multi_device import resolve_devices
from ..engine.simulate import check_lower_level, check_network_kind, simulate
from ..hardware.sharding import AgentSharding
from ..metrics.measures import parse_measures
from ..metrics.stopping import check_stop
from ..problem import Problem
from ..records.run import Run
from .folder_names import folder_name, make_unique

# Errors that building a problem may raise.
BUILD_ERRORS = (ValueError, TypeError, OSError, ImportError)


class Job(NamedTuple):
    """One run: its name, and the experiment restricted to it."""

    name: str
    experiment: Experiment

    def simulate(self, problem: Problem, **options: Any) -> Run:
        """Simulate the run, with `options` of `diamond.simulate` beside those of the file."""
        experiment = self.experiment
        return simulate(
            problem,
            experiment.network[0].build(),
            experiment.algorithm[0].build(),
            experiment.rounds,
            experiment.seed[0],
            experiment.every,
            experiment.sampling,
            stop=experiment.stop,
            on_divergence=experiment.on_divergence,
            devices=experiment.devices,
            precision=experiment.product_precision,
            measure=experiment.measure,
            **options,
        )


def expand_jobs(experiment: Experiment) -> list[Job]:
    """List the runs of every algorithm on every network from every seed, with distinct names."""
    labels = make_unique([part.label for part in experiment.algorithm])
    graphs = make_unique([part.label for part in experiment.network])
    jobs = []
    parts = product(
        zip(graphs, experiment.network), zip(labels, experiment.algorithm), experiment.seed
    )
    for (graph, network), (label, algorithm), seed in parts:
        name = [label] if len(experiment.algorithm) > 1 else []
        name += [graph] if len(experiment.network) > 1 else []
        name += [f"seed{seed}"] if len(experiment.seed) > 1 else []
        components = {"network": [network], "algorithm": [algorithm], "seed": [seed]}
        jobs.append(
            Job(folder_name("-".join(name) or label), experiment.model_copy(update=components))
        )
    names = make_unique(job.name for job in jobs)
    return [job._replace(name=name) for job, name in zip(jobs, names)]


@contextmanager
def use_precision(experiment: Experiment) -> Iterator[None]:
    """Set the precision that the experiment asks for."""
    with jax.enable_x64(experiment.precision == "float64"):
        yield


def build_problem(experiment: Experiment, source: str) -> Problem:
    """Build the problem and check that it fits the networks; raises `BadExperiment`.

    In a job of several processes, each keeps only the rows of its own agents.
    """
    try:
        problem: Problem = experiment.problem.build()
    except BUILD_ERRORS as cause:
        raise BadExperiment(source, [Mistake("problem", str(cause))]) from cause
    mistakes = network_mistakes(problem, experiment.network)
    networks = [] if mistakes else experiment.network
    mistakes += method_mistakes(problem, networks, experiment.algorithm)
    try:
        measures = parse_measures(experiment.measure, problem)
        measures.check_measured(list(experiment.stop), "stop")
    except ValueError as cause:
        mistakes.append(Mistake("measure", str(cause).removeprefix("measure: ")))
    try:
        for part in experiment.network:
            check_stop(experiment.stop, problem.metrics, part.build().links)
    except ValueError as cause:
        mistakes.append(Mistake("stop", str(cause).removeprefix("stop: ")))
    if experiment.devices is not None:
        try:
            resolve_devices(experiment.devices)
        except ValueError as cause:
            mistakes.append(Mistake("devices", str(cause)))
    if mistakes:
        raise BadExperiment(source, mistakes)
    if experiment.devices is not None and jax.process_count() > 1:
        devices = resolve_devices(experiment.devices)
        problem = problem.restricted_to(
            AgentSharding(problem.agents, len(devices)).agents_of_process(
                jax.process_index(), devices
            )
        )
    return problem


def network_mistakes(problem: Problem, networks: Sequence[Component]) -> list[Mistake]:
    """List the networks whose number of agents differs from the problem's."""
    networks_built = [part.build() for part in networks]
    return [
        Mistake(
            f"network[{i}]" if len(networks_built) > 1 else "network",
            f"{network.name} has {network.agents} agents, the problem has {problem.agents}; "
            f"give both the same number",
        )
        for i, network in enumerate(networks_built)
        if network.agents != problem.agents
    ]


def method_mistakes(
    problem: Problem, networks: Sequence[Component], algorithms: Sequence[Component]
) -> list[Mistake]:
    """List the algorithms that do not solve such a problem, or not on one of the networks."""
    mistakes = []
    for i, part in enumerate(algorithms):
        try:
            check_lower_level(problem, part.build())
            for network in networks:
                check_network_kind(network.build(), part.build(), problem)
        except ValueError as cause:
            place = f"algorithm[{i}]" if len(algorithms) > 1 else "algorithm"
            mistakes.append(Mistake(place, f"{part.label}: {cause}"))
    return mistakes


def unused_folder(out: Path, name: str) -> Path:
    """Return a folder that does not exist yet: out/name, or out/name-2 and so on."""
    path, number = out / name, 1
    while path.exists():
        number += 1
        path = out / f"{name}-{number}"
    return path
