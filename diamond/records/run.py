"""The result of a run."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..core.pytrees import Tree
from ..core.sampling import Sampling
from ..core.suggestions import did_you_mean
from ..data.preparation import TableRows
from ..interface.round_interface import State
from ..network import Network
from ..network.mixing.lost_messages import MessageCounts, count_lost_messages
from ..problem import Problem
from .best_point import BestPoint
from .checkpoint_content import Snapshot
from .cooperation import Cooperation
from .predictor import Predictor, problem_predictor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .run_summary import RunSummary


@dataclass(frozen=True, repr=False)
class Run:
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

    Examples:
        >>> problem = diamond.gallery.quadratic(agents=4, upper=3, lower=3, rows=20)
        >>> network = diamond.network.ring(4)
        >>> run = diamond.simulate(problem, network, diamond.dsgd(batch=4), rounds=2)
        >>> run.x.shape, run.history["round"].tolist()
        ((4, 3), [0, 1, 2])
    """

    last_x: Tree
    last_y: Tree
    history: dict[str, np.ndarray]
    per_agent: dict[str, np.ndarray]
    state: State
    rounds: int
    network: Network
    costs: dict[str, np.ndarray]
    traffic: dict[tuple[int, int], int]
    messages: int
    resolved: dict[str, float]
    sampling: Sampling
    seed: int
    compile_seconds: float
    best: BestPoint | None = None
    status: str = "finished"
    message: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    problem: Problem | None = None
    turns: tuple[int | None, ...] = ()  # exchanges of a round that send messages
    snapshot: Snapshot | None = None
    inputs: dict[str, dict[str, str]] = field(default_factory=dict)
    stored_predictor: Predictor | None = None
    cooperation: Cooperation | None = None

    @property
    def predictor(self) -> Predictor | None:
        """Return the predictor of the problem, or of the run folder; None if there is none."""
        if self.stored_predictor is None and self.problem is not None:
            return problem_predictor(self.problem)
        return self.stored_predictor

    @property
    def x(self) -> Tree:
        """Return x of all agents at the best evaluation; `last_x` if none is stored."""
        return self.last_x if self.best is None else self.best.x

    @property
    def y(self) -> Tree:
        """Return y of all agents at the best evaluation; `last_y` if none is stored."""
        return self.last_y if self.best is None else self.best.y

    @cached_property
    def lost_messages(self) -> dict[tuple[int, int], MessageCounts]:
        """Count messages `sent` and `lost` over each edge, both ways; empty if none can be lost."""
        return count_lost_messages(self.network, self.seed, self.rounds, self.turns)

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
