"""Messages of a round, and the bytes sent."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..core.exclusions import Features, check_combination
from ..core.sampling import draw, key
from ..network import Network
from ..network.spanning_tree import count_mean_messages
from ..problem import Objectives
from ..schedules.deferred import deferred_names, select_agent_values
from ..schedules.learned import learned_names
from .round_interface import Algorithm, Message, Method

MASKED_BYTES = 8  # of a number in a masked sum


class Traffic(NamedTuple):
    """Bytes that one agent sends to one neighbour in a round, and those of exact means."""

    exchanges: int  # with all neighbours
    bytes: int
    per_exchange: tuple[tuple[int, bool], ...] = ()  # bytes of every exchange; whether it is early
    turns: tuple[int | None, ...] = ()  # number of each in the round; None: a single one
    means: tuple[int, ...] = ()  # indices in `per_exchange` of exact means

    def count_messages(self, network: Network, rounds: int) -> int:
        """Count the messages of all agents in these rounds."""
        messages = network.count_messages(rounds) * self.exchanges
        if self.means:
            messages += sum(count_mean_messages(network, rounds * len(self.means)).values())
        return messages

    def count_bytes_by_edge(self, network: Network, rounds: int) -> dict[tuple[int, int], int]:
        """Count the bytes over each edge in these rounds."""
        counts = network.count_messages_by_edge(rounds)
        counts = {edge: count * self.bytes for edge, count in counts.items()}
        if self.means:
            size = sum(self.per_exchange[k][0] for k in self.means)
            for edge, count in count_mean_messages(network, rounds).items():
                counts[edge] += count * size
        return counts

    def count_bytes(self, network: Network, rounds: int) -> int:
        """Count the bytes over all edges in these rounds."""
        if not self.means:
            return network.count_messages(rounds) * self.bytes
        return sum(self.count_bytes_by_edge(network, rounds).values())


def message_shapes(algorithm: Algorithm, problem: Objectives, x: Any, y: Any) -> list[Message]:
    """Return the message of each stage, as shapes."""
    return jax.eval_shape(_trace_messages, algorithm, problem, x, y)


def is_mean(message: Message) -> bool:
    """Return whether a message is replaced by its exact mean; refuse one with other parts too."""
    has_mean = bool(jax.tree.leaves(message.mean))
    if has_mean and jax.tree.leaves(message._replace(mean=None)):
        raise ValueError(
            "a stage sends mean together with average or total, which travel differently: send "
            "them in two stages"
        )
    return has_mean


def check_exact_means(network: Network, messages: Sequence[Message], site: Features) -> None:
    """Reject a method with exact means where there are none; `site` are features of a site."""
    used = {"exact means": True, **network.features, **site}
    if any(map(is_mean, messages)):
        check_combination(used, network.name, "sites")


def check_robust_mixing(network: Network, algorithm: Method, messages: Sequence[Message]) -> None:
    """Reject a method whose corrections need sums that robust mixing does not preserve."""
    is_corrected = algorithm.networks == "symmetric"
    has_sums = is_corrected or any(jax.tree.leaves(message.total) for message in messages)
    used = {"robust mixing": network.defense is not None, "trackers": has_sums}
    check_combination(used, network.name)


def check_masked_sums(network: Network, algorithm: Method) -> None:
    """Reject settings in which agents would send measurements or single messages in the clear."""
    if network.mask_limit is None:
        return
    names = _open_numbers(algorithm)
    used = {"masked sums": True, "open numbers": names}
    check_combination(used, network.name, remedy=f"give {' and '.join(names)}")


def check_asynchronous_rounds(algorithm: Method, place: str, used: Features) -> None:
    """Reject a method, or other features in use, with which rounds cannot be asynchronous."""
    used = {**used, "missing='asynchronous'": True, "open numbers": _open_numbers(algorithm)}
    used |= {"a method for symmetric weights": algorithm.networks == "symmetric"}
    check_combination(used, place, "sites")


def _open_numbers(algorithm: Method) -> list[str]:
    """Return the names of the numbers on which the agents agree during the run."""
    names = {*deferred_names(algorithm)} | ({"alpha"} & learned_names(algorithm))
    return sorted(name for name in names if not name.startswith("_"))


def count_traffic(
    algorithm: Algorithm,
    problem: Objectives,
    x: Any,
    y: Any,
    channels: Sequence[Any] = (),
    is_masked: bool = False,
) -> Traffic:
    """Return the traffic of one round, one link and one direction, encoded by `channels`."""
    shapes = message_shapes(algorithm, problem, x, y)
    for channel in channels:
        shapes = [channel.wire(message) for message in shapes]
    repeats = [
        stage.repeats * bool(jax.tree.leaves(m)) for stage, m in zip(algorithm.stages, shapes)
    ]
    width = lambda a: MASKED_BYTES if is_masked else a.dtype.itemsize
    size = lambda m: sum(a.size * width(a) for a in jax.tree.leaves(m))
    per_exchange: list[tuple[int, bool]] = []
    after_local_step = False  # a local step delays the next message
    positions: list[int | None] = []
    means: list[int] = []
    position = 0
    for stage, k, m in zip(algorithm.stages, repeats, shapes):
        if is_mean(m):
            means += range(len(per_exchange), len(per_exchange) + k)
        else:
            positions += range(position, position + k)
        per_exchange += [
            (size(m), stage.sends_before_gradient and not (after_local_step and repeat == 0))
            for repeat in range(k)
        ]
        after_local_step, position = k == 0, position + stage.repeats
    if position == 1:
        positions = [None] * len(positions)
    total = sum(k * size(m._replace(mean=None)) for k, m in zip(repeats, shapes))
    exchanges = sum(repeats) - len(means)
    return Traffic(exchanges, total, tuple(per_exchange), tuple(positions), tuple(means))


@jax.jit  # never run: caches the shapes, so that another run traces nothing
def _trace_messages(algorithm: Algorithm, problem: Objectives, x: Any, y: Any) -> list[Message]:
    algorithm = select_agent_values(algorithm, 0)
    state, messages = algorithm.init(x, y), []
    for stage in algorithm.stages:
        rows = problem.train.stored, problem.valid.stored
        one_row = jax.tree.map(lambda count: 1, rows)
        sample = draw(key(0), 0, 0, one_row, stage.hessian_batches, algorithm.batch, "blocks")
        agent = jnp.int32(0)  # of the type as in a round, so that a trace may serve both
        estimate, _ = stage.estimate(problem.for_agent(agent), state, 0, sample)
        messages.append(stage.outgoing(state, estimate, 0))
    return messages
