"""Predictions of a run for new rows, by the preparation of the rows that it was made from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from ..core.pytrees import Tree
from ..core.suggestions import did_you_mean
from ..data import DataError
from ..data.preparation import Preparation, TableRows
from ..problem import Problem
from ..problem.prediction import LinearPrediction, Predict, class_probabilities


@dataclass(frozen=True)
class Predictor:
    """Models of all agents of a run.

    `predict` is that of the problem, `preparation` that of its rows, None if they were not read
    from a table; `agents` are the names of the agents.
    """

    predict: Predict
    preparation: Preparation | None
    agents: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.preparation and len(self.preparation.fills) not in (0, len(self.agents)):
            raise DataError(
                f"the preparation has fills of {len(self.preparation.fills)} agents, the run has "
                f"{len(self.agents)}; restore the files of the run"
            )

    @property
    def table_preparation(self) -> Preparation:
        """Return the preparation; raise if the rows were not read from a table."""
        if self.preparation is None:
            raise DataError("the rows of the run were not read from a table; predict in Python")
        return self.preparation

    def predictions(
        self, x: Tree, y: Tree, rows: TableRows | Tree, agent: str | int | None
    ) -> NDArray[Any]:
        """Return the predictions of an agent's model, from x and y of all agents."""
        number = self.agent_number(agent)
        if self.preparation is not None:
            rows = {"a": self.preparation.prepare(rows, number)}
        try:
            x, y = _of_agent((x, y), number)
            return np.asarray(self.predict(x, y, rows))
        except (TypeError, ValueError, KeyError, IndexError) as cause:
            raise DataError(
                f"the model does not take these rows ({type(cause).__name__}: {cause}); give rows "
                f"as predict(x, y, rows) of the problem takes them, or restore the files of the run"
            ) from cause

    @property
    def has_coefficients(self) -> bool:
        """Whether the model is linear in the features of a table."""
        return self.preparation is not None and isinstance(self.predict, LinearPrediction)

    def coefficients(self, y: Tree, agent: str | int | None) -> dict[str, NDArray[np.float64]]:
        """Return the coefficients of an agent's linear model, in units of the table's columns.

        Those of class probabilities are differences from the first class: log odds against it.
        """
        if not isinstance(self.predict, LinearPrediction):
            raise ValueError("the model is not linear, so columns have no coefficients; read y")
        weights = self.predict.coefficients(_of_agent(y, self.agent_number(agent)))
        found = self.table_preparation.in_table_units(*weights)
        if self.predict.of_scores is not class_probabilities:
            return found
        return {name: values[1:] - values[:1] for name, values in found.items()}

    def coefficient_table(self, y: Tree) -> dict[str, list[float]]:
        """Return the coefficients of all agents by entry, such as "age" or "age, yes"."""
        table: dict[str, list[float]] = {}
        for agent in range(len(self.agents)):
            for name, values in self.coefficients(y, agent).items():
                flat = np.atleast_1d(values)
                classes = self.table_preparation.classes[-len(flat) :] if values.ndim else ()
                entries = [f"{name}, {label}" for label in classes] if len(flat) > 1 else [name]
                for entry, value in zip(entries, flat.tolist()):
                    table.setdefault(entry, []).append(value)
        return table

    @property
    def coefficient_meaning(self) -> str:
        """Return what a coefficient is, in words."""
        preparation = self.table_preparation
        classes = preparation.classes
        if not classes:
            return f"{preparation.label} per unit of a column"
        if self.predict != LinearPrediction(class_probabilities):
            return "score per unit of a column"
        first = f"{classes[1]} " if len(classes) == 2 else ""
        return f"log odds of {first}against {classes[0]}, per unit of a column"

    def agent_number(self, agent: str | int | None) -> int:
        """Return the number of an agent by its name or number; None: of the only agent."""
        if agent is None and len(self.agents) == 1:
            return 0
        if isinstance(agent, str) and agent in self.agents:
            return self.agents.index(agent)
        if agent is not None and str(agent).isdecimal() and int(agent) < len(self.agents):
            return int(agent)
        known = f"name one of {', '.join(self.agents)}, whose model predicts"
        wrong = f"no agent {agent!r}; {did_you_mean(agent, self.agents)}"
        raise DataError(known if agent is None else wrong)


def problem_predictor(problem: Problem) -> Predictor | None:
    """Return the predictor of a run of a problem; None if the problem does not predict."""
    if problem.predict is None:
        return None
    return Predictor(
        problem.predict, problem.preparation, agent_names(problem.agent_names, problem.agents)
    )


def agent_names(names: Sequence[str] | None, agents: int) -> tuple[str, ...]:
    """Return the names of the agents, by their numbers if they have none."""
    return tuple(names or [f"agent {i}" for i in range(agents)])


def _of_agent(tree: Tree, agent: int) -> Tree:
    return jax.tree.map(lambda leaf: leaf[agent], tree)
