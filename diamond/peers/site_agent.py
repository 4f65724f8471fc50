"""Computation of one agent in a round, without networking: outgoing message, gradients, state."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from ..auto import loss_monitor
from ..core import cost_counter, pytrees
from ..core.pytrees import Tree
from ..core.sampling import Moment, Sampling, key
from ..interface.round_interface import Algorithm, Message
from ..interface.traffic import messages
from ..network import Network
from ..problem import Problem
from ..schedules.deferred import (
    Consensus,
    ResolutionContext,
    SingleProcess,
    reestimation_rounds,
    resolve,
    specialize,
    swap,
)
from . import agent_programs
from .agent_programs import FinishKey, ComputeKey, LocalResult
from .channel_codec import make_channel_codec
from .round_progress import AgentProgress, mark, turns_of
from .wire_format import Layout, layout

LocalMeasure = Literal["exact", "cheap"]


class Agent:
    """Agent `number` of the network, with a problem that holds only its own rows.

    The agent draws the samples of agent `number` of `diamond.simulate` and sums received messages
    in the order of the agents, so its trajectory equals the simulated one. A round is a sequence of
    exchanges. Numbers that the algorithm leaves open are estimated from this agent's measurements
    and the maximum over the network. With `clip`, the difference to a neighbour is bounded by
    `clip` times the median (`programs.clipped`).
    """

    def __init__(
        self,
        problem: Problem,
        network: Network,
        algorithm: Algorithm,
        number: int,
        seed: int = 0,
        sampling: Sampling = "blocks",
        clip: float | None = None,
    ):
        _check(problem, network, number)
        if clip is not None and network.channels:
            raise ValueError("differences of compressed messages cannot be clipped: leave out clip")
        self.clip = clip
        self.measure: LocalMeasure = "exact"
        self.spread: tuple[np.ndarray, np.ndarray] | None = None  # see `programs.apart`
        problem = problem.for_agent(number)
        self.problem, self.network, self.number = problem, network, number
        self.seed, self.sampling, self.key = seed, sampling, key(seed)
        self.given, self.outline = algorithm, _outline(specialize(algorithm, problem))
        self.objectives = problem.objectives(algorithm.batch)
        row = network.weights[[number]]
        self.heard = [int(j) for j in row.indices]
        self.neighbours = [j for j in self.heard if j != number]
        self.weights = jnp.asarray(row.data)
        self.ends = make_channel_codec(network)
        self.told = messages(self.outline, self.objectives, *problem.start(seed))
        told = self.told if self.ends is None else [self.ends.wire(one) for one in self.told]
        self._structures = [jax.tree.structure(message) for message in told]
        self.layouts = [layout(jax.tree.leaves(message)) for message in told]
        self.turns, self.after = turns_of(self.outline, self.layouts)
        self.several = sum(stage.repeats for stage in self.outline.stages) > 1
        self._rows, self._objectives = jax.tree.flatten(self.objectives)
        self._bits = jax.random.key_data(self.key)  # typed keys are slow to pass to a program
        self._place = jnp.asarray(np.int32(number))
        stages = self.outline.stages
        self._early = [
            not turn.before and stages[turn.stage].sends_before_gradient for turn in self.turns
        ]
        self._thens = [self._then(turn) for turn in range(len(self.turns))]
        self._numbers: tuple[Any, Any, Any] = None, None, None  # algorithm, its leaves, structure
        self._ahead: tuple[Any, Any, Any] = None, None, None  # algorithm, state, next message
        self._told: tuple[Any, Any] = None, None  # last message, on host and device

    @property
    def exchanges(self) -> int:
        """Return the number of exchanges of a round."""
        return len(self.turns)

    def tick(self, progress: AgentProgress, turn: int = 0) -> int:
        """Return the number of exchanges before this one: the clock of peers."""
        return progress.clock * self.exchanges + turn

    def layout(self, tick: int) -> Layout:
        """Return the layout of the message of that exchange."""
        return self.layouts[self.turns[tick % self.exchanges].stage]

    @property
    def largest(self) -> Layout:
        """Return the layout of the largest message."""
        return max(self.layouts, key=lambda leaves: sum(leaf.size for leaf in leaves))

    @property
    def bytes(self) -> int:
        """Return the bytes of all messages of a round to one neighbour."""
        return sum(leaf.size for turn in self.turns for leaf in self.layouts[turn.stage])

    def early(self, turn: int) -> bool:
        """Return whether the message of that exchange is known before its gradients."""
        return self._early[turn]

    def begin(self) -> AgentProgress:
        """Return the progress before round 0, before anything is estimated."""
        state = self.outline.init(*self.problem.start(self.seed))
        kept = self.ends and tuple(self.ends.start(one, len(self.heard)) for one in self.told)
        return AgentProgress(0, state, cost_counter.zeros(), self.given, {}, kept)

    def begin_at(self, x: Tree, y: Tree) -> AgentProgress:
        """Return the initial progress at another point."""
        there = self.begin()._replace(state=self.outline.init(x, y))
        return there._replace(start=mark(there))

    def find(self, progress: AgentProgress, consensus: Consensus) -> AgentProgress:
        """Estimate the numbers that the algorithm leaves open, at the agent's current point."""
        setting = self._setting(progress, consensus)
        if progress.clock or progress.start:
            state = jax.tree.map(lambda a: a[None], progress.state)
            setting = setting.at(state.x, state.y, progress.anew, progress.t)
        resolved = resolve(self.given, setting)
        counter = cost_counter.add(
            progress.spent, jnp.asarray(cost_counter.each(resolved.cost, 1)[0])
        )
        if not progress.t:  # the size of the kept state may depend on the estimates
            state = resolved.algorithm.init(progress.state.x, progress.state.y)
            progress = progress._replace(state=state)
        found, algorithm = (
            setting.memory,
            loss_monitor.scale_steps(resolved.algorithm, setting.memory),
        )
        progress = progress._replace(spent=counter, algorithm=algorithm, found=found, anew=False)
        if loss_monitor.lowest(found):
            progress = progress._replace(lowest=mark(progress) if progress.t else None)
        return progress

    def renews(self, progress: AgentProgress) -> bool:
        """Return whether numbers are to be estimated again in this round."""
        lasting = all(found.lasting for found in progress.found.values())
        return not lasting and progress.t in reestimation_rounds(progress.t)

    def numbered(self, progress: AgentProgress) -> AgentProgress:
        """Put the numbers estimated earlier into the algorithm."""
        resolved = resolve(self.given, self._setting(progress))
        return progress._replace(
            algorithm=loss_monitor.scale_steps(resolved.algorithm, progress.found)
        )

    def _setting(
        self, progress: AgentProgress, consensus: Consensus = SingleProcess()
    ) -> ResolutionContext:
        fixed = self.problem, self.network, self.outline.batch, self.seed
        return ResolutionContext(
            *fixed, memory=dict(progress.found), agent=self.number, consensus=consensus
        )

    def think(self, progress: AgentProgress, turn: int) -> LocalResult:
        """Compute everything up to that exchange: silent stages, then the gradients for it."""
        stage, number, silent = self.turns[turn]
        numbers, structure = self._flat(progress.algorithm)
        ways = tuple((one, self._which(turn_of_it)) for one, turn_of_it in silent)
        fixed = structure, self._objectives, self.sampling, ways, stage, self._which(number)
        plan = ComputeKey(*fixed, tells=not self.early(turn))
        local_result: LocalResult = agent_programs.before(plan)(*self._given(numbers, progress))
        local_result.spent.block_until_ready()  # waits for the whole program
        return local_result if silent else local_result._replace(state=progress.state)

    def _given(self, numbers: Any, progress: AgentProgress) -> tuple[Any, ...]:
        """Return the arguments of a program up to an exchange."""
        where = progress.state, progress.spent, np.int32(progress.t)
        return numbers, self._rows, self._bits, self._place, *where

    def _which(self, number: int) -> int | None:
        """Return the index of a stage for random draws, if a round has several stages."""
        return number if self.several else None

    def _flat(self, algorithm: Any) -> tuple[Any, Any]:
        """Return the numbers of the algorithm, as programs take them, and its structure."""
        if self._numbers[0] is not algorithm:
            leaves, structure = jax.tree.flatten(algorithm)
            self._numbers = algorithm, [jnp.asarray(leaf) for leaf in leaves], structure
        return self._numbers[1:]

    def message(self, progress: AgentProgress, turn: int, local_result: LocalResult | None) -> Message:
        """Return the outgoing message; `thought` may be None if the message is early."""
        if local_result is not None and local_result.told is not None:
            return local_result.told
        if self._ahead[0] is progress.algorithm and self._ahead[1] is progress.state:
            return self._ahead[2]
        numbers, structure = self._flat(progress.algorithm)
        tell = agent_programs.outgoing(structure, self.turns[turn].stage)
        return tell(numbers, progress.state, np.int32(progress.t))

    def tell(self, progress: AgentProgress, turn: int, local_result: LocalResult | None) -> list[np.ndarray]:
        """Return the arrays to send."""
        message = self.message(progress, turn, local_result)
        if self.ends is not None:
            own = progress.kept[self.turns[turn].stage][self.heard.index(self.number)]
            message = self.ends.encode(own, message, self._moment(progress.t, turn), self.number)
        leaves = jax.tree.leaves(message)
        self._told = [np.asarray(leaf) for leaf in leaves], leaves
        return self._told[0]

    def _moment(self, t: int, turn: int) -> Moment:
        """Return the moment that seeds random compression."""
        return Moment(self.key, jnp.int32(t), self.turns[turn].number if self.several else None)

    def unpacked(self, arrays: Sequence[np.ndarray], turn: int = 0) -> Message:
        """Restore the message, or its compressed form, from arrays."""
        return jax.tree.unflatten(self._structures[self.turns[turn].stage], arrays)

    def last(self, progress: AgentProgress, told: Mapping[int, Any], turn: int) -> dict[int, Message]:
        """Return the messages of all sources in that exchange of the last round, as decoded."""
        found = {j: self.unpacked(arrays, turn) for j, arrays in told.items()}
        if self.ends is None:
            return found
        stage, moment = self.turns[turn].stage, self._moment(progress.t - 1, turn)
        kept = dict(zip(self.heard, progress.kept[stage]))
        if self.ends.codec is not None and self.ends.codec.feedback == "difference":
            return {j: kept[j][0] for j in found}
        like = self.told[stage]
        return {j: self.ends.decode(kept[j], w, like, moment, j) for j, w in found.items()}

    def step(
        self,
        progress: AgentProgress,
        turn: int,
        local_result: LocalResult,
        messages: Mapping[int, Sequence[np.ndarray]],
    ) -> AgentProgress:
        """Finish the exchange with the messages of all neighbours and the agent's own."""
        here, stage = self.heard.index(self.number), self.turns[turn].stage
        t, kept, then = np.int32(progress.t), progress.kept, self._thens[turn]
        if self.ends is None:
            numbers, structure = self._flat(progress.algorithm)
            plan = FinishKey(structure, self._structures[stage], stage, here, then, self.clip)
            known, leaves = self._told  # its own message, already on the device
            heard = [leaves if messages[j] is known else messages[j] for j in self.heard]
            parts = tuple(map(tuple, heard))
            given = local_result.state, local_result.estimate
            rest, seen, told = agent_programs.after(plan)(numbers, *given, parts, self.weights, t)
            state = rest.whole(given)
            total, *spread = agent_programs.apart(np.asarray(seen), len(parts))
            self.spread = spread[0], spread[1]
            sound = math.isfinite(total) or pytrees.finite((state.x, state.y))
            ahead = told and (progress.algorithm, state, told.whole(state))
            self._ahead = ahead or (None, None, None)
        else:
            own = self.message(progress, turn, None if self.early(turn) else local_result)
            wires = [self.unpacked(messages[j], turn) for j in self.heard]
            moment = self._moment(progress.t, turn)
            said, now = self.ends.hear(kept[stage], own, here, wires, moment, self.heard)
            kept = (*kept[:stage], now, *kept[stage + 1 :])
            change = agent_programs.alone(said, self.weights, here)
            mixed = own, pytrees.scale(self.ends.share(progress.t), change)
            given = local_result.state, local_result.estimate
            state, sound = agent_programs.update(progress.algorithm, *given, mixed, t, stage)
        if not sound:
            raise FloatingPointError(
                f"agent {self.number} diverged in round {progress.t}: x or y is not finite; "
                f"start again with smaller steps"
            )
        return progress._replace(state=state, spent=local_result.spent, kept=kept)

    def _then(self, turn: int) -> tuple[int, int] | None:
        """Return (stage, rounds ahead) of the message known at the end of that exchange, if any.

        This is the message of the next exchange, if it is early and no silent stage lies between.
        """
        last = turn + 1 == self.exchanges
        following = 0 if last else turn + 1
        if (last and self.after) or not self.early(following):
            return None
        return self.turns[following].stage, int(last)

    def end(self, progress: AgentProgress) -> AgentProgress:
        """Finish the round: run the stages after its last exchange."""
        state, spent = progress.state, progress.spent
        if self.after:
            numbers, structure = self._flat(progress.algorithm)
            ways = tuple((stage, self._which(number)) for stage, number in self.after)
            plan = ComputeKey(structure, self._objectives, self.sampling, ways, None)
            state, spent = agent_programs.before(plan)(*self._given(numbers, progress))
        return progress._replace(t=progress.t + 1, state=state, spent=spent)


def _outline(algorithm: Any) -> Any:
    """Replace every number left to the run by 1: for shapes, before estimation."""
    return jax.tree.map(jnp.asarray, swap(algorithm, lambda open: 1))


def _check(problem: Problem, network: Network, number: int) -> None:
    """Refuse problems and networks that a single agent cannot run."""
    if problem.agents != 1:
        raise ValueError(
            f"the problem holds the rows of {problem.agents} agents; a peer needs one with its own "
            f"rows only: lists of one entry"
        )
    if not 0 <= number < network.agents:
        raise ValueError(f"there is no agent {number}; the network has 0 to {network.agents - 1}")
    if network.kind != "symmetric":
        raise ValueError(
            f"{network.name} is {network.kind}, and sites ask each other both ways, over links "
            f"that stay the same: take a network such as ring({network.agents}), or simulate it"
        )
