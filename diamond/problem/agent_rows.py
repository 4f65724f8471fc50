"""Rows of every agent; a process may have loaded only the rows of its own agents."""

import json
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any, NamedTuple

import jax
import numpy as np

from ..core.pytrees import Tree
from ..hardware.processes import gather_messages
from . import row_validation
from .row_validation import RowForm

MOST_LABELS = 100  # most distinct labels: with more, the numbers are regression targets

RowsOrLoader = Tree | Callable[[], Tree]  # an agent's rows, or a function that loads the rows
LabelCounts = dict[int, int] | None  # count of each label; None if no leaf looks like labels


class RowFacts(NamedTuple):
    """Facts about an agent's rows that every process needs."""

    size: int  # number of rows
    form: RowForm


class AgentRows(Sequence[Tree]):
    """One part of the rows of all agents: the loaded rows, and facts about all rows.

    `arrange` puts an agent's rows into their order.
    """

    def __init__(self, name: str, sources: Sequence[RowsOrLoader], arrange: Callable[[Tree], Tree]):
        self.name, self.arrange = name, arrange
        self._sources: dict[int, RowsOrLoader] = dict(enumerate(sources))  # not loaded yet
        self._rows: dict[int, Tree] = {}
        self._other_label_counts: dict[int, LabelCounts] = {}  # of agents in other processes
        self._agents, self.facts = len(sources), list[RowFacts]()

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

    @property
    def loaded(self) -> dict[int, Tree]:
        """Rows of the agents that this process has, by agent."""
        return dict(self._rows)

    def load(self, agents: Iterable[int]) -> None:
        """Load the rows of these agents, if they were given."""
        for agent in sorted(self._sources.keys() & set(agents)):
            rows = row_validation.load_rows(self.name, agent, self._sources[agent])
            self._rows[agent] = self.arrange(rows)
            del self._sources[agent]

    def record_sizes(self) -> None:
        """Record the facts, in a process that has the rows of all agents."""
        self._set_facts({agent: row_facts(rows) for agent, rows in self._rows.items()})

    def exchange_sizes(self) -> None:
        """Exchange the facts with the processes that have the other rows."""
        local = {
            agent: [*row_facts(rows), count_labels(rows)] for agent, rows in self._rows.items()
        }
        received: dict[int, Any] = {}
        for message in gather_messages(json.dumps(local).encode()):
            received |= {int(agent): entry for agent, entry in json.loads(message).items()}
        self._set_facts(
            {agent: RowFacts(n, RowForm(*form)) for agent, (n, form, _) in received.items()}
        )
        labels = {agent: entry[2] for agent, entry in received.items() if agent not in local}
        self._other_label_counts = {
            a: t and {int(k): n for k, n in t.items()} for a, t in labels.items()
        }

    def _set_facts(self, facts: dict[int, RowFacts]) -> None:
        self.facts = [facts[agent] for agent in range(self._agents)]
        for agent, (_, form) in enumerate(self.facts):
            row_validation.check_same_form(self.name, agent, form, self.facts[0].form)

    def restricted_to(self, agents: Iterable[int]) -> "AgentRows":
        """Return the same object without the rows of agents that are not in `agents`."""
        restricted, selected = copy(self), set(agents)
        restricted._sources = {
            agent: source for agent, source in self._sources.items() if agent in selected
        }
        restricted._rows = {agent: rows for agent, rows in self._rows.items() if agent in selected}
        restricted._other_label_counts = {
            agent: counts
            for agent, counts in enumerate(self.label_counts())
            if agent not in selected
        }
        return restricted

    def select(self, agents: Sequence[int]) -> "AgentRows":
        """Return the rows of these agents only, numbered from 0."""
        selected = AgentRows(self.name, [], self.arrange)
        selected._agents = len(agents)
        selected._rows = {place: self[agent] for place, agent in enumerate(agents)}
        selected.facts = [self.facts[agent] for agent in agents]
        return selected

    def pooled(self) -> "AgentRows":
        """Return the rows of all agents as those of one agent."""
        join = lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves])
        pooled = AgentRows(self.name, [jax.tree.map(join, *self)], self.arrange)
        pooled.load([0])
        pooled.record_sizes()
        return pooled

    def label_counts(self) -> list[LabelCounts]:
        """Return how often each agent has each label."""
        counts_of = lambda agent: (
            self._other_label_counts[agent]
            if agent in self._other_label_counts
            else count_labels(self[agent])
        )
        return [counts_of(agent) for agent in range(self._agents)]


def row_facts(rows: Tree) -> RowFacts:
    """Return the facts about these rows that other processes need."""
    return RowFacts(len(jax.tree.leaves(rows)[0]), row_validation.row_form(rows))


def count_labels(rows: Tree) -> LabelCounts:
    """Count each label; return None unless exactly one leaf looks like labels."""
    leaves = map(np.asarray, jax.tree.leaves(rows))
    columns = [leaf for leaf in leaves if leaf.ndim == 1 and leaf.dtype.kind in "iu"]
    if len(columns) != 1:
        return None
    labels, counts = np.unique(columns[0], return_counts=True)
    return dict(zip(labels.tolist(), counts.tolist())) if len(labels) <= MOST_LABELS else None
