"""Killed at any instant and gone on with, a run ends as if nothing had happened."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from fast_compilation import OPTION, without_optimizations
from tiny_experiment import TINY, TOML, RecordingListener, run_experiment, tiny

from diamond.config.experiment_file import validate
from diamond.config.validation_errors import BadExperiment
from diamond.experiment import jobs
from diamond.experiment.plans import plan_resume
from diamond.records import checkpoint_file, metrics_file
from diamond.records.checkpoint_content import Snapshot
from diamond.records.folder_lock import FolderBusy
from diamond.records.folder_reader import open_run
from diamond.records.folder_writer import Writer

KILLS = 24


class Killed(BaseException):
    """The process is gone: nothing after this is written."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The run that nobody disturbed, and its problem: compiled once."""
    path = tmp_path_factory.mktemp("whole") / "run"
    experiment = tiny()
    with without_optimizations(), jobs.use_precision(experiment):
        problem = jobs.build_problem(experiment, "tiny.toml")
        yield run_experiment(experiment, path, problem=problem), problem, open_run(path)


def kill_after(patch, writes, share):
    """Let `writes` writes happen, and `share` of the next one; then nothing any more.

    A write is an appended line, or a file replaced, of which half the shares leave a part under the
    temporary name, the others all of it there, with or without the new name.
    """
    left = [writes]

    def alive():
        left[0] -= 1
        if left[0] < -1:
            raise Killed
        return left[0] >= 0

    append, replace = metrics_file.MetricsFile.append, checkpoint_file.replace_file

    def append_or_die(self, entry, per_agent):
        before = self.path.stat().st_size
        lives = alive()
        append(self, entry, per_agent)
        if not lives:
            after = self.path.stat().st_size
            os.truncate(self.path, before + int(share * (after - before)))
            raise Killed

    def replace_or_die(path, content, **options):
        if alive():
            return replace(path, content, **options)
        part = content[: int(2 * share * len(content))]
        path.with_name(path.name + ".tmp").write_bytes(part)
        if share > 0.75:
            replace(path, content)
        raise Killed

    patch.setattr(metrics_file.MetricsFile, "append", append_or_die)
    patch.setattr(checkpoint_file, "replace_file", replace_or_die)


@pytest.mark.wide
def test_two_dozen_kills_leave_no_trace(undisturbed, tmp_path, monkeypatch):
    """At random writes and random parts of them, several times in a run, with many checkpoints
    or few: the digest is that of the run that nobody disturbed, and so is every line."""
    manifest, problem, stored = undisturbed
    random = np.random.default_rng(2023)
    kills = number = 0
    resumed = set()
    while kills < KILLS:
        number += 1
        experiment = tiny(checkpoint_seconds=float(random.choice([0.0, 1e-3, 1e6])))
        path = tmp_path / str(number)
        for _ in range(int(random.integers(1, 4))):
            with monkeypatch.context() as patch:
                kill_after(patch, int(random.integers(0, 30)), random.random())
                try:
                    run_experiment(experiment, path, problem=problem)
                    break
                except Killed:
                    kills += 1
        seen = []
        watch = RecordingListener(lambda entries, seen=seen: seen.append(entries[-1]["round"]))
        after = run_experiment(experiment, path, watch, problem=problem)
        resumed.add(seen[0])
        assert after["digest"] == manifest["digest"] and after["status"] == "finished"
        resumed_run = open_run(path)
        assert without_seconds(resumed_run.lines) == without_seconds(stored.lines)
        assert resumed_run.digest() == manifest["digest"]
        for key in ("costs", "traffic", "messages", "resolved"):
            assert after[key] == manifest[key]
    assert len(resumed) > 4  # some began anew, others went on from different rounds


def without_seconds(lines):
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


