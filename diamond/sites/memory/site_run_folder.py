"""Run folder of a site, with the measures that the site can compute alone."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from ...core import cost_counter
from ...core.cost_counter import Cost
from ...interface.traffic import count_traffic
from ...metrics.divergence_error import cause_of_nonfinite, nonfinite_measures
from ...metrics.link_costs import LinkCosts
from ...privacy.ledger import BudgetExhausted
from ...records.folder_recovery import last_round, read_manifest, set_aside, unused_path
from ...records.folder_writer import Writer
from ...records.manifest import RunOrigin, current_time, initial_manifest
from ...records.predictor import Predictor
from ...records.solution import entry_names, summarize_coefficients, summarize_x, summarize_y
from ...records.trajectory_digest import digest_trajectory
from ...schedules.deferred import agreed_bytes, count_exchanges, values_by_name
from ..identity.site_names import site_name
from ..rounds.local_measures import bytes_by_neighbour, measure_agent, messages_sent
from ..rounds.node import Node
from ..rounds.round_progress import AgentProgress
from ..rounds.shutdown import Halted
from ..transport.audit import log_event
from ..transport.errors import RunFailed

TIME_COLUMNS = ("seconds", "waited")  # of rounds, and of waiting for neighbours
LOST_MEASUREMENTS = "measurements of those rounds are lost, the run itself is not"
COST_COLUMNS = ("round", "bytes", *Cost._fields)


class SiteRunFolder:
    """Writer of a site's evaluations, one per checkpoint interval, and of its outcome.

    A line is on the disk before the checkpoint of its round, so a killed site loses only lines
    after its checkpoint, which are dropped when it returns.
    """

    def __init__(self, writer: Writer, node: Node, origin: RunOrigin, config: str):
        self.writer, self.node, self.origin, self.config = writer, node, origin, config
        self.entries: list[dict[str, Any]] = []
        self.wall = 0.0  # seconds of earlier sessions
        self.earlier_seconds = dict.fromkeys(TIME_COLUMNS, 0.0)
        self.progress: AgentProgress | None = None
        agent = node.agent
        network, (x, y) = agent.network, agent.problem.start(agent.seed)
        is_masked = network.mask_limit is not None
        inputs = agent.template, agent.objectives, x, y
        message_traffic = count_traffic(*inputs, network.channels, is_masked)
        self.link_costs = LinkCosts(network, message_traffic, agent.seed)

    def record_evaluation(self, progress: AgentProgress) -> None:
        """Evaluate the agent's state, if it is due."""
        if self.progress is None:
            self._open_folder(progress)
        self.progress = progress
        node = self.node
        if self.entries and self.entries[-1]["round"] > progress.t:  # the run has rolled back
            self._drop_after(progress.t)
        is_due = progress.t % node.every == 0 or progress.t == node.rounds
        if not is_due or (self.entries and self.entries[-1]["round"] == progress.t):
            return
        messages, *times = node.evaluation_inputs
        entry = measure_agent(node.agent, progress, messages)
        measures = {name: value for name, value in entry.items() if name not in COST_COLUMNS}
        per_agent = {name: self._for_this_agent(value) for name, value in measures.items()}
        seconds = dict(zip(TIME_COLUMNS, times))
        entry |= {name: self.earlier_seconds[name] + seconds[name] for name in TIME_COLUMNS}
        entry |= self._link_seconds(progress, entry["seconds"] - entry["waited"])
        if node.ledger is not None:
            entry["epsilon"] = node.ledger.epsilon_at(progress.t)
        self.writer.append(entry, per_agent)
        self.writer.metrics.sync()
        self.entries.append(entry)
        if nonfinite := nonfinite_measures(entry):
            values = ", ".join(f"{name} is {entry[name]}" for name in nonfinite)
            cause = cause_of_nonfinite(nonfinite, node.agent.problem.metrics, progress.t)
            raise FloatingPointError(
                f"{self.origin.name} diverged by round {progress.t}: {values}; "
                f"{cause or 'start again with smaller steps'}"
            )

    def _link_seconds(self, progress: AgentProgress, busy: float) -> dict[str, float]:
        """Return the cost of the rounds on the network's links, if any, for all sites.

        If computing time is measured, it is that of this site, which was `busy` for that long.
        """
        network = self.node.agent.network
        diameter, bytes = network.diameter, agreed_bytes(progress.estimates)
        exchanges = count_exchanges(progress.estimates).talks * diameter
        bytes *= network.count_messages(diameter)
        rounds, seconds = progress.rounds_run, network.agents * busy
        costs = self.link_costs.costs(rounds, exchanges, bytes, seconds)
        return {name: value for name, value in costs.items() if name == "network_seconds"}

    def _open_folder(self, progress: AgentProgress) -> None:
        """Start, or continue after the lines up to the agent's state."""
        self.writer.write_preparation(self.node.agent.problem.preparation)
        begins = progress.clock == self.node.agent.first_round and self.node.begins_run
        manifest = self._read_manifest(0 if begins else progress.clock)
        if begins or not manifest:
            self.writer.begin(self._manifest_opening(), self.config, clear=begins)
        else:
            self.writer.update_manifest(status="running", message="", finished=None)
            self.wall = manifest.get("wall_seconds", 0.0)
        lines, due = self._drop_after(progress.t), progress.t - progress.t % self.node.every
        if not begins and last_round(lines) < due:
            log_event(f"{self.writer.metrics.path} lacks round {due}", LOST_MEASUREMENTS)
        if lines:
            self.earlier_seconds = {name: lines[-1][name] for name in TIME_COLUMNS}

    def _drop_after(self, round: int) -> list[dict[str, Any]]:
        """Drop evaluations after `round`, and return the others."""
        path, is_intact = self.writer.metrics.path, self.writer.metrics.read_lines()[1]
        copy = unused_path(path)
        lines = self.writer.drop_after(round)
        if not is_intact:
            log_event(f"{path} has damaged lines; a copy is in {copy.name}", LOST_MEASUREMENTS)
        self.entries = [{k: v for k, v in line.items() if k != "agents"} for line in lines]
        return lines

    def _read_manifest(self, clock: int) -> dict[str, Any]:
        """Read the manifest; set a damaged one aside, since the checkpoint does not need it."""
        path = self.writer.path / "manifest.json"
        manifest, error = read_manifest(path)
        if error:
            event = f"{path} is damaged ({error}) and moved aside as {set_aside(path).name}"
            log_event(event, "a new one is written")
        elif not manifest and clock:
            log_event(f"{path} is missing and written again", "when the run began is not known")
        return manifest

    @contextmanager
    def record_outcome(self) -> Iterator[None]:
        """Run the body, then record the outcome in the folder."""
        try:
            yield
        except (FloatingPointError, RunFailed) as error:
            self._write_outcome("diverged", str(error))
            raise
        except BudgetExhausted as error:
            self._write_outcome("interrupted", str(error))
            raise
        except BaseException as error:
            is_stop = isinstance(error, KeyboardInterrupt | asyncio.CancelledError | Halted)
            self._write_outcome(
                "interrupted", "" if is_stop else f"{type(error).__name__}: {error}"
            )
            raise
        self._write_outcome("finished", self.progress.end_reason if self.progress else "")

    def _write_outcome(self, status: str, message: str) -> None:
        """Write the outcome of the run."""
        wall = self.wall + self.writer.wall_seconds
        outcome: dict[str, Any] = {"status": status, "message": message, "wall_seconds": wall}
        if self.progress is not None and status != "interrupted":
            outcome |= {"finished": current_time(), **self._manifest_totals(self.progress)}
        if self.node.ledger is not None:
            outcome["privacy"] = self.node.ledger.summary()
        if self.progress is not None:
            self.writer.update_manifest(**outcome)

    def _manifest_opening(self) -> dict[str, Any]:
        agent, rounds = self.node.agent, self.node.planned_rounds
        inputs = self.origin, agent.problem, agent.network, agent.seed, rounds, self.node.every
        manifest = initial_manifest(*inputs, agent.template.batch, agent.sampling)
        rows = {part: self._for_this_agent(n) for part, (n,) in manifest["problem"]["rows"].items()}
        problem = {"agents": agent.agent_count, "rows": rows, "labels": None}
        site = {"name": self.origin.name, "agent": agent.number}
        names = [site_name(self.node.names, i) for i in range(agent.agent_count)]
        network = manifest["network"] | ({"sites": names} if self.node.names else {})
        problem = manifest["problem"] | problem
        ledger = self.node.ledger
        privacy = {} if ledger is None else {"privacy": ledger.summary()}
        return manifest | {"problem": problem, "network": network, "site": site} | privacy

    def _manifest_totals(self, progress: AgentProgress) -> dict[str, Any]:
        agent, lines = self.node.agent, self.writer.metrics.lines()
        resolved = values_by_name(progress.estimates)
        spent = zip(Cost._fields, cost_counter.total(progress.spent).tolist())
        sent, earlier = bytes_by_neighbour(agent, progress), agent.earlier_bytes
        earlier_per_edge = 2 * earlier // max(len(sent), 1)
        edges = {j: sorted((agent.number, j)) for j in sent}
        return {
            "resolved": resolved,
            "answer": summarize_x(progress.state.x, agent.problem.names)
            | entry_names(agent.problem)
            | self._model(progress),
            "compile_seconds": self.node.compile_seconds,
            "costs": {name: self._for_this_agent(count) for name, count in spent},
            "traffic": [[*edges[j], 2 * count + earlier_per_edge] for j, count in sent.items()],
            "messages": messages_sent(agent, progress),
            "digest": digest_trajectory(lines, progress.state.x, progress.state.y),
        }

    def _model(self, progress: AgentProgress) -> dict[str, Any]:
        """Return the coefficients of this site's model in units of its table, or y if small."""
        problem, predictor = self.node.agent.problem, None
        if problem.predict is not None:
            predictor = Predictor(problem.predict, problem.preparation, (self.origin.name,))
        one = jax.tree.map(lambda leaf: np.asarray(leaf)[None], progress.state.y)
        return summarize_coefficients(predictor, one) or summarize_y(one, problem)

    def _for_this_agent(self, value: Any) -> list[Any]:
        """Return the value in a list over all agents; the others are unknown here."""
        values: list[Any] = [None] * self.node.agent.agent_count
        values[self.node.agent.number] = value
        return values
