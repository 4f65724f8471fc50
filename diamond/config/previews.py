"""Previews of networks and data sets by the names that files use."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import ValidationError

from .. import data
from ..data.missing_values import count_missing, describe_missing, parse_rule
from ..data.search_folders import where
from ..network import Network
from . import partition_section, site_agents
from .components import Part, algorithm, graph, literal
from .dataset_section import Columns, found_at, load
from .validation_errors import BadExperiment, mistakes_of

T = TypeVar("T")


def network_of(text: str) -> tuple[Network, dict[str, Any]]:
    """Build the network that `text` names and describe it."""
    made: Network = _read(text, lambda: graph(text)).build()
    matrix = made.matrix
    if made.kind == "symmetric":
        more = {"smallest_eigenvalue": float(np.linalg.eigvalsh(matrix)[0])}
    else:
        pi = made.perron
        more = {"perron_least": float(pi.min()), "perron_most": float(pi.max())}
    return made, {
        "agents": made.agents,
        "kind": made.kind,
        "edges": len(made.edges),
        "mixing": made.mixing,
        "lam": made.lam,
        "gap": 1 - made.lam,
        "diameter": made.diameter,
        "rounds_to_mix": made.rounds_to_mix(),
        "degree_least": int(made.degrees.min()),
        "degree_most": int(made.degrees.max()),
        "drawn": made.draws,
        "symmetric": bool(np.array_equal(matrix, matrix.T)),
        "rows_sum_to_1": bool(np.abs(matrix.sum(1) - 1).max() < 1e-9),
        "non_negative": bool((matrix >= 0).all()),
        **more,
        **_links(made),
    }


def _links(made: Network) -> dict[str, Any]:
    """Describe the links of a network, if it has any."""
    links = made.links
    if links is None or not made.edges:
        return {}
    found: dict[str, Any] = {"rate_least": links.rate.min(), "rate_most": links.rate.max()}
    found |= {"latency_most": links.latency.max(), "loss_most": links.loss.max()}
    found = {name: float(value) for name, value in found.items()}
    return found | ({"turns": int(links.turns.max()) + 1} if links.takes_turns else {})


def algorithm_of(text: str) -> Part:
    """Read the algorithm that `text` names, perhaps a function of a file in the current folder."""
    return _read(text, lambda: algorithm(text, Path.cwd()))


def data_at_hand(folder: Path | None) -> dict[str, str | None]:
    """Return the location of each known data set; None if it is not on this machine."""
    found = {name: None if place is None else str(place) for name, place in where(folder).items()}
    return {"digits": "in the package", **found}


def dealt_out(
    files: Sequence[str],
    agents: int | None,
    partition: str | None,
    seed: int,
    folder: Path | None,
    label: str,
    site: str | None = None,
    real: bool = False,
    columns: Sequence[str] | None = None,
    hashed: int | None = None,
    text: str = "text",
    missing_values: str = "refuse",
) -> tuple[str, dict[str, Any]]:
    """Describe the rows that each agent would get, as text and as numbers."""
    source = " ".join(files)
    place = _read(source, lambda: found_at(files[0] if len(files) == 1 else [*files], Path.cwd()))
    used = None if columns is None else tuple(columns)
    rule = literal(missing_values)
    keeps = partition_section.MISSING[parse_rule(rule)]
    said = Columns(label, site, real, used, hashed, text, missing=keeps)
    found = load(place, str(folder) if folder else None, said)
    asked = {"dataset": place, "agents": agents, "partition": partition and literal(partition)}
    given = {k: v for k, v in (asked | {"site": site}).items() if v is not None}
    settings = _read(source, lambda: site_agents.resolve_agents(given, found))
    features, labels = found.train
    if "partition" in settings:
        parts = partition_section.partition_options(settings["partition"])[0](
            labels, settings["agents"], seed=seed
        )
        names = [str(k) for k in range(len(parts))]
    else:
        parts = [np.flatnonzero(found.sites == one) for one in found.places]
        names = list(found.places)
    title = f"{found.name}: {len(labels):,} rows of {features.shape[1]} features"
    missing = [*found.missing]
    if keeps == "keep":
        tables = [features[part] for part in parts]
        missing = [count_missing([own], found.names, k) for own, k in zip(tables, names)]
    title = "\n".join([title, *describe_missing(missing, rule)])
    numbers: dict[str, Any] = {
        "missing": {site: cells for site, cells, _ in missing if cells},
        "dataset": found.name,
        "rows": len(labels),
        "features": features.shape[1],
        "classes": list(found.classes),
        "names": names,
    }
    if real:
        each = [
            [len(part), float(labels[part].mean()), float(labels[part].std())] for part in parts
        ]
        numbers |= {"agents": each}
        return f"{title}\n{data.columns(['rows', 'mean', 'deviation'], names, each)}", numbers
    numbers |= {"agents": data.counts(parts, labels).tolist()}
    return f"{title}\n{data.table(parts, labels, found.classes, names)}", numbers


def _read(source: str, reader: Callable[[], T]) -> T:
    try:
        return reader()
    except ValidationError as error:
        raise BadExperiment(source, mistakes_of(error, {}, ())) from None
