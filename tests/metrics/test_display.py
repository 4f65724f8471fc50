"""Progress that Python shows: on a terminal, in a notebook, and nowhere else."""

import io
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from fast_compilation import without_optimizations
from helpers import quad, ring

import diamond
from diamond.engine.many_runs import simulate_many

CHAIN = diamond.hypergradient.neumann(3, 1.6)
MINE = diamond.diamond(alpha=0.05, beta=0.2, eta=0.5, gamma=0.5, batch=3, hypergradient=CHAIN)
GIVEN = quad(), ring(4), MINE


class ZMQInteractiveShell:
    """By its name, the shell of a notebook."""


@contextmanager
def terminal():
    """A terminal in place of the error output; yields a list that ends up with its text."""
    ours, theirs = os.openpty()
    read: list[bytes] = []
    text: list[str] = []

    def collect():
        while True:
            try:
                read.append(os.read(ours, 4096))
            except OSError:  # the other end is closed
                return

    thread = threading.Thread(target=collect)
    thread.start()
    with pytest.MonkeyPatch.context() as patch, open(theirs, "w", encoding="utf-8") as stream:
        patch.setattr(sys, "stderr", stream)
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "120")
        yield text
    thread.join()
    os.close(ours)
    text.append(b"".join(read).decode())


def test_a_terminal_shows_stages_and_rounds_of_each_run():
    """Also inside of `compare` and `many`, where the runs share one display."""
    with terminal() as text, without_optimizations():
        diamond.simulate(*GIVEN, 6, every=3)
        pause = lambda stage: time.sleep(0.6 if stage == "compiling" else 0)  # a refresh or two
        diamond.simulate(*GIVEN, 6, every=3, on_stage=pause)
        diamond.compare(quad(), ring(4), {"mine": MINE}, 6, seeds=2, every=3)
        simulate_many(quad(), ring(4), [(MINE, 0), (MINE, 1)], 6, 3)
    assert "run compiling" in text[0] and "6/6" in text[0]
    assert "mine-seed0" in text[0] and "mine-seed1" in text[0]
    assert "2 of 2 made" in text[0]


def test_without_progress_a_terminal_stays_empty():
    with terminal() as text, without_optimizations():
        diamond.simulate(*GIVEN, 6, every=3, progress=False)
        diamond.compare(quad(), ring(4), {"mine": MINE}, 6, every=3, progress=False)
        simulate_many(quad(), ring(4), [(MINE, 0)], 6, 3, progress=False)
        sys.stderr.write("reached")
    assert text == ["reached"]


def test_a_notebook_has_one_line_that_is_replaced(monkeypatch):
    """Runs of one cell share it; a real kernel is asked in the tests of examples."""
    shown: list[list[str]] = []

    class Handle:
        def update(self, content, raw):
            shown[-1].append(content["text/plain"])

    def display(content, raw, display_id):
        shown.append([content["text/plain"]])
        return Handle()

    shell = ZMQInteractiveShell()
    names = {"get_ipython": lambda: shell, "display": SimpleNamespace(display=display)}
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(**names))
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with without_optimizations():
        for shell.execution_count in (1, 1, 2):
            diamond.simulate(*GIVEN, 6, every=3)
    assert len(shown) == 2 and len(shown[0]) == 2 * len(shown[1])
    assert shown[1][0] == "run: compiling ..."
    assert shown[1][-1].startswith("run: round 6 of at most 6, upper loss")
    assert any("left" in text for text in shown[1]) and "left" not in shown[1][-1]
    assert sys.stderr.getvalue() == ""


@pytest.mark.wide
def test_elsewhere_nothing_is_shown_and_rich_is_not_imported():
    code = """
import sys, diamond
made = diamond.gallery.quadratic(agents=3, upper=2, lower=2, rows=6)
steps = dict(alpha=0.05, beta=0.2, eta=0.5, gamma=0.5)
mine = diamond.diamond(batch=2, hypergradient=diamond.hypergradient.neumann(3, 1.6), **steps)
diamond.compare(made, diamond.network.ring(3), {"mine": mine}, 2)
print("rich" in sys.modules)
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert (result.stdout, result.stderr) == ("False\n", "")
