"""One agent's part of a round, without any network: what it tells, thinks and becomes."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..core import cost, tree
from ..core.cost import Cost
from ..core.sampling import Moment, Sample, Sampling, draw, key
from ..network import Network
from ..numbers.open_numbers import AllHere, Found, Setting, Talk, refreshes, resolve, suited, swap
from ..problem import Objectives, Problem
from ..rounds.algorithm import Algorithm, Estimate, Message, State
from ..rounds.traffic import messages
from .channel_ends import channel_ends
from .frame import Layout, layout


class Progress(NamedTuple):
    """Where an agent stands: everything its rounds to come depend on."""

    t: int  # rounds made
    state: State
    spent: jax.Array  # its counter of oracle calls
    algorithm: Any  # with the numbers in use
    found: dict[str, Found]  # those of them that were left to the run
    kept: Any = None  # of the messages of those it hears, where these are compressed or late


class Turn(NamedTuple):
    """One exchange of a round: its stage, which one of the round it is (a stage may be taken
    several times), and the stages before it that tell nothing."""

    stage: int
    number: int
    before: tuple[tuple[int, int], ...]


class Thought(NamedTuple):
    """What an agent has computed for an exchange, before it has heard anything."""

    state: State  # after the stages that tell nothing
    spent: jax.Array
    estimate: Estimate
    cost: Cost


class Agent:
    """Agent `number` of the network, with a problem that holds its own rows only.

    It draws what agent `number` of `diamond.simulate` draws and adds up what it hears in the order
    of the agents, so its trajectory is the simulated one. A round is one exchange after another.
    Numbers that the algorithm leaves open are found from what this agent measures and the largest
    in the network.
    """

    def __init__(
        self,
        problem: Problem,
        network: Network,
        algorithm: Algorithm,
        number: int,
        seed: int = 0,
        sampling: Sampling = "blocks",
    ):
        _check(problem, network, number)
        problem = problem.seated(number)
        self.problem, self.network, self.number = problem, network, number
        self.seed, self.sampling, self.key = seed, sampling, key(seed)
        self.given, self.outline = algorithm, _outline(suited(algorithm, problem))
        self.objectives = problem.objectives(algorithm.batch)
        row = network.weights[[number]]
        self.heard = [int(j) for j in row.indices]
        self.neighbours = [j for j in self.heard if j != number]
        self.weights = jnp.asarray(row.data)
        self.ends = channel_ends(network)
        self.told = messages(self.outline, self.objectives, *problem.start(seed))
        told = self.told if self.ends is None else [self.ends.wire(one) for one in self.told]
        self._structures = [jax.tree.structure(message) for message in told]
        self.layouts = [layout(jax.tree.leaves(message)) for message in told]
        self.turns, self.after = _turns(self.outline, self.layouts)
        self.several = sum(stage.times for stage in self.outline.stages) > 1

    @property
    def exchanges(self) -> int:
        """Of a round."""
        return len(self.turns)

    def tick(self, progress: Progress, turn: int = 0) -> int:
        """Exchanges made when this one of the round begins: the clock of peers."""
        return progress.t * self.exchanges + turn

    def layout(self, tick: int) -> Layout:
        """Of the message of that exchange."""
        return self.layouts[self.turns[tick % self.exchanges].stage]

    @property
    def largest(self) -> Layout:
        """Of all messages, that of most bytes."""
        return max(self.layouts, key=lambda leaves: sum(leaf.size for leaf in leaves))

    @property
    def bytes(self) -> int:
        """Of all messages of a round, to one neighbour."""
        return sum(leaf.size for turn in self.turns for leaf in self.layouts[turn.stage])

    def early(self, turn: int) -> bool:
        """Whether the message of that exchange is known before its gradients."""
        stage, _, before = self.turns[turn]
        return not before and self.outline.stages[stage].early

    def begin(self) -> Progress:
        """Before round 0, and before anything is found."""
        state = self.outline.init(*self.problem.start(self.seed))
        kept = self.ends and tuple(self.ends.start(one, len(self.heard)) for one in self.told)
        return Progress(0, state, cost.zeros(), self.given, {}, kept)

    def find(self, progress: Progress, talk: Talk) -> Progress:
        """With the numbers that the algorithm leaves open, found where the agent stands."""
        setting = self._setting(progress, talk)
        if progress.t:
            state = jax.tree.map(lambda a: a[None], progress.state)
            setting = setting.at(state.x, state.y, round=progress.t)
        resolved = resolve(self.given, setting)
        counter = cost.add(progress.spent, jnp.asarray(cost.each(resolved.cost, 1)[0]))
        if not progress.t:  # what is kept may be as large as what was found says
            state = resolved.algorithm.init(*self.problem.start(self.seed))
            progress = progress._replace(state=state)
        return progress._replace(spent=counter, algorithm=resolved.algorithm, found=setting.memory)

    def renews(self, progress: Progress) -> bool:
        """Whether numbers are to be found anew here."""
        lasting = all(found.lasting for found in progress.found.values())
        return not lasting and progress.t in refreshes(progress.t)

    def numbered(self, progress: Progress) -> Progress:
        """With the numbers found before put into the algorithm."""
        resolved = resolve(self.given, self._setting(progress))
        return progress._replace(algorithm=resolved.algorithm)

    def _setting(self, progress: Progress, talk: Talk = AllHere()) -> Setting:
        fixed = self.problem, self.network, self.outline.batch, self.seed
        return Setting(*fixed, memory=dict(progress.found), agent=self.number, talk=talk)

    def think(self, progress: Progress, turn: int) -> Thought:
        """All work up to that exchange: the stages that tell nothing, then the gradients for it."""
        stage, number, before = self.turns[turn]
        state, spent = progress.state, progress.spent
        for alone, turn_of_it in before:
            state, spent = self._alone(progress, state, spent, alone, turn_of_it)
        sample = self.draw(progress, stage, number)
        given = progress.algorithm, self.objectives, state, jnp.int32(progress.t), sample, stage
        return jax.block_until_ready(Thought(state, spent, *_estimate(*given)))

    def _alone(self, progress: Progress, state: State, spent: Any, stage: int, number: int) -> Any:
        """A stage that tells nothing."""
        sample = self.draw(progress, stage, number)
        own = state, spent, jnp.int32(progress.t), sample
        return _local(progress.algorithm, self.objectives, *own, stage)

    def draw(self, progress: Progress, stage: int = 0, number: int = 0) -> Sample:
        """All that is random in a stage of the round."""
        own, algorithm = self.objectives.of(0), progress.algorithm
        rows = own.train.stored, own.valid.stored
        drawn = algorithm.stages[stage].links, algorithm.batch, self.sampling
        which = number if self.several else None
        agent, t = jnp.int32(self.number), jnp.int32(progress.t)
        return _draw(self.key, t, agent, rows, *drawn, which)

    def message(self, progress: Progress, turn: int, thought: Thought | None) -> Message:
        """What the agent tells; `thought` may be None if that is early."""
        state, estimate = progress.state, None
        if thought is not None:
            state, estimate = thought.state, thought.estimate
        t, stage = jnp.int32(progress.t), self.turns[turn].stage
        return _outgoing(progress.algorithm, state, estimate, t, stage)

    def tell(self, progress: Progress, turn: int, thought: Thought | None) -> list[np.ndarray]:
        """What travels of it, as arrays."""
        message = self.message(progress, turn, thought)
        if self.ends is not None:
            own = progress.kept[self.turns[turn].stage][self.heard.index(self.number)]
            message = self.ends.encode(own, message, self._moment(progress.t, turn), self.number)
        return [np.asarray(leaf) for leaf in jax.tree.leaves(message)]

    def _moment(self, t: int, turn: int) -> Moment:
        """For what is random in compressing."""
        return Moment(self.key, jnp.int32(t), self.turns[turn].number if self.several else None)

    def unpacked(self, arrays: Sequence[np.ndarray], turn: int = 0) -> Message:
        """The message that those arrays are, or what travels in its place."""
        return jax.tree.unflatten(self._structures[self.turns[turn].stage], arrays)

    def last(self, progress: Progress, told: Mapping[int, Any], turn: int) -> dict[int, Message]:
        """What everyone heard is taken to have told in that exchange of the last round."""
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
        progress: Progress,
        turn: int,
        thought: Thought,
        messages: Mapping[int, Sequence[np.ndarray]],
    ) -> Progress:
        """The end of the exchange, from what all neighbours and the agent itself told."""
        parts = [self.unpacked(messages[j], turn) for j in self.heard]
        here, stage = self.heard.index(self.number), self.turns[turn].stage
        kept = progress.kept
        if self.ends is None:
            heard = parts[here], _mix(parts, self.weights, here)
        else:
            own = self.message(progress, turn, None if self.early(turn) else thought)
            given = own, here, parts, self._moment(progress.t, turn), self.heard
            said, now = self.ends.hear(kept[stage], *given)
            kept = (*kept[:stage], now, *kept[stage + 1 :])
            heard = own, tree.scale(self.ends.share(progress.t), _mix(said, self.weights, here))
        state, spent, sound = _update(
            progress.algorithm, thought, heard, jnp.int32(progress.t), stage
        )
        if not sound:
            raise FloatingPointError(
                f"agent {self.number} diverged in round {progress.t}: x or y is not finite; "
                f"start again with smaller steps"
            )
        return progress._replace(state=state, spent=spent, kept=kept)

    def end(self, progress: Progress) -> Progress:
        """The end of the round: the stages after its last exchange."""
        state, spent = progress.state, progress.spent
        for stage, number in self.after:
            state, spent = self._alone(progress, state, spent, stage, number)
        return progress._replace(t=progress.t + 1, state=state, spent=spent)


def _turns(
    algorithm: Algorithm, layouts: Sequence[Layout]
) -> tuple[list[Turn], tuple[tuple[int, int], ...]]:
    """The exchanges of a round, and the stages after the last one."""
    turns: list[Turn] = []
    silent: tuple[tuple[int, int], ...] = ()
    number = 0
    for stage, (each, told) in enumerate(zip(algorithm.stages, layouts)):
        for _ in range(each.times):
            if told:
                turns.append(Turn(stage, number, silent))
                silent = ()
            else:
                silent = (*silent, (stage, number))
            number += 1
    return turns, silent


_draw = jax.jit(draw, static_argnums=(4, 5, 6, 7))


@partial(jax.jit, static_argnums=5)
def _estimate(
    algorithm: Algorithm, problem: Objectives, state: State, t: Any, sample: Sample, number: int
) -> tuple[Estimate, Cost]:
    own = problem.of(0)
    return algorithm.stages[number].estimate(own, state, t, own.at(sample))


@partial(jax.jit, static_argnums=6)
def _local(
    algorithm: Algorithm,
    problem: Objectives,
    state: State,
    counter: jax.Array,
    t: Any,
    sample: Sample,
    number: int,
) -> tuple[State, jax.Array]:
    stage = algorithm.stages[number]
    own = problem.of(0)
    estimate, costs = stage.estimate(own, state, t, own.at(sample))
    nothing = stage.outgoing(state, estimate, t)
    state = stage.update(state, estimate, nothing, nothing, t)
    return state, cost.charge(counter, costs)


@partial(jax.jit, static_argnums=4)
def _outgoing(algorithm: Algorithm, state: State, estimate: Any, t: Any, number: int) -> Message:
    return algorithm.stages[number].outgoing(state, estimate, t)


@partial(jax.jit, static_argnums=2)
def _mix(messages: Sequence[Message], weights: jax.Array, here: int) -> Message:
    """sum_j M_ij (message_j - message_i) in the order of j."""

    def mix(*parts: jax.Array) -> jax.Array:
        total, mine = jnp.zeros_like(parts[0]), parts[here]
        for j, (weight, part) in enumerate(zip(weights.astype(total.dtype), parts)):
            total = total if j == here else total + weight * (part - mine)
        return total

    return jax.tree.map(mix, *messages)


@partial(jax.jit, static_argnums=4)
def _update(
    algorithm: Algorithm,
    thought: Thought,
    heard: tuple[Message, Message],
    t: jax.Array,
    stage: int,
) -> tuple[State, jax.Array, jax.Array]:
    state = algorithm.stages[stage].update(thought.state, thought.estimate, *heard, t)
    return state, cost.charge(thought.spent, thought.cost), tree.finite((state.x, state.y))


def _outline(algorithm: Any) -> Any:
    """The algorithm with 1 for every number left to the run: for shapes, before they are found."""
    return jax.tree.map(jnp.asarray, swap(algorithm, lambda open: 1))


def _check(problem: Problem, network: Network, number: int) -> None:
    """Refuse what one agent cannot run."""
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
