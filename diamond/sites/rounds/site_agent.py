"""Computation of one agent in a round, without networking: outgoing message, gradients, state."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...auto import loss_monitor
from ...core import cost_counter, pytrees
from ...core.sampling import ExchangeId
from ...interface.round_interface import Message
from ...network.mixing.masked_mixer import FixedPointMessage
from ...schedules import deferred
from . import agent_programs
from .agent_programs import ComputeKey, FinishKey, LocalResult
from .agent_setup import AgentSetup
from .round_progress import AgentProgress, rollback_state

MEAN_SOURCE = -1  # in place of a neighbour's number: the exact mean


class Agent(AgentSetup):
    """Agent `number` of the network, with a problem that holds only its own rows.

    The agent draws the samples of agent `number` of `diamond.simulate` and sums received messages
    in the order of the agents, so its trajectory equals the simulated one. A round is a sequence of
    exchanges. Numbers that the algorithm leaves open are estimated from this agent's measurements
    and the maximum over the network. With `epoch`, the agents of the network are its members, and
    the first round is that of the epoch. Absent neighbours are treated as by the `Node`.
    """

    distances: tuple[np.ndarray, np.ndarray] | None = None  # see `split_observations`
    _flat_algorithm: tuple[Any, Any, Any] = None, None, None  # with leaves, structure
    _precomputed: tuple[Any, Any, Any] = None, None, None  # algorithm, state, next message
    _last_sent: tuple[Any, Any] = None, None  # last message, on host and device
    _last_masked: tuple[Any, Any] = None, None  # last message, in fixed point

    def resolve_deferred(
        self, progress: AgentProgress, consensus: deferred.Consensus
    ) -> AgentProgress:
        """Estimate the numbers that the algorithm leaves open, at the agent's current point."""
        context = self._resolution_context(progress, consensus)
        if progress.clock > self.first_round or progress.start:
            state = jax.tree.map(lambda a: a[None], progress.state)
            context = context.after_rounds(state.x, state.y, progress.discard_estimates, progress.t)
        resolved = deferred.resolve(self.algorithm, context)
        counter = cost_counter.add(
            progress.spent, jnp.asarray(cost_counter.agent_counters(resolved.cost, 1)[0])
        )
        if progress.t == self.first_round:  # the state may depend on the estimates
            state, method = progress.state, resolved.algorithm
            begin = method.restart_trackers if self.first_round else lambda s: method.init(s.x, s.y)
            progress = progress._replace(state=begin(state))
        estimates = context.memory
        algorithm = loss_monitor.scale_steps(resolved.algorithm, estimates)
        progress = progress._replace(spent=counter, algorithm=algorithm, estimates=estimates)
        progress = progress._replace(discard_estimates=False)
        if loss_monitor.MonitorState.read(estimates).is_lowest:
            lowest = rollback_state(progress) if progress.t else None
            progress = progress._replace(lowest_state=lowest)
        return progress

    def needs_reestimation(self, progress: AgentProgress) -> bool:
        """Return whether numbers are to be estimated again in this round."""
        lasting = all(value.lasting for value in progress.estimates.values())
        return not lasting and progress.t in deferred.reestimation_rounds(progress.t)

    def apply_estimates(self, progress: AgentProgress) -> AgentProgress:
        """Put the numbers estimated earlier into the algorithm."""
        resolved = deferred.resolve(self.algorithm, self._resolution_context(progress))
        algorithm = loss_monitor.scale_steps(resolved.algorithm, progress.estimates)
        return progress._replace(algorithm=algorithm)

    def _resolution_context(
        self, progress: AgentProgress, consensus: deferred.Consensus = deferred.SingleProcess()
    ) -> deferred.ResolutionContext:
        inputs, memory = (self.problem, self.network), dict(progress.estimates)
        return deferred.ResolutionContext(
            *inputs,
            self.template.batch,
            self.seed,
            memory,
            agent=self.number,
            consensus=consensus,
            first_round=self.first_round,
        )

    def compute(self, progress: AgentProgress, exchange: int) -> LocalResult:
        """Compute everything up to that exchange: silent stages, then the gradients for it."""
        stage, position, silent = self.exchanges[exchange]
        numbers, structure = self._flatten_algorithm(progress.algorithm)
        stages = tuple((silent_stage, self._draw_index(p)) for silent_stage, p in silent)
        key = ComputeKey(
            structure,
            self._objectives,
            self.sampling,
            stages,
            stage,
            self._draw_index(position),
            has_message=not self.sends_before_gradient(exchange),
        )
        program = agent_programs.compute_program(key)
        local_result: LocalResult = program(*self._program_arguments(numbers, progress))
        local_result.spent.block_until_ready()  # waits for the whole program
        return local_result if silent else local_result._replace(state=progress.state)

    def _program_arguments(self, numbers: Any, progress: AgentProgress) -> tuple[Any, ...]:
        """Return the arguments of a program up to an exchange."""
        inputs = progress.state, progress.spent, np.int32(progress.t)
        return numbers, self._rows, self._bits, self._number_array, *inputs

    def _flatten_algorithm(self, algorithm: Any) -> tuple[Any, Any]:
        """Return the numbers of the algorithm, as programs take them, and its structure."""
        if self._flat_algorithm[0] is not algorithm:
            leaves, structure = jax.tree.flatten(algorithm)
            self._flat_algorithm = algorithm, [jnp.asarray(leaf) for leaf in leaves], structure
        return self._flat_algorithm[1:]

    def outgoing(
        self, progress: AgentProgress, exchange: int, local_result: LocalResult | None
    ) -> Message:
        """Return the outgoing message; `local_result` may be None if it is not needed."""
        if local_result is not None and local_result.message is not None:
            return local_result.message
        if self._precomputed[0] is progress.algorithm and self._precomputed[1] is progress.state:
            return self._precomputed[2]
        numbers, structure = self._flatten_algorithm(progress.algorithm)
        program = agent_programs.outgoing_program(structure, self.exchanges[exchange].stage)
        return program(numbers, progress.state, np.int32(progress.t))

    def outgoing_arrays(
        self, progress: AgentProgress, exchange: int, local_result: LocalResult | None
    ) -> list[np.ndarray]:
        """Return the arrays to send."""
        message = self.outgoing(progress, exchange, local_result)
        if self.channel_codec is not None:
            states = progress.channel_states[self.exchanges[exchange].stage]
            state, exchange_id = states[self._own_index], self._exchange_id(progress.t, exchange)
            message = self.channel_codec.encode(state, message, exchange_id, self.number)
        leaves = jax.tree.leaves(message)
        self._last_sent = [np.asarray(leaf) for leaf in leaves], leaves
        return self._last_sent[0]

    def _exchange_id(self, t: int, exchange: int) -> ExchangeId:
        """Return the exchange that seeds random compression."""
        position = self._draw_index(self.exchanges[exchange].position)
        return ExchangeId(self.key, jnp.int32(t), position)

    def unflatten_message(self, arrays: Sequence[np.ndarray], exchange: int = 0) -> Message:
        """Restore the message, or its compressed form, from arrays."""
        return jax.tree.unflatten(self._structures[self.exchanges[exchange].stage], arrays)

    def last_messages(
        self, progress: AgentProgress, arrays: Mapping[int, Any], exchange: int
    ) -> dict[int, Message]:
        """Return the messages of all sources in that exchange of the last round, as decoded."""
        encoded = {j: self.unflatten_message(leaves, exchange) for j, leaves in arrays.items()}
        codec = self.channel_codec
        if codec is None:
            return encoded
        exchange_id = self._exchange_id(progress.t - 1, exchange)
        stage = self.exchanges[exchange].stage
        states = dict(zip(self.sources, progress.channel_states[stage]))
        if codec.compressor is not None and codec.compressor.feedback == "difference":
            return {j: states[j][0] for j in encoded}
        like = self.message_shapes[stage]
        return {j: codec.decode(states[j], e, like, exchange_id, j) for j, e in encoded.items()}

    def masked_change(self, messages: Mapping[int, Sequence[np.ndarray]]) -> list[np.ndarray]:
        """Return the arrays of sum_j M_ij (message_j - message_i), of masked messages."""
        assert self.masked is not None
        own = messages[self.number]
        received = [messages[j] for j in self.masked.neighbours]
        dtypes = [array.dtype for array in own]
        return self.masked.change(self.fixed_point_message(own), received, dtypes)

    def fixed_point_message(self, arrays: Sequence[np.ndarray]) -> FixedPointMessage:
        """Return an own message for masked sums; the last one is converted once."""
        assert self.masked is not None
        if self._last_masked[0] is not arrays:
            self._last_masked = arrays, FixedPointMessage(arrays, self.masked.limit)
        return self._last_masked[1]

    def finish_exchange(
        self,
        progress: AgentProgress,
        exchange: int,
        local_result: LocalResult,
        messages: Mapping[int, Sequence[np.ndarray]],
    ) -> AgentProgress:
        """Finish the exchange with the messages of all neighbours and the agent's own.

        In an exact mean, with the own message and the mean, that of `MEAN_SOURCE`.
        """
        own_index, stage = self._own_index, self.exchanges[exchange].stage
        t, channel_states = np.int32(progress.t), progress.channel_states
        inputs = local_result.state, local_result.estimate
        if self.channel_codec is None:
            numbers, structure = self._flatten_algorithm(progress.algorithm)
            is_mean = self.sends_mean(exchange)
            has_change = is_mean or self.masked is not None
            structures, index = (structure, self._structures[stage]), 0 if has_change else own_index
            following = self._next_messages[exchange]
            key = FinishKey(*structures, stage, index, following, self.robust, has_change)
            program = agent_programs.finish_program(key)
            own_arrays, on_device = self._last_sent
            sources = [self.number, MEAN_SOURCE] if is_mean else self.sources
            leaves = [on_device if messages[j] is own_arrays else messages[j] for j in sources]
            if self.masked is not None:
                leaves = [leaves[own_index], self.masked_change(messages)]
            parts = tuple(map(tuple, leaves))
            new_state, observations, message = program(numbers, *inputs, parts, self.weights, t)
            state = new_state.restore(inputs)
            observed = agent_programs.split_observations(np.asarray(observations), len(parts))
            total, *distances = observed
            self.distances = None if has_change else (distances[0], distances[1])
            is_finite = math.isfinite(total) or pytrees.finite((state.x, state.y))
            precomputed = message and (progress.algorithm, state, message.restore(state))
            self._precomputed = precomputed or (None, None, None)
        else:
            is_early, codec = self.sends_before_gradient(exchange), self.channel_codec
            own_message = self.outgoing(progress, exchange, None if is_early else local_result)
            encoded = [self.unflatten_message(messages[j], exchange) for j in self.sources]
            states, exchange_id = channel_states[stage], self._exchange_id(progress.t, exchange)
            decoded, new_states = codec.receive(
                states, own_message, own_index, encoded, exchange_id, self.sources
            )
            channel_states = (*channel_states[:stage], new_states, *channel_states[stage + 1 :])
            change = agent_programs.mix_compiled(decoded, self.weights, own_index)
            mixed = own_message, pytrees.scale(codec.damping_at(progress.t), change)
            update = agent_programs.update_compiled
            state, is_finite = update(progress.algorithm, *inputs, mixed, t, stage)
        if not is_finite:
            raise FloatingPointError(
                f"agent {self.number} diverged in round {progress.t}: x or y is not finite; "
                f"start again with smaller steps"
            )
        spent = local_result.spent
        return progress._replace(state=state, spent=spent, channel_states=channel_states)

    def finish_round(self, progress: AgentProgress) -> AgentProgress:
        """Finish the round: run the stages after its last exchange."""
        state, spent = progress.state, progress.spent
        if self.final_stages:
            numbers, structure = self._flatten_algorithm(progress.algorithm)
            stages = tuple((stage, self._draw_index(p)) for stage, p in self.final_stages)
            key = ComputeKey(structure, self._objectives, self.sampling, stages, None)
            program = agent_programs.compute_program(key)
            state, spent = program(*self._program_arguments(numbers, progress))
        return progress._replace(t=progress.t + 1, state=state, spent=spent)
