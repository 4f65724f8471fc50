"""What the processes of one job tell each other, beside what their devices exchange."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax
import numpy as np

CHUNK = 1024  # bytes: messages of about the same length are one compiled program


def everyone(said: bytes) -> list[bytes]:
    """What each process says, on all of them: every process has to ask."""
    if jax.process_count() == 1:
        return [said]
    from jax.experimental.multihost_utils import process_allgather

    lengths = np.asarray(process_allgather(np.int32(len(said))))
    padded = np.zeros(-(-int(lengths.max()) // CHUNK) * CHUNK, np.uint8)
    padded[: len(said)] = np.frombuffer(said, np.uint8)
    heard = np.asarray(process_allgather(padded))
    return [one[:length].tobytes() for one, length in zip(heard, lengths)]


@contextmanager
def together() -> Iterator[None]:
    """What one process refuses, all refuse, in its words: none waits for one that has ended."""
    mine: Exception | None = None
    try:
        yield
    except Exception as error:
        mine = error
    said = "" if mine is None else str(mine) or type(mine).__name__
    refusals = [heard.decode() for heard in everyone(said.encode()) if heard]
    if mine is not None:
        raise mine
    if refusals:
        raise ValueError(refusals[0])
