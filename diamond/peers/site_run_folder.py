"""Run folder of a site, with the measures that the site can compute alone."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..core import cost_counter
from ..core.cost_counter import Cost
from ..interface.traffic import traffic
from ..metrics.divergence import blame, unsound
from ..metrics.link_costs import LinkCosts
from ..records.folder_recovery import last, manifest, unused
from ..records.folder_writer import Writer
from ..records.manifest import Origin, now, opening
from ..records.solution import entry_names
from ..records.solution import shown as answer
from ..records.trajectory_digest import digest
from ..schedules.deferred import agreed_bytes, by_name, talked
from .audit import LOG
from .call_errors import Stopped
from .local_measures import look, sent
from .node import Node
from .round_progress import Progress
from .shutdown import Halted
from .site_names import called

TIMES = ("seconds", "waited")  # of rounds, and of waiting for neighbours
LOST = "measurements of those rounds are lost, the run itself is not"
SPENT = ("round", "bytes", *Cost._fields)


class SiteFolder:
    """Writer of a site's evaluations, one per checkpoint interval, and of its outcome.

    A line is on the disk before the checkpoint of its round, so a killed site loses only lines
    after its checkpoint, which are dropped when it returns.
    """

    def __init__(self, writer: Writer, node: Node, origin: Origin, config: str):
        self.writer, self.node, self.origin, self.config = writer, node, origin, config
        self.entries: list[dict[str, Any]] = []
        self.wall = 0.0  # seconds of earlier sessions
        self.past = dict.fromkeys(TIMES, 0.0)
        self.progress: Progress | None = None
        agent = node.agent
        start = agent.problem.start(agent.seed)
        told = traffic(agent.outline, agent.objectives, *start, agent.network.channels)
        self.link_costs = LinkCosts(agent.network, told, agent.seed)

    def note(self, progress: Progress) -> None:
        """Evaluate the agent's state, if it is due."""
        if self.progress is None:
            self._open(progress)
        self.progress = progress
        node = self.node
        if self.entries and self.entries[-1]["round"] > progress.t:  # the run has rolled back
            self._keep(progress.t)
        due = progress.t % node.every == 0 or progress.t == node.rounds
        if not due or (self.entries and self.entries[-1]["round"] == progress.t):
            return
        entry = look(node.agent, progress, node.looked.messages)
        own = {name: self._alone(value) for name, value in entry.items() if name not in SPENT}
        took = dict(zip(TIMES, (node.looked.seconds, node.looked.waited)))
        entry |= {name: self.past[name] + took[name] for name in TIMES}
        entry |= self._on_links(progress, entry["seconds"] - entry["waited"])
        self.writer.append(entry, own)
        self.writer.metrics.sync()
        self.entries.append(entry)
        if wrong := unsound(entry):
            said = ", ".join(f"{name} is {entry[name]}" for name in wrong)
            cause = blame(wrong, node.agent.problem.metrics, progress.t)
            raise FloatingPointError(
                f"{self.origin.name} diverged by round {progress.t}: {said}; "
                f"{cause or 'start again with smaller steps'}"
            )

    def _on_links(self, progress: Progress, busy: float) -> dict[str, float]:
        """Return the cost of the rounds on the network's links, if any, for all sites.

        If computing time is measured, it is that of this site, which was `busy` for that long.
        """
        network = self.node.agent.network
        around, bytes = network.diameter, agreed_bytes(progress.found)
        talks = talked(progress.found).talks * around, bytes * network.count_messages(around)
        found = self.link_costs.of(progress.made, *talks, network.agents * busy)
        return {name: value for name, value in found.items() if name == "network_seconds"}

    def _open(self, progress: Progress) -> None:
        """Start, or continue after the lines up to the agent's state."""
        known = self._known(progress.clock)
        if progress.clock == 0 or not known:
            self.writer.begin(self._opening(), self.config, anew=progress.clock == 0)
        else:
            self.writer.manifest(status="running", message="", finished=None)
            self.wall = known.get("wall_seconds", 0.0)
        lines, due = self._keep(progress.t), progress.t - progress.t % self.node.every
        if progress.clock and last(lines) < due:
            LOG.warning(f"{self.writer.metrics.path} lacks round {due}: {LOST}")
        if lines:
            self.past = {name: lines[-1][name] for name in TIMES}

    def _keep(self, round: int) -> list[dict[str, Any]]:
        """Drop evaluations after `round`, and return the others."""
        path, whole = self.writer.metrics.path, self.writer.metrics.readable()[1]
        copy = unused(path)
        lines = self.writer.after(round)
        if not whole:
            LOG.warning(f"{path} has damaged lines; a copy is in {copy.name}: {LOST}")
        self.entries = [{k: v for k, v in line.items() if k != "agents"} for line in lines]
        return lines

    def _known(self, clock: int) -> dict[str, Any]:
        """Read the manifest; set a damaged one aside, since the checkpoint does not need it."""
        path = self.writer.path / "manifest.json"
        known, wrong = manifest(path)
        if wrong:
            aside = unused(path)
            os.rename(path, aside)
            LOG.warning(f"{path} is damaged ({wrong}) and set aside as {aside.name}; written anew")
        elif not known and clock:
            LOG.warning(f"{path} is missing and written again: when the run began is not known")
        return known

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Run the body, then record the outcome in the folder."""
        try:
            yield
        except (FloatingPointError, Stopped) as error:
            self._close("diverged", str(error))
            raise
        except BaseException as error:
            asked = isinstance(error, KeyboardInterrupt | asyncio.CancelledError | Halted)
            self._close("interrupted", "" if asked else f"{type(error).__name__}: {error}")
            raise
        self._close("finished", "")

    def _close(self, status: str, message: str) -> None:
        """Write the outcome of the run."""
        wall = self.wall + self.writer.wall
        end: dict[str, Any] = {"status": status, "message": message, "wall_seconds": wall}
        if self.progress is not None and status != "interrupted":
            end |= {"finished": now(), **self._totals(self.progress)}
        if self.progress is not None:
            self.writer.manifest(**end)

    def _opening(self) -> dict[str, Any]:
        agent = self.node.agent
        fixed = agent.seed, self.node.rounds, self.node.every, agent.outline.batch, agent.sampling
        made = opening(self.origin, agent.problem, agent.network, *fixed)
        rows = {part: self._alone(own) for part, (own,) in made["problem"]["rows"].items()}
        alone = {"agents": agent.network.agents, "rows": rows, "labels": None}
        site = {"name": self.origin.name, "agent": agent.number}
        names = [called(self.node.names, i) for i in range(agent.network.agents)]
        network = made["network"] | ({"sites": names} if self.node.names else {})
        return made | {"problem": made["problem"] | alone, "network": network, "site": site}

    def _totals(self, progress: Progress) -> dict[str, Any]:
        agent, lines = self.node.agent, self.writer.metrics.lines()
        resolved = by_name(progress.found)
        spent = zip(Cost._fields, cost_counter.total(progress.spent).tolist())
        edges = [sorted((agent.number, j)) for j in agent.neighbours]
        both = 2 * sent(agent, progress) // max(len(edges), 1)
        talks = talked(progress.found).talks
        rounds = progress.made * agent.exchanges + talks * agent.network.diameter
        return {
            "resolved": resolved,
            "answer": answer(progress.state.x, agent.problem.names) | entry_names(agent.problem),
            "compile_seconds": self.node.compiling,
            "costs": {name: self._alone(count) for name, count in spent},
            "traffic": [[*edge, both] for edge in edges],
            "messages": len(edges) * rounds,
            "digest": digest(lines, progress.state.x, progress.state.y),
        }

    def _alone(self, value: Any) -> list[Any]:
        """Return the value in a list over all agents; the others are unknown here."""
        found: list[Any] = [None] * self.node.agent.network.agents
        found[self.node.agent.number] = value
        return found
