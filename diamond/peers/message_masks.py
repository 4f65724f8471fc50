"""Masks of messages: each message looks random, and the sum of a receiver's neighbours is exact.

What neighbour j sends to receiver i in exchange t, with integers modulo 2^64 (`fixed_point`), is

    floor(W_ij q_j / 2^32) + sum_{k > j} r_jk - sum_{k < j} r_jk,    k the other neighbours of i

where r_jk is the AES-256-CTR keystream of the key that j and k share for i, at counter t 2^64. An
outbox has the plain message; masks are added when it is sent, so that a restarted site sends the
same bits. `masks.log` has a digest of each message before it is sent: another message in its place,
whose difference the receiver would see, is refused.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from ..network import Network
from ..network.mixing import fixed_point
from ..network.mixing.fixed_point import Words
from ..network.mixing.masked_mixer import masked_receiver
from ..privacy.ledger import LedgerMismatch
from . import wire_format
from .client import NeighbourClient
from .mask_agreement import agree_on_keys
from .mask_keys import MAX_NEIGHBOURS, MaskIdentity, MaskKeys, UnsignedIdentity
from .site_agent import Agent
from .wire_format import Envelope, Frame
from .worker_thread import BlockingRunner

LOG_FILE, DIGEST_BYTES = "masks.log", 16


def keystream(key: bytes, t: int, count: int) -> Words:
    """Return `count` random integers for exchange t; the same key never has the same t twice."""
    nonce = t.to_bytes(8, "big") + bytes(8)
    stream = bytearray(8 * count + 16)
    Cipher(AES(key), CTR(nonce)).encryptor().update_into(bytes(8 * count), stream)
    return np.frombuffer(stream, "<u8", count)


class MessageMasks:
    """Masks of the messages of one agent in a run; without a folder, in memory only."""

    def __init__(self, agent: Agent, run: str, identity: MaskIdentity, folder: Path | None = None):
        network = agent.network
        self.agent, self.run, self.folder = agent.number, run, folder
        self._layout_at = agent.plain_layout_at
        receivers = {i: masked_receiver(network, i) for i in agent.neighbours}
        _check_degrees(network, agent.neighbours)
        groups = {i: receiver.neighbours for i, receiver in receivers.items()}
        self.keys = MaskKeys(agent.number, run, groups, identity, folder)
        self.limit = receivers[agent.neighbours[0]].limit
        self._weights = {
            i: receiver.weights[receiver.neighbours.index(agent.number)]
            for i, receiver in receivers.items()
        }
        self._digests: dict[int, bytes] = {}
        self._log: int | None = None  # descriptor of the file
        self._words: tuple[int, Words] | None = None  # last exchange, and its message

    def open(self, is_resumed: bool) -> None:
        """Load keys and digests of this run, or start them."""
        is_new = self.keys.open(is_resumed)
        if self.folder is None:
            return
        self._log = os.open(self.folder / LOG_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        if is_new:
            os.ftruncate(self._log, 0)
        content = os.pread(self._log, os.fstat(self._log).st_size, 0)
        entries = (content[i : i + DIGEST_BYTES] for i in range(0, len(content), DIGEST_BYTES))
        self._digests = {t: entry for t, entry in enumerate(entries) if any(entry)}

    async def agree(self, client: NeighbourClient, run_blocking: BlockingRunner) -> None:
        """Agree on keys with the neighbours of all neighbours, and save them."""
        if not self.keys.is_complete:
            await agree_on_keys(self.keys, client)
            await run_blocking(self.keys.save)

    def close(self) -> None:
        """Close the file of digests."""
        if self._log is not None:
            os.close(self._log)
            self._log = None

    def record(self, t: int, arrays: Sequence[np.ndarray]) -> None:
        """Record the message of exchange t before it is sent.

        Raises `LimitExceeded` if a number is too large, `LedgerMismatch` if another message was
        recorded in its place.
        """
        words = self._to_words(arrays)
        digest = hashlib.blake2b(words.data, digest_size=DIGEST_BYTES).digest()
        if self._digests.setdefault(t, digest) != digest:
            raise LedgerMismatch(
                f"the message of exchange {t} is not the one that was sent before the restart, and "
                f"both have the same mask: it is not sent; start all sites with --restart"
            )
        if self._log is not None:
            os.pwrite(self._log, digest, t * DIGEST_BYTES)
        self._words = t, words

    def mask_frame(self, receiver: int, t: int, frame: Frame) -> Frame:
        """Return the masked message for one receiver; `frame` is the plain message."""
        envelope, layout = Envelope(self.run, self.agent, t), self._layout_at(t)
        if self._words is None or self._words[0] != t:
            self._words = t, self._to_words(wire_format.decode(frame, envelope, layout))
        words = fixed_point.multiply(self._words[1], self._weights[receiver])
        for other in self.keys.public_keys[receiver]:
            stream = keystream(self.keys.pair_key(receiver, other), t, words.size)
            if self.agent < other:
                words += stream
            else:
                words -= stream
        ends = np.cumsum([int(np.prod(leaf.shape)) for leaf in layout])
        leaves = np.split(words, ends[:-1])
        shaped = [leaf.reshape(spec.shape) for leaf, spec in zip(leaves, layout, strict=True)]
        return wire_format.encode(envelope, shaped)

    def _to_words(self, arrays: Sequence[Any]) -> Words:
        leaves = [fixed_point.to_words(np.asarray(a).reshape(-1), self.limit) for a in arrays]
        return np.concatenate(leaves)


def make_masks(
    agent: Agent,
    run: str,
    identity: MaskIdentity | None,
    folder: Path | None,
    is_complete: bool,
    is_restart: bool,
) -> MessageMasks:
    """Return the masks of an agent; refuse runs in which they cannot cancel or hide nothing.

    `is_complete` if no round misses a neighbour, `is_restart` if points of an earlier run are sent.
    """
    if not is_complete:
        raise ValueError(
            "masks cancel only in the sum of all neighbours, so that none may be missing: run "
            "masked sums with missing='wait' and without a deadline"
        )
    if is_restart:
        raise ValueError(
            "--onward sends the last point of each site in the clear, which masked sums hide: "
            "start all sites with --restart"
        )
    return MessageMasks(agent, run, identity or UnsignedIdentity(), folder)


def _check_degrees(network: Network, receivers: Sequence[int]) -> None:
    """Refuse neighbourhoods whose signed keys do not fit in a response."""
    largest = max(int(network.degrees[i]) for i in receivers)
    if largest > MAX_NEIGHBOURS:
        raise ValueError(
            f"{network.name} has an agent with {largest} neighbours; masked sums between sites "
            f"take at most {MAX_NEIGHBOURS}: choose a graph with fewer links, such as a torus"
        )
