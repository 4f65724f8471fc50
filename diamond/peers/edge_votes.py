"""Votes on the state of an edge, as they travel between its two ends."""

from ..core.parsing import refuse_unreadable
from . import wire_format
from .edge_journal import DOWN, UP, YES
from .wire_format import MAX_REQUEST_BYTES, Frame, FrameError

STUCK = "stuck"  # answer of an agent that needs the decision of another neighbour
MAX_VOTE_BYTES = 64  # votes are shorter, messages are not


def encode_vote(vote: str, until: int = 0) -> Frame:
    """Encode a vote; if the edge is down, for all rounds before `until`."""
    return wire_format.pack({"kind": "word", "word": vote, "until": until})


@refuse_unreadable(FrameError, "a vote that cannot be read")
def decode_vote(answer: Frame) -> tuple[str, int]:
    """Decode a vote, empty if there is none yet, and the round before which it holds."""
    if not answer:
        return "", 0
    header, _ = wire_format.unpack(answer, MAX_REQUEST_BYTES)
    if header.get("kind") != "word" or header.get("word") not in (UP, DOWN, YES, STUCK):
        raise FrameError("an answer that is neither a message nor a word")
    if type(header.get("until")) is not int:
        raise FrameError("a vote without its rounds")
    return str(header["word"]), header["until"]
