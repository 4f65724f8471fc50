"""Rows of every agent; a process may have loaded only the rows of its own agents."""

import json
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any, NamedTuple

import jax
import numpy as np

from ..core.pytrees import Tree
from ..hardware.processes import everyone
from . import problem_validation
from .problem_validation import Form

FEW = 100  # most distinct labels: with more, the numbers are regression targets

Given = Tree | Callable[[], Tree]  # an agent's rows, or a function that loads the rows
Tally = dict[int, int] | None  # count of each label; None if no leaf looks like labels


class About(NamedTuple):
    """Facts about an agent's rows that every process needs."""

    size: int  # number of rows
    form: Form


class LocalRows(Sequence[Tree]):
    """One part of the rows of all agents: the loaded rows, and facts about all rows.

    `arranged` puts an agent's rows into their order.
    """

    def __init__(self, name: str, given: Sequence[Given], arranged: Callable[[Tree], Tree]):
        self.name, self.arranged = name, arranged
        self._given: dict[int, Given] = dict(enumerate(given))  # not loaded yet
        self._rows: dict[int, Tree] = {}
        self._tallies: dict[int, Tally] = {}  # of agents in other processes
        self._agents, self.known = len(given), list[About]()

    def __len__(self) -> int:
        return self._agents

    def __getitem__(self, agent: int) -> Tree:  # type: ignore[override]
        agent = range(self._agents)[agent]
        if agent not in self._rows:
            raise LookupError(
                f"agent {agent}'s {self.name} rows are in another process of this job; cut the run "
                f"over all of them, simulate(..., devices='all'), and each works on its own"
            )
        return self._rows[agent]

    def load(self, agents: Iterable[int]) -> None:
        """Load the rows of these agents, if they were given."""
        for agent in sorted(self._given.keys() & set(agents)):
            rows = problem_validation.one(self.name, agent, self._given[agent])
            self._rows[agent] = self.arranged(rows)
            del self._given[agent]

    def know(self) -> None:
        """Record the facts, in a process that has the rows of all agents."""
        self._learn({agent: about(rows) for agent, rows in self._rows.items()})

    def share(self) -> None:
        """Exchange the facts with the processes that have the other rows."""
        own = {agent: [*about(rows), tally(rows)] for agent, rows in self._rows.items()}
        told: dict[int, Any] = {}
        for said in everyone(json.dumps(own).encode()):
            told |= {int(agent): known for agent, known in json.loads(said).items()}
        self._learn({agent: About(n, Form(*form)) for agent, (n, form, _) in told.items()})
        labels = {agent: known[2] for agent, known in told.items() if agent not in own}
        self._tallies = {a: t and {int(k): n for k, n in t.items()} for a, t in labels.items()}

    def _learn(self, known: dict[int, About]) -> None:
        self.known = [known[agent] for agent in range(self._agents)]
        for agent, (_, form) in enumerate(self.known):
            problem_validation.alike(self.name, agent, form, self.known[0].form)

    def restricted_to(self, here: Iterable[int]) -> "LocalRows":
        """Return the same object without the rows of agents that are not in `here`."""
        found, own = copy(self), set(here)
        found._given = {agent: given for agent, given in self._given.items() if agent in own}
        found._rows = {agent: rows for agent, rows in self._rows.items() if agent in own}
        found._tallies = {agent: t for agent, t in enumerate(self.tallies()) if agent not in own}
        return found

    def tallies(self) -> list[Tally]:
        """Return how often each agent has each label."""
        of = lambda agent: self._tallies[agent] if agent in self._tallies else tally(self[agent])
        return [of(agent) for agent in range(self._agents)]


def about(rows: Tree) -> About:
    """Return the facts about these rows that other processes need."""
    return About(len(jax.tree.leaves(rows)[0]), problem_validation.form(rows))


def tally(rows: Tree) -> Tally:
    """Count each label; return None unless exactly one leaf looks like labels."""
    leaves = map(np.asarray, jax.tree.leaves(rows))
    columns = [leaf for leaf in leaves if leaf.ndim == 1 and leaf.dtype.kind in "iu"]
    if len(columns) != 1:
        return None
    labels, times = np.unique(columns[0], return_counts=True)
    return dict(zip(labels.tolist(), times.tolist())) if len(labels) <= FEW else None
