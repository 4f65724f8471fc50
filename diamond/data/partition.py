"""Partitions of rows over agents: each function returns one index array per agent.

Every row goes to exactly one agent, every agent gets at least one row, and the same seed gives the
same partition.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import apportionment
from .dataset import DataError

Indices = NDArray[np.int64]
MOST_DRAWS = 1000  # draws before a Dirichlet partition is refused


def iid(labels_or_n: ArrayLike, agents: int, seed: int) -> list[Indices]:
    """Assign rows, given their labels or number, at random in shares equal up to one row."""
    n = apportionment.count_rows(labels_or_n)
    apportionment.check_enough_rows(n, agents)
    order = apportionment.generator(seed).permutation(n)
    return [np.sort(part) for part in np.array_split(order, agents)]


def by_label(labels: ArrayLike, agents: int, seed: int, shards: int = 1) -> list[Indices]:
    """Sort rows by label, cut them into agents x shards runs, and assign `shards` runs to each.

    Args:
        labels: Labels of the rows.
        agents: Number of agents.
        seed: Seed of the random assignment of the runs.
        shards: Runs per agent; with 1, an agent gets one contiguous run.
    """
    row_labels = apportionment.label_vector(labels)
    if apportionment.check_int("shards", shards) < 1:
        raise DataError(f"{shards} shards an agent; give at least 1")
    apportionment.check_enough_rows(len(row_labels), agents)
    if len(row_labels) < agents * shards:
        raise DataError(
            f"{agents} agents x {shards} shards = {agents * shards} runs, more than the "
            f"{len(row_labels)} rows; use at most {len(row_labels) // agents} shards"
        )
    runs = np.array_split(np.argsort(row_labels, kind="stable"), agents * shards)
    assignment = apportionment.generator(seed).permutation(agents * shards).reshape(agents, shards)
    return [np.concatenate([runs[k] for k in shards_of_agent]) for shards_of_agent in assignment]


def dirichlet(
    labels: ArrayLike, agents: int, concentration: float, seed: int, minimum: int = 1
) -> list[Indices]:
    """Split the rows of each label in shares drawn from a symmetric Dirichlet distribution.

    Draw k = 0, 1, ... uses the generator seeded by (seed, k); the first draw in which every agent
    has at least `minimum` rows is taken.

    Args:
        labels: Labels of the rows.
        agents: Number of agents.
        concentration: Parameter of the distribution; small values give unequal shares.
        seed: Seed of the draws.
        minimum: Smallest number of rows of an agent.
    """
    row_labels = apportionment.label_vector(labels)
    if not (np.isfinite(concentration) and concentration > 0):
        raise DataError(f"concentration {concentration}; give a finite number above 0")
    apportionment.check_enough_rows(
        len(row_labels), agents, max(apportionment.check_int("minimum", minimum), 1)
    )
    classes, class_of_row = np.unique(row_labels, return_inverse=True)
    groups = [np.flatnonzero(class_of_row == k) for k in range(len(classes))]
    for k in range(MOST_DRAWS):
        generator = apportionment.generator(seed, k)
        pieces_of_agents: list[list[Indices]] = [[] for _ in range(agents)]
        for group in groups:
            shares = generator.dirichlet(np.full(agents, float(concentration)))
            if not np.isfinite(shares).all():
                raise DataError(f"concentration {concentration} overflows; give one nearer to 1")
            cuts = (np.cumsum(shares)[:-1] * len(group)).astype(np.int64).clip(max=len(group))
            for pieces, part in zip(
                pieces_of_agents, np.split(generator.permutation(group), cuts), strict=True
            ):
                pieces.append(part)
        parts = [np.sort(np.concatenate(pieces)) for pieces in pieces_of_agents]
        if min(map(len, parts)) >= max(minimum, 1):
            return parts
    smallest = int(np.argmin([len(part) for part in parts]))
    raise DataError(
        f"agent {smallest} got {len(parts[smallest])} rows in the last of {MOST_DRAWS} Dirichlet "
        f"draws, fewer than {max(minimum, 1)}: {len(row_labels)} rows over {agents} agents at "
        f"concentration {concentration}; use a larger concentration, fewer agents or a smaller "
        f"minimum"
    )


def by_column(values: ArrayLike) -> list[Indices]:
    """Assign each site its own rows; `values` are the sites, which come in ascending order."""
    sites = np.asarray(values)
    if sites.ndim != 1 or not sites.size:
        raise DataError(f"sites of shape {sites.shape}; name one site a row")
    names, site_of_row = np.unique(sites, return_inverse=True)
    return [np.flatnonzero(site_of_row == k) for k in range(len(names))]


def unequal(
    labels_or_n: ArrayLike,
    agents: int,
    seed: int,
    *,
    ratio: float | None = None,
    proportions: Sequence[float] | None = None,
) -> list[Indices]:
    """Assign rows at random in unequal shares.

    Args:
        labels_or_n: Labels of the rows, or the number of rows.
        agents: Number of agents.
        seed: Seed of the assignment.
        ratio: Agent i gets a share proportional to ratio ** i.
        proportions: Agent i gets a share proportional to proportions[i].
    """
    n = apportionment.count_rows(labels_or_n)
    apportionment.check_int("agents", agents)
    if (ratio is None) == (proportions is None):
        raise DataError("give either ratio or proportions")
    if ratio is not None:
        if not (np.isfinite(ratio) and ratio > 0):
            raise DataError(f"ratio {ratio}; give a finite number above 0")
        power = np.arange(agents) - (agents - 1 if ratio > 1 else 0)  # the largest weight is 1
        weights = np.asarray(float(ratio) ** power, np.float64)
    else:
        weights = np.asarray(proportions, np.float64)
        if weights.shape != (agents,):
            raise DataError(f"{weights.size} proportions for {agents} agents; give one an agent")
    apportionment.check_enough_rows(n, agents)
    sizes = apportionment.apportion(n, weights)
    for agent, size in enumerate(sizes):
        if size == 0:
            raise DataError(
                f"agent {agent} would get 0 rows: a share of {weights[agent] / weights.sum():.2g} "
                f"of {n} rows; use fewer agents or more equal shares"
            )
    order = apportionment.generator(seed).permutation(n)
    return [np.sort(part) for part in np.split(order, np.cumsum(sizes)[:-1])]


def split(
    parts: Sequence[ArrayLike], fractions: Sequence[float], seed: int, first: int = 0
) -> list[list[Indices]]:
    """Split each agent's rows at random: `train, valid, test = split(parts, (0.4, 0.4, 0.2), 0)`.

    The split of agent i uses the generator seeded by (seed, i + 1), independently of the others.

    Args:
        parts: Index array of each agent.
        fractions: Fraction of the rows in each part.
        seed: Seed of the splits.
        first: Number of the first agent in `parts`.

    Returns:
        For each fraction, one index array per agent.
    """
    if abs(sum(fractions) - 1) > 1e-9:
        raise DataError(f"fractions {tuple(fractions)} sum to {sum(fractions):g}; make it 1")
    result: list[list[Indices]] = [[] for _ in fractions]
    for agent, part in enumerate(parts):
        rows = np.asarray(part, np.int64)
        sizes = apportionment.apportion(len(rows), np.asarray(fractions, np.float64))
        if 0 in sizes:
            raise DataError(
                f"agent {agent} has {len(rows)} rows, which leaves fraction "
                f"{fractions[int(np.argmin(sizes))]:g} with none; give it more rows"
            )
        order = apportionment.generator(seed, first + agent + 1).permutation(rows)
        for indices_of_part, piece in zip(
            result, np.split(order, np.cumsum(sizes)[:-1]), strict=True
        ):
            indices_of_part.append(np.sort(piece))
    return result
