"""Masks of messages: each message looks random, and the sum of a receiver's neighbours is exact.

What neighbour j sends to receiver i in exchange t, with integers modulo 2^64 (`fixed_point`), is

    floor(W_ij q_j / 2^32) + sum_{k > j} r_jk - sum_{k < j} r_jk,    k the other neighbours of i

where r_jk is the AES-128-CTR keystream of the key that j and k share for i, at counter t 2^64. An
outbox has the plain message; masks are added when it is sent, so that a restarted site sends the
same bits. Another message under the same mask, whose difference the receiver would see, is refused
(`sent_record`).
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from ...network import Network
from ...network.mixing.fixed_point import Words
from ...network.mixing.masked_mixer import FixedPointMessage, masked_receiver
from ..rounds.client import NeighbourClient
from ..rounds.site_agent import Agent
from ..transport import wire_format
from ..transport.wire_format import Envelope, Frame
from ..transport.worker_thread import BlockingRunner
from .mask_keys import MAX_NEIGHBOURS, MaskIdentity, MaskKeys, agree_on_keys


def keystream(key: bytes, t: int, zeros: bytes, buffer: bytearray | None = None) -> Words:
    """Return as many random integers as there are zeros, for exchange t.

    The same key never has the same t twice. A `buffer` is 16 bytes longer than the zeros.
    """
    encryptor = Cipher(AES(key), CTR(t.to_bytes(8, "big") + bytes(8))).encryptor()
    buffer = bytearray(len(zeros) + 16) if buffer is None else buffer
    encryptor.update_into(zeros, buffer)
    return np.frombuffer(buffer, "<u8", len(zeros) // 8)


class MessageMasks:
    """Masks of the messages of one agent in a run; without a folder, in memory only."""

    def __init__(self, agent: Agent, run: str, identity: MaskIdentity, folder: Path | None = None):
        network = agent.network
        self._site, self.agent, self.run = agent, agent.number, run
        members = agent.members
        receivers = {i: masked_receiver(network, members, i) for i in agent.neighbours}
        _check_degrees(network, [len(receiver.neighbours) for receiver in receivers.values()])
        groups = {i: receiver.neighbours for i, receiver in receivers.items()}
        self.keys = MaskKeys(agent.number, run, groups, identity, folder=folder)
        self.limit = receivers[agent.neighbours[0]].limit
        self._weights = {
            i: receiver.weights[receiver.neighbours.index(agent.number)]
            for i, receiver in receivers.items()
        }
        self._message: tuple[int, FixedPointMessage] | None = None  # of the last exchange
        self._zeros, self._stream = b"", bytearray()

    def open(self, is_resumed: bool) -> None:
        """Load the keys of this run, or start them."""
        self.keys.open(is_resumed)

    async def agree(self, client: NeighbourClient, run_blocking: BlockingRunner) -> None:
        """Agree on keys with the neighbours of all neighbours, and save them."""
        if not self.keys.is_complete:
            await agree_on_keys(self.keys, client)
            await run_blocking(self.keys.save)

    def prepare(self, t: int, arrays: Sequence[np.ndarray]) -> None:
        """Prepare the message of exchange t; raise `LimitExceeded` if a number is too large."""
        self._message = t, self._site.fixed_point_message(arrays)

    def mask_frame(self, receiver: int, t: int, frame: Frame) -> Frame:
        """Return the masked message for one receiver; `frame` is the plain message."""
        envelope, layout = Envelope(self.run, self.agent, t), self._site.plain_layout_at(t)
        if self._message is None or self._message[0] != t:
            arrays = wire_format.decode(frame, envelope, layout)
            self._message = t, FixedPointMessage(arrays, self.limit)
        words = self._message[1].product(self._weights[receiver])
        if len(self._zeros) != words.nbytes:
            self._zeros, self._stream = bytes(words.nbytes), bytearray(words.nbytes + 16)
        for other in self.keys.public_keys[receiver]:
            key = self.keys.pair_key(receiver, other)
            stream = keystream(key, t, self._zeros, self._stream)
            words = words + stream if self.agent < other else words - stream
        ends = np.cumsum([math.prod(leaf.shape) for leaf in layout])
        leaves = np.split(words, ends[:-1])
        shaped = [leaf.reshape(spec.shape) for leaf, spec in zip(leaves, layout, strict=True)]
        return wire_format.encode(envelope, shaped)


def _check_degrees(network: Network, degrees: Sequence[int]) -> None:
    """Refuse neighbourhoods whose signed keys do not fit in a response."""
    largest = max(degrees)
    if largest > MAX_NEIGHBOURS:
        raise ValueError(
            f"{network.name} has an agent with {largest} neighbours; masked sums between sites "
            f"take at most {MAX_NEIGHBOURS}: choose a graph with fewer links, such as a torus"
        )
