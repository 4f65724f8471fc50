"""What a run leaves behind."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.suggestions import did_you_mean
from .run_data import RunData


@dataclass(frozen=True, repr=False)
class Run(RunData):
    """Final iterates, what was measured on the way, and what it cost.

    `history`: one entry an evaluation, round 0 included: `round`; the measures of
    `diamond.metrics.exact`; `samples`, `gradients`, `hvps`, `jvps` (oracle calls in rows, mean
    over the agents); `bytes` (sent over all edges, both ways); `curvature` (the largest
    eigenvalue of g_yy on a few mini-batches there); `seconds` (of the rounds alone, without
    compiling and measuring); where the network has links, `network_seconds` (what it would have
    taken on them, `diamond.network.links`) and perhaps `joules`. `per_agent`: the measures of each
    agent, (evaluations, agents). `costs`: the final counts of every agent.
    `traffic`: bytes sent over each edge, both ways together. `resolved`: numbers that were left to
    the run to find (L_g, ...). `best`: the point of the smallest upper loss among those measured;
    None where runs were made side by side as one program. `status` and `message`: "finished" or
    "diverged", and why it ended before its time. `config`: what was asked for. `problem`: that of
    the run; None where `diamond.load` cannot make it again. `snapshot`: the state that
    `simulate(..., resume=run)` continues from; None for a run that cannot be resumed.
    `inputs`: a plain description of the network and the algorithm, which `resume` compares.
    """

    @property
    def description(self) -> str:
        """What `diamond.solve` has chosen, and why; empty for other runs."""
        return str(self.config.get("description", ""))

    def save(self, folder: str | Path) -> Path:
        """A run folder as `diamond run` leaves one, for `diamond.load`, `show`, `report`, `export`.

        A folder that holds a run already is refused.
        """
        from .saving import keep, manifest

        folder = Path(folder)
        if (folder / "manifest.json").exists():
            raise FileExistsError(f"{folder} holds a run already; choose another folder")
        return keep(self, folder, manifest(self, folder.absolute().name))

    def plot(self, path: str | Path = "run.png", along: str = "round") -> Path:
        """Losses, error terms and metrics against rounds, samples, bytes or seconds, as a picture.

        `along` may also be "network_seconds" or "joules", where the network has links. The ending
        of `path` says of which kind; needs the extra `plot`.
        """
        from .plot import convergence
        from .reader import Stored
        from .saving import lines

        if along not in self.history:
            near = did_you_mean(along, self.history)
            raise ValueError(f"along = {along!r} is no column of the history; {near}")
        name = str(self.config.get("algorithm", {}).get("label", "run"))
        stored = Stored(Path(path), {}, lines(self))
        return convergence({name: stored}, Path(path), repr(self)[1:-1], along)

    def __repr__(self) -> str:
        last: dict[str, Any] = {k: v[-1] for k, v in self.history.items()}
        named = [name for name in ("metric", "upper_loss", "local_loss") if name in last][:2]
        said = ", ".join(f"{name} {last[name]:.4g}" for name in named)
        return f"<Run: {self.rounds} rounds of {self.network.agents} agents, {said}>"
