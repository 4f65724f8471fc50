"""Host-side communication between the processes of one job."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax
import numpy as np

CHUNK = 1024  # bytes: messages of similar length share a compiled program


def everyone(said: bytes) -> list[bytes]:
    """Gather the messages of all processes on all processes; every process must call this."""
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
    """Raise an error of one process in all processes, so that none waits for a dead one."""
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