@pytest.mark.wide
def test_a_torn_checkpoint_is_detected_and_the_one_before_it_used(undisturbed, tmp_path):
    """Cut at every 4 kB, and with flipped bits: nothing is lost but the rounds since."""
    manifest, problem, _ = undisturbed
    experiment = tiny(checkpoint_seconds=0.0)
    path = tmp_path / "run"

    def interrupt(entries):
        if entries[-1]["round"] == 12:
            raise Killed

    with pytest.raises(Killed):
        run_experiment(experiment, path, RecordingListener(interrupt), problem=problem)
    assert checkpoint_file.saved_rounds(path / "checkpoint") == [9, 12]
    contents = {file: file.read_bytes() for file in (path / "checkpoint").iterdir()}
    lines = (path / "metrics.jsonl").read_bytes()
    arrays, notes = (path / "checkpoint" / f"0000000012.{k}" for k in ("safetensors", "json"))
    damages = [(arrays, contents[arrays][:cut]) for cut in range(0, len(contents[arrays]), 4096)]
    damages += [(notes, contents[notes][:cut]) for cut in range(0, len(contents[notes]), 4096)]
    for place in (0, 100, len(contents[arrays]) - 1):
        flipped = bytearray(contents[arrays])
        flipped[place] ^= 1
        damages.append((arrays, bytes(flipped)))
    for file, content in damages:
        for name, whole_content in contents.items():
            name.write_bytes(whole_content)
        (path / "metrics.jsonl").write_bytes(lines)
        file.write_bytes(content)
        seen = []
        watch = RecordingListener(lambda entries, seen=seen: seen.append(entries[-1]["round"]))
        after = run_experiment(experiment, path, watch, problem=problem)
        assert seen[0] == 9 and after["digest"] == manifest["digest"]
        assert any(
            "0000000012" in message and "earlier one is used" in message
            for message in watch.messages
        )


def test_large_checkpoints_are_cut_at_every_page_too(tmp_path):
    """The reader alone, on arrays of ten pages."""
    arrays = {".t": np.int32(0), ".state.x": np.arange(10_000.0)}
    with Writer(tmp_path, checkpoint_interval=0) as writer:
        writer.metrics.path.write_bytes(b"")
        for round in (0, 5):
            entries = [{"round": round, "metric": 1.0}]
            writer.record_snapshot(
                Snapshot(arrays | {".t": np.int32(round)}, {}, 0.5, entries, [{}])
            )
    file = tmp_path / "checkpoint" / "0000000005.safetensors"
    content, lines = file.read_bytes(), (tmp_path / "metrics.jsonl").read_bytes()
    seal = file.with_suffix(".json").read_bytes()
    assert len(content) > 10 * 4096
    for cut in range(0, len(content), 4096):
        file.write_bytes(content[:cut])
        file.with_suffix(".json").write_bytes(seal)
        (tmp_path / "metrics.jsonl").write_bytes(lines)
        with Writer(tmp_path) as writer:
            saved, complaints = writer.restore()
        assert int(saved.arrays[".t"]) == 0 and len(complaints) == 1
        assert [entry["round"] for entry in saved.entries] == [0]
        assert writer.metrics.lines() == [{"round": 0, "metric": 1.0, "agents": {}}]


def test_asked_to_stop_it_saves_and_says_so(undisturbed, tmp_path):
    manifest, problem, _ = undisturbed
    path, seen = tmp_path / "run", []
    watch = RecordingListener(lambda entries: seen.append(entries[-1]["round"]))
    with pytest.raises(KeyboardInterrupt):
        run_experiment(tiny(), path, watch, stopped=lambda: len(seen) == 4, problem=problem)
    assert json.loads((path / "manifest.json").read_text())["status"] == "interrupted"
    assert checkpoint_file.saved_rounds(path / "checkpoint")[-1] == 9  # not only every two seconds
    assert run_experiment(tiny(), path, problem=problem)["digest"] == manifest["digest"]


@pytest.mark.wide
def test_steps_that_chose_themselves_are_kept(tmp_path):
    """What the run has learned is in the checkpoint."""
    experiment = tiny(algorithm={"name": "diamond", "batch": 2}, rounds=35, every=5)
    seen = []
    watch = RecordingListener(lambda entries: seen.append(entries[-1]["round"]))
    with without_optimizations(), jobs.use_precision(experiment):
        problem = jobs.build_problem(experiment, "tiny.toml")
        expected = run_experiment(experiment, tmp_path / "whole", problem=problem)
        for stop in (10, 25, 30):
            with pytest.raises(KeyboardInterrupt):
                run_experiment(
                    experiment, tmp_path / "run", watch, lambda stop=stop: seen[-1] == stop, problem
                )
        after = run_experiment(experiment, tmp_path / "run", problem=problem)
    assert after["digest"] == expected["digest"]
    assert after["resolved"] == expected["resolved"]
    assert after["costs"] == expected["costs"] and after["traffic"] == expected["traffic"]


