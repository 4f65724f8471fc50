"""Compressed messages, with a memory that corrects the compression error."""

from collections.abc import Callable
from dataclasses import field
from typing import Any, Literal

import jax

from diamond.core import pytrees
from diamond.core.validation import as_int
from diamond.network.channels import compressors
from diamond.network.channels.channel import Channel

Feedback = Literal["difference", "error", "none"]


@pytrees.pytree
class Compressed(Channel):
    """Channel with codec Q; s is the message, shat the message as received.

        difference   shat += Q(s - shat)                       all receivers keep shat (CHOCO)
        error        shat = Q(s + e),  e += s - shat           the sender keeps e
        none         shat = Q(s)

    and c_i = gamma sum_j M_ij (shat_j - shat_i): both ends use the same values, so totals are
    preserved. With differences shat converges to s and the fixed point is exact: around D-SGD this
    is CHOCO-SGD (Koloskova et al., 2019), around gradient tracking BEER (Zhao et al., 2022), around
    exact diffusion LEAD. Error feedback is right in the mean over rounds, none not at all.
    """

    codec: compressors.Codec
    feedback: Feedback = field(metadata={"static": True})
    compresses = True

    @property
    def name(self) -> str:
        feedback = "" if self.feedback == "difference" else f", {self.feedback}"
        return f"{self.codec.name}{feedback}"

    @property
    def gamma(self) -> float:
        return float(self.codec.gamma)

    @property
    def static_only(self) -> bool:
        return self.feedback == "difference"

    def check(self, message: Any) -> None:
        size = sum(leaf.size for leaf in jax.tree.leaves(message))
        terms = self.codec.terms
        if terms is not None and terms > size:
            raise ValueError(
                f"terms = {terms}, but a message has {size} numbers; take {size} or fewer"
            )

    def start_sender(self, message: Any) -> Any:
        return None if self.feedback == "none" else pytrees.zeros(message)

    def outgoing(self, state: Any, message: Any, key: jax.Array) -> tuple[Any, Any]:
        received = self.decode(state, self.encode(state, message, key), message, key)
        return received, self.next_state(state, message, received)

    def next_state(self, state: Any, message: Any, received: Any) -> Any:
        """Return the new state of the sender."""
        if self.feedback == "error":
            return pytrees.sub(pytrees.add(message, state), received)
        return received if self.feedback == "difference" else None

    def encode(self, state: Any, message: Any, key: jax.Array) -> Any:
        """Return the encoded message before it is squeezed into bytes."""
        values = message
        if self.feedback == "difference":
            values = pytrees.sub(message, state)
        elif self.feedback == "error":
            values = pytrees.add(message, state)
        return _map_leaves(key, self.codec.pack, values)

    def decode(self, copy: Any, wire: Any, like: Any, key: jax.Array) -> Any:
        """Decode a message; `copy` is the previous message, for differences."""
        values = _map_leaves(key, lambda key, a, w: self.codec.unpack(key, w, a), like, wire)
        return pytrees.add(copy, values) if self.feedback == "difference" else values

    def to_bytes(self, wire: Any, like: Any) -> Any:
        """Return the transmitted bytes."""
        return jax.tree.map(lambda a, packed: self.codec.squeeze(packed), like, wire)

    def from_bytes(self, wire: Any, like: Any) -> Any:
        """Return the numbers in the transmitted bytes."""
        return jax.tree.map(lambda a, packed: self.codec.expand(packed, a), like, wire)

    def wire(self, message: Any) -> Any:
        pack = lambda a: self.codec.squeeze(self.codec.pack(jax.random.key(0), a))
        return jax.tree.map(lambda a: jax.eval_shape(pack, a), message)


def _map_leaves(key: jax.Array, function: Callable[..., Any], a: Any, *more: Any) -> Any:
    """Apply function(key of the leaf, leaf, ...) to every leaf of a."""
    leaves, structure = jax.tree.flatten(a)
    keys = [jax.random.fold_in(key, k) for k in range(len(leaves))]
    return jax.tree.map(function, jax.tree.unflatten(structure, keys), a, *more)


def rounded(
    kind: Literal["float16", "bfloat16"] = "bfloat16", feedback: Feedback = "difference"
) -> Compressed:
    """Send two bytes per number.

    Args:
        kind: "bfloat16" or "float16".
        feedback: memory of the compression: "difference" (default), "error" or "none".
    """
    if kind not in ("float16", "bfloat16"):
        raise ValueError(f"kind = {kind!r}; there are 'float16' and 'bfloat16'")
    return Compressed(compressors.Rounded(kind), _check_feedback(feedback))


def quantized(bits: int = 4, feedback: Feedback = "difference") -> Compressed:
    """Send `bits` bits per number, 2 to 8, with random rounding; `feedback` as in `rounded`."""
    if not 2 <= as_int("bits", bits) <= 8:
        raise ValueError(f"bits = {bits}: 2 to 8 a number; for one, take sign")
    return Compressed(compressors.Quantized(bits, feedback != "none"), _check_feedback(feedback))


def top(
    share: float | None = None, terms: int | None = None, feedback: Feedback = "difference"
) -> Compressed:
    """Send the largest numbers of every array: a `share` (0 to 1) or `terms` numbers.

    `feedback` is as in `rounded`.
    """
    return Compressed(compressors.Top(*_check_amount(share, terms)), _check_feedback(feedback))


def random(
    share: float | None = None, terms: int | None = None, feedback: Feedback = "difference"
) -> Compressed:
    """Send random numbers of every array: a `share` (0 to 1) or `terms` numbers.

    `feedback` is as in `rounded`.
    """
    return Compressed(compressors.Random(*_check_amount(share, terms)), _check_feedback(feedback))


def sign(feedback: Feedback = "difference") -> Compressed:
    """Send one bit per number, and the mean magnitude; `feedback` as in `rounded`."""
    return Compressed(compressors.Sign(), _check_feedback(feedback))


def low_rank(rank: int = 2, feedback: Feedback = "difference") -> Compressed:
    """Send matrices as products of two matrices of `rank` columns; `feedback` as in `rounded`."""
    return Compressed(compressors.LowRank(as_int("rank", rank, 1)), _check_feedback(feedback))


def _check_amount(share: float | None, terms: int | None) -> tuple[float | None, int | None]:
    if (share is None) == (terms is None):
        raise ValueError("give either share, of the numbers of a message, or terms, how many")
    if share is not None and not 0 < share <= 1:
        raise ValueError(f"share = {share}: it lies above 0 and at most at 1")
    return share, None if terms is None else as_int("terms", terms, 1)


def _check_feedback(feedback: Feedback) -> Feedback:
    if feedback not in ("difference", "error", "none"):
        raise ValueError(f"feedback = {feedback!r}; there are 'difference', 'error' and 'none'")
    return feedback
