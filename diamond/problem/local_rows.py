"""Every agent's rows, where a process may have only those of its own agents."""

import json
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any, NamedTuple

import jax
import numpy as np

from ..core.tree import Tree
from ..machine.processes import everyone
from . import validate
from .validate import Form

FEW = 100  # labels of one kind: more are numbers to regress on, not classes

Given = Tree | Callable[[], Tree]  # an agent's rows, or a function that loads them
Tally = dict[int, int] | None  # how often each label; None where no leaf looks like labels


class About(NamedTuple):
    """What is known of an agent's rows wherever they are."""

    size: int  # how many
    form: Form


class LocalRows(Sequence[Tree]):
    """One part of the rows of all agents: those loaded here, and what is known of all.

    `arranged` puts an agent's rows into their order.
    """

    def __init__(self, name: str, given: Sequence[Given], arranged: Callable[[Tree], Tree]):
        self.name, self.arranged = name, arranged
        self._given: dict[int, Given] = dict(enumerate(given))  # and not loaded
        self._rows: dict[int, Tree] = {}
        self._tallies: dict[int, Tally] = {}  # of agents elsewhere
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
        """Have the rows of these agents, if they were given."""
        for agent in sorted(self._given.keys() & set(agents)):
            rows = validate.one(self.name, agent, self._given[agent])
            self._rows[agent] = self.arranged(rows)
            del self._given[agent]

    def know(self) -> None:
        """What there is to know, where the rows of all agents are here."""
        self._learn({agent: about(rows) for agent, rows in self._rows.items()})

    def share(self) -> None:
        """What there is to know, from the processes that have the rows."""
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
            validate.alike(self.name, agent, form, self.known[0].form)

    def kept(self, here: Iterable[int]) -> "LocalRows":
        """The same without the rows of agents that are not `here`."""
        found, own = copy(self), set(here)
        found._given = {agent: given for agent, given in self._given.items() if agent in own}
        found._rows = {agent: rows for agent, rows in self._rows.items() if agent in own}
        found._tallies = {agent: t for agent, t in enumerate(self.tallies()) if agent not in own}
        return found

    def tallies(self) -> list[Tally]:
        """How often each agent has each label."""
        of = lambda agent: self._tallies[agent] if agent in self._tallies else tally(self[agent])
        return [of(agent) for agent in range(self._agents)]


def about(rows: Tree) -> About:
    """What others have to know of these rows."""
    return About(len(jax.tree.leaves(rows)[0]), validate.form(rows))


def tally(rows: Tree) -> Tally:
    """How often each label occurs; None unless just one leaf looks like labels."""
    leaves = map(np.asarray, jax.tree.leaves(rows))
    columns = [leaf for leaf in leaves if leaf.ndim == 1 and leaf.dtype.kind in "iu"]
    if len(columns) != 1:
        return None
    labels, times = np.unique(columns[0], return_counts=True)
    return dict(zip(labels.tolist(), times.tolist())) if len(labels) <= FEW else None