def test_a_run_that_rolls_back_is_resumed_too(tmp_path, monkeypatch):
    """Steps too large, shrunk on the way: the states to go back to are in the checkpoint."""
    wild = TINY["algorithm"] | {"steps": {"alpha": 0.05, "beta": 1.5, "eta": 0.3, "gamma": 0.3}}
    settings = {"algorithm": wild, "rounds": 900, "every": 60, "on_divergence": "shrink"}
    experiment = tiny(**settings, checkpoint_seconds=0.0)
    seen, random = [], np.random.default_rng(7)
    watch = RecordingListener(lambda entries: seen.append(entries[-1]["round"]))
    with without_optimizations(), jobs.use_precision(experiment):
        problem = jobs.build_problem(experiment, "tiny.toml")
        expected = run_experiment(experiment, tmp_path / "whole", watch, problem=problem)
        assert expected["resolved"]["shrunk"] == 0.25
        assert any("lost in round 199; back to round 0" in message for message in watch.messages)
        assert seen == [0, 60, 120, 180, *range(60, 901, 60)]
        lines = open_run(tmp_path / "whole").lines
        assert [line["round"] for line in lines] == list(range(0, 901, 60))
        for stop in (60, 120, 420, 840):
            path = tmp_path / str(stop)
            with pytest.raises(KeyboardInterrupt):
                run_experiment(experiment, path, watch, lambda stop=stop: seen[-1] == stop, problem)
            with monkeypatch.context() as patch, pytest.raises(Killed):
                kill_after(patch, int(random.integers(0, 4)), random.random())
                run_experiment(experiment, path, problem=problem)
            after = run_experiment(experiment, path, problem=problem)
            assert after["digest"] == expected["digest"]
            assert after["resolved"] == expected["resolved"]


def test_lost_lines_are_made_again(undisturbed, tmp_path):
    """A checkpoint that knows more than the lines do is of no use."""
    manifest, problem, _ = undisturbed
    path, seen = tmp_path / "run", []
    watch = RecordingListener(lambda entries: seen.append(entries[-1]["round"]))
    with pytest.raises(KeyboardInterrupt):
        run_experiment(tiny(), path, watch, stopped=lambda: len(seen) == 4, problem=problem)
    lines = (path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (path / "metrics.jsonl").write_bytes(b"".join(lines[:2]))
    watch = RecordingListener()
    assert run_experiment(tiny(), path, watch, problem=problem)["digest"] == manifest["digest"]
    assert any("metrics.jsonl lacks round 9" in message for message in watch.messages)


def test_two_processes_do_not_write_into_one_folder(undisturbed, tmp_path):
    _, problem, _ = undisturbed
    with Writer(tmp_path):
        with pytest.raises(FolderBusy, match="another process is running it"):
            run_experiment(tiny(), tmp_path, problem=problem)


def test_a_run_is_not_resumed_on_another_problem(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import diamond\n\ndef make(agents: int = 3):\n"
        "    return diamond.gallery.quadratic(agents, 2, 2, 6)\n"
    )
    raw = TINY | {"problem": {"kind": "mine.py:make"}}
    experiment = validate(raw, tmp_path, "tiny.toml")
    path = tmp_path / "runs" / "tiny"
    with without_optimizations(), pytest.raises(KeyboardInterrupt):
        run_experiment(experiment, path, stopped=lambda: True)
    (tmp_path / "mine.py").write_text((tmp_path / "mine.py").read_text() + "# changed\n")
    with pytest.raises(BadExperiment, match=r"\.\./\.\./mine\.py has changed"):
        plan_resume(path).execute(RecordingListener())


def test_kill_9_and_resume(tmp_path, monkeypatch):
    """The real thing: processes killed by the system, at different lines."""
    (tmp_path / "tiny.toml").write_text(TOML.replace("rounds = 24", "rounds = 1200"))
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "xla"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        OPTION.upper(): "1",
    }
    folder = tmp_path / "runs" / "tiny"
    words = [sys.executable, "-m", "diamond"]
    settings = ["--set", "checkpoint_seconds=0.02", "--quiet"]
    commands = [["run", "tiny.toml", *settings], ["resume", str(folder), "--quiet"]]
    for command, lines in ((commands[0], 20), (commands[1], 90)):
        child = subprocess.Popen([*words, *command], cwd=tmp_path, env=environment)
        deadline = time.monotonic() + 300
        while child.poll() is None and count_lines(folder / "metrics.jsonl") < lines:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    assert json.loads((folder / "manifest.json").read_text())["status"] == "running"
    left = count_lines(folder / "metrics.jsonl")
    assert 90 <= left < 401
    with without_optimizations():
        manifest = plan_resume(folder).execute(RecordingListener())[0]
        reference = run_experiment(tiny(rounds=1200), tmp_path / "whole")
    assert manifest["digest"] == reference["digest"]


def count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0
