"""Host-side communication between the processes of one job."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax
import numpy as np

CHUNK = 1024  # bytes: messages of similar length share a compiled program


def gather_messages(message: bytes) -> list[bytes]:
    """Gather the messages of all processes on all processes; every process must call this."""
    if jax.process_count() == 1:
        return [message]
    from jax.experimental.multihost_utils import process_allgather

    lengths = np.asarray(process_allgather(np.int32(len(message))))
    padded = np.zeros(-(-int(lengths.max()) // CHUNK) * CHUNK, np.uint8)
    padded[: len(message)] = np.frombuffer(message, np.uint8)
    messages = np.asarray(process_allgather(padded))
    return [padded_message[:length].tobytes() for padded_message, length in zip(messages, lengths)]


@contextmanager
def raise_in_all_processes() -> Iterator[None]:
    """Raise an error of one process in all processes, so that none waits for a dead one."""
    local_error: Exception | None = None
    try:
        yield
    except Exception as error:
        local_error = error
    message = "" if local_error is None else str(local_error) or type(local_error).__name__
    errors = [
        error_bytes.decode() for error_bytes in gather_messages(message.encode()) if error_bytes
    ]
    if local_error is not None:
        raise local_error
    if errors:
        raise ValueError(errors[0])
