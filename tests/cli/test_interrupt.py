"""Ctrl-C at several moments of a command: it ends with 130, and `diamond resume` continues."""

import os
import signal
import subprocess
import sys
import threading
import weakref

import pytest
from commands import command, result
from fast_compilation import skip_loss_checks, without_optimizations
from tiny_experiment import TOML

from diamond.experiment import plans
from diamond.hardware import compilation_cache
from diamond.metrics import display as progress
from diamond.tuning import trial_cache


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """In an empty folder, with little to compile."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compilation_cache, "enable_compile_cache", lambda: None)
    skip_loss_checks(monkeypatch)
    (tmp_path / "tiny.toml").write_text(TOML)
    with without_optimizations():
        yield tmp_path


def press():
    signal.raise_signal(signal.SIGINT)


def press_where_exceptions_are_dropped():
    """As in a callback of JAX: Python prints an exception raised there, and ignores it."""
    thing = type("Thing", (), {})()
    observed = weakref.ref(thing, lambda _: press())
    del thing
    assert observed() is None


def before(monkeypatch, owner, name, pressing, when=lambda *given: True):
    """Press Ctrl-C once, before `owner.name` is called with arguments such that `when`."""
    real, pressed = getattr(owner, name), []

    def hooked(*given, **named):
        if not pressed and when(*given):
            pressed.append(True)
            pressing()
        return real(*given, **named)

    monkeypatch.setattr(owner, name, hooked)


@pytest.mark.wide
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("pressing", [press, press_where_exceptions_are_dropped])
def test_before_the_first_round_nothing_is_run(here, monkeypatch, pressing):
    before(monkeypatch, plans, "forecast", pressing)
    found = command("run", "tiny.toml", code=130)
    assert "interrupted; nothing was written; run the command again" in found.stderr
    assert (
        "round=" not in found.stderr
        and not (here / "runs").exists()
        and "resume" not in found.stderr
    )


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_while_a_run_compiles_between_runs_and_in_the_last_round(here, monkeypatch):
    whole = result("run", "tiny.toml")["runs"][0]
    with monkeypatch.context() as patch:
        before(
            patch,
            progress.LineDisplay,
            "stage",
            press,
            lambda _, name, message: message == "compiling",
        )
        found = command("run", "tiny.toml", code=130)
    assert "round=" not in found.stderr and "diamond resume runs/tiny-2" in found.stderr
    assert result("resume", "runs/tiny-2")["runs"][0]["digest"] == whole["digest"]
    with monkeypatch.context() as patch:
        before(patch, progress.LineDisplay, "end", press)
        found = command("compare", "tiny.toml", "--set", "seed=[0, 1]", code=130)
    assert "run=seed1" not in found.stderr and "diamond resume runs/tiny-3" in found.stderr
    assert not (here / "runs/tiny-3/seed1").exists()
    with monkeypatch.context() as patch:
        last = lambda _, name, entries: entries[-1]["round"] == 24
        before(patch, progress.LineDisplay, "progress", press, last)
        found = command("run", "tiny.toml", code=130)
    assert whole["digest"] in found.stdout and "interrupted" in found.stderr
    assert result("show", "runs/tiny-4")["runs"][0]["status"] == "finished"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_tuning_stops_after_the_trial(here, monkeypatch):
    before(monkeypatch, trial_cache, "replace_file", press_where_exceptions_are_dropped)
    words = "tune", "tiny.toml", "--set", "algorithm.steps.alpha=[0.02, 0.05]", "--seeds", "1"
    assert "run the same command again" in command(*words, code=130).stderr
    assert len([*here.glob("runs/tiny-tune/trials/*.json")]) == 1


@pytest.mark.wide
@pytest.mark.parametrize("line", ["timing a few rounds", "compiling ...", "round=0/"])
def test_a_process_ends_at_a_real_signal(here, line):
    words = [sys.executable, "-m", "diamond", "run", "tiny.toml"]
    words += ["--set", "rounds=100000000", "--set", "every=1000"]
    env = os.environ | {"TERM": "dumb", "COLUMNS": "150"}
    process = subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True)
    late = threading.Timer(240, process.kill)  # a line that never comes fails the test soon
    late.start()
    try:
        for output_line in process.stderr:
            if line in output_line:
                process.send_signal(signal.SIGINT)
                break
        _, rest = process.communicate(timeout=120)
    finally:
        late.cancel()
        process.kill()
    assert process.returncode == 130 and "interrupted" in rest and "Traceback" not in rest
