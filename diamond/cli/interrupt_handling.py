"""Ctrl-C handling that loses no signal and waits for a checkpoint while a run is in progress."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from ..metrics.display import print_message
from .app import INTERRUPTED

STOPPING = "stopping at the next evaluation; press Ctrl-C again to stop immediately"

# Whether Ctrl-C was pressed in this command. KeyboardInterrupt alone is not enough: Python drops an
# exception that is raised in a callback of the garbage collector or of a weak reference, and JAX
# has both.
_requested = threading.Event()


@contextmanager
def exit_on_interrupt() -> Iterator[None]:
    """End the command with exit code 130 if Ctrl-C is pressed at any time inside."""
    _requested.clear()
    try:
        with _handle_signals(_raise_interrupt, signal.SIGINT):
            yield
    except KeyboardInterrupt:
        print_message("interrupted", "yellow")
        raise typer.Exit(INTERRUPTED) from None
    if _requested.is_set():
        print_message("interrupted, but the work was already finished", "yellow")
        raise typer.Exit(INTERRUPTED)


def check_interrupt() -> None:
    """Raise the KeyboardInterrupt of an earlier Ctrl-C that was dropped."""
    if _requested.is_set():
        raise KeyboardInterrupt


@contextmanager
def stop_at_evaluation() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether to stop; a second Ctrl-C stops immediately."""

    def request_stop(number: int, frame: Any) -> None:
        if _requested.is_set():
            raise KeyboardInterrupt
        _requested.set()
        try:
            print_message(STOPPING, "yellow")
        except Exception:  # the signal interrupted a write or an import of rich
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"{STOPPING}\n".encode())

    with _handle_signals(request_stop, signal.SIGINT, signal.SIGTERM):
        yield _requested.is_set


def _raise_interrupt(number: int, frame: Any) -> None:
    _requested.set()
    raise KeyboardInterrupt


@contextmanager
def _handle_signals(
    handler: Callable[[int, Any], None], *signals: signal.Signals
) -> Iterator[None]:
    """Handle `signals` by `handler`; in the main thread only, which alone receives signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
