"""Partitions of rows over agents: each function returns one index array per agent.

Every row goes to exactly one agent, every agent gets at least one row, and the same seed gives the
same partition.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import apportionment
from .dataset import DataError

Part = NDArray[np.int64]
TRIES = 1000  # draws before a Dirichlet partition is refused


def iid(labels_or_n: ArrayLike, agents: int, seed: int) -> list[Part]:
    """Assign rows at random, in shares that differ by at most one row.

    Args:
        labels_or_n: Labels of the rows, or the number of rows.
        agents: Number of agents.
        seed: Seed of the assignment.

    Returns:
        One index array per agent.
    """
    n = apportionment.rows(labels_or_n)
    apportionment.enough(n, agents)
    order = apportionment.generator(seed).permutation(n)
    return [np.sort(part) for part in np.array_split(order, agents)]


def by_label(labels: ArrayLike, agents: int, seed: int, shards: int = 1) -> list[Part]:
    """Sort rows by label, cut them into agents x shards runs, and assign `shards` runs to each.

    Args:
        labels: Labels of the rows.
        agents: Number of agents.
        seed: Seed of the random assignment of the runs.
        shards: Runs per agent; with 1, an agent gets one contiguous run.

    Returns:
        One index array per agent.
    """
    marks = apportionment.vector(labels)
    if apportionment.counted("shards", shards) < 1:
        raise DataError(f"{shards} shards an agent; give at least 1")
    apportionment.enough(len(marks), agents)
    if len(marks) < agents * shards:
        raise DataError(
            f"{agents} agents x {shards} shards = {agents * shards} runs, more than the "
            f"{len(marks)} rows; use at most {len(marks) // agents} shards"
        )
    runs = np.array_split(np.argsort(marks, kind="stable"), agents * shards)
    dealt = apportionment.generator(seed).permutation(agents * shards).reshape(agents, shards)
    return [np.concatenate([runs[k] for k in hand]) for hand in dealt]


def dirichlet(
    labels: ArrayLike, agents: int, concentration: float, seed: int, minimum: int = 1
) -> list[Part]:
    """Split the rows of each label in shares drawn from a symmetric Dirichlet distribution.

    Draw k = 0, 1, ... uses the generator seeded by (seed, k); the first draw in which every agent
    has at least `minimum` rows is taken.

    Args:
        labels: Labels of the rows.
        agents: Number of agents.
        concentration: Parameter of the distribution; small values give unequal shares.
        seed: Seed of the draws.
        minimum: Smallest number of rows of an agent.

    Returns:
        One index array per agent.
    """
    marks = apportionment.vector(labels)
    if not (np.isfinite(concentration) and concentration > 0):
        raise DataError(f"concentration {concentration}; give a finite number above 0")
    apportionment.enough(len(marks), agents, max(apportionment.counted("minimum", minimum), 1))
    found, owners = np.unique(marks, return_inverse=True)
    groups = [np.flatnonzero(owners == k) for k in range(len(found))]
    for k in range(TRIES):
        random = apportionment.generator(seed, k)
        hands: list[list[Part]] = [[] for _ in range(agents)]
        for group in groups:
            drawn = random.dirichlet(np.full(agents, float(concentration)))
            if not np.isfinite(drawn).all():
                raise DataError(f"concentration {concentration} overflows; give one nearer to 1")
            cuts = (np.cumsum(drawn)[:-1] * len(group)).astype(np.int64).clip(max=len(group))
            for hand, part in zip(hands, np.split(random.permutation(group), cuts), strict=True):
                hand.append(part)
        parts = [np.sort(np.concatenate(hand)) for hand in hands]
        if min(map(len, parts)) >= max(minimum, 1):
            return parts
    least = int(np.argmin([len(part) for part in parts]))
    raise DataError(
        f"agent {least} got {len(parts[least])} rows in the last of {TRIES} Dirichlet draws, fewer "
        f"than {max(minimum, 1)}: {len(marks)} rows over {agents} agents at concentration "
        f"{concentration}; use a larger concentration, fewer agents or a smaller minimum"
    )


def by_column(values: ArrayLike) -> list[Part]:
    """Assign each site its own rows.

    Args:
        values: Site of each row.

    Returns:
        One index array per site, in ascending order of the names.
    """
    sites = np.asarray(values)
    if sites.ndim != 1 or not sites.size:
        raise DataError(f"sites of shape {sites.shape}; name one site a row")
    names, owners = np.unique(sites, return_inverse=True)
    return [np.flatnonzero(owners == k) for k in range(len(names))]


def unequal(
    labels_or_n: ArrayLike,
    agents: int,
    seed: int,
    *,
    ratio: float | None = None,
    proportions: Sequence[float] | None = None,
) -> list[Part]:
    """Assign rows at random in unequal shares.

    Args:
        labels_or_n: Labels of the rows, or the number of rows.
        agents: Number of agents.
        seed: Seed of the assignment.
        ratio: Agent i gets a share proportional to ratio ** i.
        proportions: Agent i gets a share proportional to proportions[i].

    Returns:
        One index array per agent.
    """
    n = apportionment.rows(labels_or_n)
    apportionment.counted("agents", agents)
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
    apportionment.enough(n, agents)
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
) -> list[list[Part]]:
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
    result: list[list[Part]] = [[] for _ in fractions]
    for agent, part in enumerate(parts):
        rows = np.asarray(part, np.int64)
        sizes = apportionment.apportion(len(rows), np.asarray(fractions, np.float64))
        if 0 in sizes:
            raise DataError(
                f"agent {agent} has {len(rows)} rows, which leaves fraction "
                f"{fractions[int(np.argmin(sizes))]:g} with none; give it more rows"
            )
        order = apportionment.generator(seed, first + agent + 1).permutation(rows)
        for kind, piece in zip(result, np.split(order, np.cumsum(sizes)[:-1]), strict=True):
            kind.append(np.sort(piece))
    return result
