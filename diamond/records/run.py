"""The result of a run."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..core.pytrees import Tree
from ..core.suggestions import did_you_mean
from ..data.preparation import TableRows
from .predictor import Predictor
from .run_data import RunData

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .run_summary import RunSummary


@dataclass(frozen=True, repr=False)
class Run(RunData):
    """Result of a run: its answer, measurements and costs.

    `x` and `y` are those of `best`, the evaluation with the smallest upper loss. If `best` is None,
    they are those of the last round, and `message` says why.

    Attributes:
        last_x: x of all agents after the last round, from which a resumed run continues.
        last_y: y of all agents after the last round.
        history: One entry per evaluation, round 0 included: `round`; the measures of
            `diamond.metrics.exact_measures`; `samples`, `gradients`, `hvps`, `jvps` (oracle
            calls in rows, mean over the agents); `bytes` (sent over all edges, both ways);
            `curvature` (largest eigenvalue of g_yy on a few mini-batches); `seconds` (of the
            rounds, without compiling and measuring); if the network has links,
            `network_seconds` (simulated time on them, `diamond.network.links`), and
            perhaps `joules`.
        per_agent: Measures of each agent, (evaluations, agents).
        costs: Final counts of every agent.
        traffic: Bytes sent over each edge, both ways together.
        resolved: Numbers that the run estimated (L_g, ...).
        best: Evaluated point with the smallest upper loss (`diamond.records.best_point`). None if
            the upper loss is not measured or never finite, if x and y are too large to be stored
            twice, and in a private run.
        status: "finished" or "diverged".
        message: Reason of an early end, and the round of x and y if it is not the last.
        config: Requested settings.
        problem: Problem of the run; None if `diamond.load` cannot rebuild it.
        snapshot: State that `simulate(..., resume=run)` continues from; None if the run cannot be
            resumed.
        inputs: Plain description of the network and the algorithm, which `resume` compares.
        cooperation: Scores beside those of learning alone, by `diamond.compare_alone`; or None.
        stored_predictor: Predictor of the run folder that the run was loaded from.

    Example:
        >>> problem = diamond.gallery.quadratic(agents=4, upper=3, lower=3, rows=20)
        >>> network = diamond.network.ring(4)
        >>> run = diamond.simulate(problem, network, diamond.dsgd(batch=4), rounds=2)
        >>> run.x.shape, run.history["round"].tolist()
        ((4, 3), [0, 1, 2])
    """

    @property
    def description(self) -> str:
        """Return the choice of `diamond.solve` and its reason; empty for other runs."""
        return str(self.config.get("description", ""))

    def predict(self, rows: TableRows | Tree, agent: str | int | None = None) -> NDArray[Any]:
        """Predict new rows by the model of one agent, x and its y.

        Args:
            rows: If the problem was read from tables: the path of a table, its columns by name
                (also a DataFrame), or an array with the columns in order, which are prepared as
                those of the run. Otherwise rows as the problem's `predict` takes them.
            agent: Name or number of the agent; may be absent if there is only one.

        Returns:
            One number per row, or one per row and class, such as the probability; the classes are
            those of `predictor.preparation.classes`.

        Raises:
            DataError: The table differs from those of the run; the message names the column.
        """
        return self._require_predictor().predictions(self.x, self.y, rows, agent)

    def coefficients(self, agent: str | int | None = None) -> dict[str, NDArray[np.float64]]:
        """Return the coefficients of one agent's linear model, in units of the table's columns.

        Args:
            agent: Name or number of the agent; may be absent if there is only one.

        Returns:
            For each feature, and for "intercept", its coefficient; one per class if there are
            classes.
        """
        return self._require_predictor().coefficients(self.y, agent)

    def _require_predictor(self) -> Predictor:
        if self.predictor is None:
            raise ValueError(
                "the run cannot predict: its problem has no predict; give one, as in "
                "diamond.Problem(..., predict=lambda x, y, rows: rows['a'] @ y), or load the run "
                "by diamond.load(folder, problem)"
            )
        return self.predictor

    def summary(self) -> "RunSummary":
        """Summarize the answer: x, y of each agent, what was measured there, and the cost.

        Returns:
            Sentences and tables, which print as text and show as tables in a notebook.
        """
        from .run_saving import history_lines
        from .run_summary import summarize_run
        from .solution import summarize_solution

        names = {"sites": list(self.problem.agent_names or ())} if self.problem else {}
        network = {"name": self.network.title, "agents": self.network.agents} | names
        answer = summarize_solution(self)
        manifest = {"answer": answer, "message": self.message, "network": network}
        return summarize_run(manifest, history_lines(self))

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def save(self, folder: str | Path) -> Path:
        """Save the run as a folder for `diamond.load`, `show`, `report` and `export`.

        Args:
            folder: Folder to create; a folder that already holds a run is refused.

        Returns:
            The path of the folder.
        """
        from .run_saving import make_manifest, save_run

        folder = Path(folder)
        if (folder / "manifest.json").exists():
            raise FileExistsError(f"{folder} holds a run already; choose another folder")
        return save_run(self, folder, make_manifest(self, folder.absolute().name))

    def plot(self, path: str | Path | None = None, along: str = "round") -> "Figure":
        """Draw losses, error terms and metrics; needs the extra `plot`.

        Args:
            path: File to write; its ending defines the format. None: no file.
            along: Horizontal axis: "round", "samples", "calls" (gradients and products), "bytes" or
                "seconds"; if the network has links, also "network_seconds" or "joules".

        Returns:
            The figure, which a notebook shows.
        """
        from .folder_reader import StoredRun
        from .plot import plot_convergence
        from .run_saving import history_lines

        if along not in (*self.history, "calls"):
            suggestion = did_you_mean(along, [*self.history, "calls"])
            raise ValueError(f"along = {along!r} is no column of the history; {suggestion}")
        name = str(self.config.get("algorithm", {}).get("label", "run"))
        calls = lambda line: {"calls": sum(line[name] for name in ("gradients", "hvps", "jvps"))}
        lines = [line | calls(line) if along == "calls" else line for line in history_lines(self)]
        stored = StoredRun(Path(), {}, lines)
        file = None if path is None else Path(path)
        return plot_convergence({name: stored}, file, repr(self)[1:-1], along)

    def __repr__(self) -> str:
        last: dict[str, Any] = {k: v[-1] for k, v in self.history.items()}
        measures = [name for name in ("upper_loss", "metric", "local_loss") if name in last][:2]
        summary = ", ".join(f"{name} {last[name]:.4g}" for name in measures)
        return f"<Run: {self.rounds} rounds of {self.network.agents} agents, {summary}>"
