"""Ctrl-C that waits for a good moment."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .app import talk


@contextmanager
def gently() -> Iterator[Callable[[], bool]]:
    """Yields a function that tells whether to stop; a second Ctrl-C stops at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set  # signals reach the main thread only
        return

    def ask(number: int, frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        talk("stopping after this chunk of rounds; once more: at once", "yellow")

    signals = [signal.SIGINT, signal.SIGTERM]
    before = {number: signal.signal(number, ask) for number in signals}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
