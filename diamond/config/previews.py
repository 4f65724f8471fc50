"""Previews of networks and data sets by the names that files use."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import data
from ..data.missing_values import count_missing, describe_missing
from ..data.standard_datasets import find_folders
from ..network import Network
from . import partition_section, site_agents
from .components import Component, parse_literal, read_algorithm, read_network
from .dataset_section import load_dataset, resolve_paths
from .validation_errors import report_mistakes


def preview_network(text: str) -> tuple[Network, dict[str, Any]]:
    """Build the network that `text` names and describe it."""
    network: Network = report_mistakes(text, lambda: read_network(text)).build()
    matrix = network.matrix
    if network.kind == "symmetric":
        extra = {"smallest_eigenvalue": float(np.linalg.eigvalsh(matrix)[0])}
    else:
        pi = network.perron
        extra = {"perron_least": float(pi.min()), "perron_most": float(pi.max())}
    return network, {
        "agents": network.agents,
        "kind": network.kind,
        "edges": len(network.edges),
        "mixing": network.mixing,
        "lam": network.lam,
        "gap": 1 - network.lam,
        "diameter": network.diameter,
        "rounds_to_mix": network.rounds_to_mix(),
        "degree_least": int(network.degrees.min()),
        "degree_most": int(network.degrees.max()),
        "drawn": network.draws,
        "tolerated_liars": network.tolerated_liars,
        "symmetric": bool(np.array_equal(matrix, matrix.T)),
        "rows_sum_to_1": bool(np.abs(matrix.sum(1) - 1).max() < 1e-9),
        "non_negative": bool((matrix >= 0).all()),
        **extra,
        **_describe_links(network),
    }


def _describe_links(network: Network) -> dict[str, Any]:
    """Describe the links of a network, if it has any."""
    links = network.links
    if links is None or not network.edges:
        return {}
    description: dict[str, Any] = {"rate_least": links.rate.min(), "rate_most": links.rate.max()}
    description |= {"latency_most": links.latency.max(), "loss_most": links.loss.max()}
    description = {name: float(value) for name, value in description.items()}
    return description | ({"turns": int(links.turns.max()) + 1} if links.takes_turns else {})


def read_named_algorithm(text: str) -> Component:
    """Read the algorithm that `text` names, perhaps a function of a file in the current folder."""
    return report_mistakes(text, lambda: read_algorithm(text, Path.cwd()))


def locate_datasets(folder: Path | None) -> dict[str, str | None]:
    """Return the location of each known data set; None if it is not on this machine."""
    locations = {
        name: None if place is None else str(place) for name, place in find_folders(folder).items()
    }
    return {"digits": "in the package", **locations}


def preview_partition(
    files: Sequence[str],
    agents: int | None,
    partition: str | None,
    seed: int,
    folder: Path | None,
    **column_options: Any,
) -> tuple[str, dict[str, Any]]:
    """Describe the rows that each agent would get, as text and as numbers.

    `column_options` are those of the columns in `partition_rows`.
    """
    source = " ".join(files)
    place = report_mistakes(
        source, lambda: resolve_paths(files[0] if len(files) == 1 else [*files], Path.cwd())
    )
    treatment = parse_literal(column_options.get("missing_values", "refuse"))
    columns = partition_section.parse_columns(column_options | {"missing_values": treatment})
    dataset = load_dataset(place, str(folder) if folder else None, columns)
    options = {
        "dataset": place,
        "agents": agents,
        "partition": partition and parse_literal(partition),
        "site": columns.site,
    }
    table = {k: v for k, v in options.items() if v is not None}
    settings = report_mistakes(source, lambda: site_agents.resolve_agents(table, dataset))
    features, labels = dataset.train
    if "partition" in settings:
        parts = partition_section.partition_options(settings["partition"])[0](
            labels, settings["agents"], seed=seed
        )
        names = [str(k) for k in range(len(parts))]
    else:
        parts = [np.flatnonzero(dataset.sites == site_name) for site_name in dataset.places]
        names = list(dataset.places)
    title = f"{dataset.name}: {len(labels):,} rows of {features.shape[1]} features"
    missing = [*dataset.missing]
    if columns.missing_values == "keep":
        tables = [features[part] for part in parts]
        missing = [count_missing([table], dataset.owners, k) for table, k in zip(tables, names)]
    title = "\n".join([title, *describe_missing(missing, treatment)])
    numbers: dict[str, Any] = {
        "missing": {site: cells for site, cells, _ in missing if cells},
        "dataset": dataset.name,
        "rows": len(labels),
        "features": features.shape[1],
        "columns": list(dataset.names),
        "classes": list(dataset.classes),
        "names": names,
    }
    if columns.real:
        row_stats = [
            [len(part), float(labels[part].mean()), float(labels[part].std())] for part in parts
        ]
        numbers |= {"agents": row_stats}
        return f"{title}\n{data.columns(['rows', 'mean', 'deviation'], names, row_stats)}", numbers
    numbers |= {"agents": data.counts(parts, labels).tolist()}
    return f"{title}\n{data.table(parts, labels, dataset.classes, names)}", numbers
