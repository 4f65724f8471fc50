"""Fixed data of one agent: its problem, its sources, and the exchanges of a round."""

from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from ...core import cost_counter
from ...core.exclusions import check_combination, find_exclusions
from ...core.pytrees import Tree
from ...core.sampling import Sampling, key
from ...interface import traffic
from ...interface.round_interface import Algorithm
from ...network import Network
from ...network.membership_epochs import Epoch
from ...network.mixing.exact_mean import mean_place
from ...network.mixing.masked_mixer import masked_receiver
from ...network.mixing.robust_mixer import robust_receiver
from ...privacy.private_runs import with_simulated_secret
from ...problem import Problem
from ...schedules.deferred import replace_deferred, specialize
from ..transport.wire_format import Layout, layout_of
from .asynchronous_mixing import AsynchronousMixing
from .channel_codec import make_channel_codec
from .round_progress import AgentProgress, rollback_state, split_into_exchanges

MAX_LOCAL_ROUNDS = 100  # rounds between states for rollbacks, `rollback_limits.SAVE_EVERY`
LocalMeasure = Literal["exact", "cheap"]
CONSENSUS_BITS = 20  # of the consensus steps of one round


class AgentSetup:
    """Fixed data of agent `number` of the network; see `site_agent.Agent`."""

    def __init__(
        self,
        problem: Problem,
        network: Network,
        algorithm: Algorithm,
        number: int,
        *,
        seed: int = 0,
        sampling: Sampling = "blocks",
        epoch: Epoch | None = None,
        missing: str = "wait",
    ):
        self.members = range(network.agents) if epoch is None else epoch.members
        self.first_round = 0 if epoch is None else epoch.from_round
        self.has_epochs = epoch is not None
        self.earlier_bytes = 0  # sent before the first round, to other neighbours
        _check(problem, network, number, self.members)
        self.measure: LocalMeasure = "exact" if problem.has_lower_solution else "cheap"
        problem = problem.for_agent(number)
        self.problem, self.network, self.number = problem, network, number
        self.seed, self.sampling, self.key = seed, sampling, key(seed)
        algorithm = with_simulated_secret(algorithm, number)
        used = {f"missing='{missing}'": True, "privacy": algorithm.privacy is not None}
        for row, _ in find_exclusions(used | {"exact means": True}, "sites")[:1]:
            algorithm = algorithm.without_exact_means(row.reason)
        specialized = specialize(algorithm, problem, network)
        # Every number left to the run is 1 in the template: for shapes, before estimation.
        template = replace_deferred(specialized, lambda deferred: 1)
        self.algorithm, self.template = algorithm, jax.tree.map(jnp.asarray, template)
        self.objectives = problem.objectives(algorithm.batch)
        # Network of the rounds with an exchange: every `exchange_every`-th round has one.
        self.links, self.exchange_every = network.base or network, len(network.phases)
        row = self.links.weights[[self.members.index(number)]]
        self.sources = [self.members[j] for j in row.indices.tolist()]
        self.neighbours = [j for j in self.sources if j != number]
        self._own_index = self.sources.index(number)
        self.weights = jnp.asarray(row.data)
        self.channel_codec = make_channel_codec(network)
        start = problem.start(seed)
        self.message_shapes = traffic.message_shapes(self.template, self.objectives, *start)
        traffic.check_robust_mixing(network, self.template, self.message_shapes)
        traffic.check_masked_sums(network, specialized)
        traffic.check_exact_means(network, self.message_shapes, used)
        self._is_mean = [traffic.is_mean(shapes) for shapes in self.message_shapes]
        self.mean_place = mean_place(network, self.members, number) if any(self._is_mean) else None
        self.robust = robust_receiver(network, self.members.index(number))
        is_masked = network.mask_limit is not None
        self.masked = masked_receiver(network, self.members, number) if is_masked else None
        encoded = self.message_shapes
        if self.channel_codec is not None:
            encoded = [self.channel_codec.encoded_shapes(shapes) for shapes in encoded]
        self._structures = [jax.tree.structure(shapes) for shapes in encoded]
        self.layouts = [layout_of(jax.tree.leaves(shapes)) for shapes in encoded]
        self._plain_layouts = self.layouts
        if self.masked is not None:
            mask = lambda leaf: leaf._replace(dtype="uint64")
            self.layouts = [tuple(map(mask, layout)) for layout in self.layouts]
        self.exchanges, self.final_stages = split_into_exchanges(self.template, self.layouts)
        self.asynchronous: AsynchronousMixing | None = None
        if missing == "asynchronous":
            used |= {"a common lower level": problem.lower_level == "common"}
            used |= {"several exchanges": len(self.exchanges) != 1}
            traffic.check_asynchronous_rounds(specialized, network.name, network.features | used)
            (stage,) = (exchange.stage for exchange in self.exchanges)
            inputs = self.message_shapes[stage], self.layouts[stage]
            self.asynchronous = AsynchronousMixing(self.neighbours, *inputs)
        self.has_several_stages = sum(stage.repeats for stage in self.template.stages) > 1
        self._rows, self._objectives = jax.tree.flatten(self.objectives)
        self._bits = jax.random.key_data(self.key)  # typed keys are slow to pass to a program
        self._number_array = jnp.asarray(np.int32(number))
        stages = self.template.stages
        self._sends_before_gradient = [
            not exchange.silent_before and stages[exchange.stage].sends_before_gradient
            for exchange in self.exchanges
        ]
        self._next_messages = [self._next_message(i) for i in range(len(self.exchanges))]

    @property
    def exchange_count(self) -> int:
        """Return the number of exchanges of a round."""
        return len(self.exchanges)

    def has_exchange(self, t: int) -> bool:
        """Return whether neighbours exchange messages in round t."""
        return (t + 1) % self.exchange_every == 0

    def tick(self, progress: AgentProgress, exchange: int = 0) -> int:
        """Return the number of exchanges before this one: the clock of peers."""
        return self.first_tick(progress.clock, progress.clock_offset) + exchange

    def first_tick(self, clock: int, clock_offset: int = 0) -> int:
        """Return the number of exchanges before that round of the clock."""
        rounds = clock_offset + (clock - clock_offset) // self.exchange_every
        return rounds * self.exchange_count

    def first_consensus_step(self, t: int) -> int:
        """Return the offset of messages about numbers, unique among rounds between exchanges."""
        return (t % self.exchange_every) << CONSENSUS_BITS

    def count_exchanges(self, rounds: int) -> int:
        """Return the number of exchanges in that many rounds."""
        return rounds // self.exchange_every * self.exchange_count

    def layout_at(self, tick: int) -> Layout:
        """Return the layout of the message of that exchange."""
        return self.layouts[self.exchanges[tick % self.exchange_count].stage]

    def plain_layout_at(self, tick: int) -> Layout:
        """Return the layout of the message of that exchange, before masks are added."""
        return self._plain_layouts[self.exchanges[tick % self.exchange_count].stage]

    @property
    def largest_layout(self) -> Layout:
        """Return the layout of the largest message."""
        return max(self.layouts, key=lambda leaves: sum(leaf.size for leaf in leaves))

    def sends_mean(self, exchange: int) -> bool:
        """Return whether that exchange is an exact mean."""
        return self._is_mean[self.exchanges[exchange].stage]

    @property
    def tree_neighbours(self) -> list[int]:
        """Return the neighbours with which exact means are exchanged."""
        place = self.mean_place
        if place is None:
            return []
        return [*place.children, *([] if place.parent is None else [place.parent])]

    @property
    def bytes_per_round(self) -> int:
        """Return the bytes of all messages of a round to one neighbour, without exact means."""
        return self._count_bytes(False)

    @property
    def mean_bytes_per_round(self) -> int:
        """Return the bytes of all exact means of a round over one link and in one direction."""
        return self._count_bytes(True)

    def _count_bytes(self, of_means: bool) -> int:
        stages = [e.stage for e in self.exchanges if self._is_mean[e.stage] == of_means]
        return sum(spec.size for stage in stages for spec in self.layouts[stage])

    def sends_before_gradient(self, exchange: int) -> bool:
        """Return whether the message of that exchange is known before its gradients."""
        return self._sends_before_gradient[exchange]

    @property
    def agent_count(self) -> int:
        """Return the number of agents, at least, including those that take no part."""
        return max(self.members) + 1

    def initial_progress(self) -> AgentProgress:
        """Return the progress before the first round, before anything is estimated."""
        state = self.template.init(*self.problem.start(self.seed))
        codec, count = self.channel_codec, len(self.sources)
        states = codec and tuple(codec.initial_states(m, count) for m in self.message_shapes)
        states = self.asynchronous.initial_states() if self.asynchronous else states
        first, spent = self.first_round, cost_counter.zeros()
        return AgentProgress(first, state, spent, self.algorithm, {}, states)

    def initial_progress_at(self, x: Tree, y: Tree) -> AgentProgress:
        """Return the initial progress at another point."""
        progress = self.initial_progress()._replace(state=self.template.init(x, y))
        return progress._replace(start=rollback_state(progress))

    def _draw_index(self, position: int) -> int | None:
        """Return the index of a stage for random draws, if a round has several stages."""
        return position if self.has_several_stages else None

    def _next_message(self, exchange: int) -> tuple[int, int] | None:
        """Return (stage, rounds ahead) of the message known at the end of that exchange, if any.

        This is the message of the next exchange, if it is early and no silent stage lies between.
        """
        is_last = exchange + 1 == self.exchange_count
        following = 0 if is_last else exchange + 1
        if (is_last and self.final_stages) or not self.sends_before_gradient(following):
            return None
        return self.exchanges[following].stage, int(is_last)


def _check(problem: Problem, network: Network, number: int, members: Sequence[int]) -> None:
    """Refuse problems and networks that a single agent cannot run."""
    if problem.agents != 1:
        raise ValueError(
            f"the problem holds the rows of {problem.agents} agents; a peer needs one with its own "
            f"rows only: lists of one entry"
        )
    used = {"sites": True, "changing members": network.epochs}
    check_combination(used, network.name, "sites")
    if number not in members:
        raise ValueError(f"there is no agent {number}; the network has 0 to {network.agents - 1}")
    if network.base is not None and len(network.sequence) > MAX_LOCAL_ROUNDS:
        raise ValueError(
            f"exchange_every is {len(network.sequence)}, and sites exchange at least every "
            f"{MAX_LOCAL_ROUNDS} rounds: take a smaller number"
        )
    local_steps = network.base is not None and network.base.kind == "symmetric"
    is_regular = local_steps and all(
        phase.graph.number_of_edges() == 0 for phase in network.sequence[:-1]
    )
    if not is_regular:
        remedy = f"take a network such as ring({network.agents}), or simulate it"
        check_combination(network.features | used, network.name, "sites", remedy)
