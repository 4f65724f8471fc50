"""Damaged folders: what can be read is used, nothing is deleted, and a fresh start is asked for."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from fast_compilation import skip_measures, without_optimizations
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tiny_experiment import TINY, RecordingListener, run_experiment, tiny
from typer.testing import CliRunner

from diamond import cli
from diamond.config.experiment_file import validate
from diamond.config.validation_errors import BadExperiment
from diamond.experiment import jobs
from diamond.experiment.execution import ResumeOverrides, execute
from diamond.experiment.plans import plan_resume
from diamond.records import checkpoint_file, metrics_file
from diamond.records.checkpoint_content import Snapshot
from diamond.records.folder_reader import open_run
from diamond.records.folder_recovery import UnrecoverableRun, plan_recovery
from diamond.records.folder_writer import Writer

ROUNDS, STOPPED = 20, 12
CONFIG = 'name = "small"\nrounds = 20\n'
BEGUN = dict.fromkeys(("problem", "resolved", "algorithm", "network", "seed"), 0)
FILES = ["config.toml", "manifest.json", "metrics.jsonl"]
FILES += [
    f"checkpoint/{round:010d}.{kind}" for round in (9, 12) for kind in ("json", "safetensors")
]


def make_snapshot(round):
    """A run of which all is known, as it stands after `round` rounds."""
    state = {".t": np.int32(round), ".state.x": np.full(3, 0.5**round)}
    entries = [
        {"round": t, "metric": 1 / (1 + t), "seconds": 0.1 * t} for t in range(0, round + 1, 3)
    ]
    per_agent = [{"loss": np.array([t, 2.0 * t])} for t in range(0, round + 1, 3)]
    return Snapshot(state, {}, 0.1 * round, entries, per_agent)


def record_until(writer, since, until=ROUNDS):
    for round in range(since + 3, until + 1, 3):
        writer.record_snapshot(make_snapshot(round))
    return writer.final_digest(make_snapshot(until).arrays[".state.x"], 0.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run that was stopped at round 12, and the digest it would have come to."""
    path = tmp_path_factory.mktemp("small") / "run"
    with Writer(path, checkpoint_interval=0) as writer:
        writer.begin(BEGUN | {"status": "running"}, CONFIG)
        record_until(writer, -3, STOPPED)
    assert checkpoint_file.saved_rounds(path / "checkpoint") == [9, 12]
    (path / ".lock").unlink()
    copy = path.with_name("whole")
    shutil.copytree(path, copy)
    with Writer(copy, checkpoint_interval=1e9) as writer:
        writer.restore()
        yield path, record_until(writer, STOPPED)


def contents(path):
    files = [file for file in path.rglob("*") if file.is_file() and file.name != ".lock"]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def lines_of(content):
    lines = set()
    for raw in content.split(b"\n")[:-1]:
        try:
            lines.add(json.dumps(metrics_file.parse_line(raw), sort_keys=True))
        except Exception:
            continue
    return lines


KINDS = "cut", "flip", "garbage", "delete", "empty", "line", "append"
damages = st.lists(
    st.tuples(
        st.sampled_from(FILES),
        st.sampled_from(KINDS),
        st.floats(0, 1, exclude_max=True),
        st.binary(min_size=1, max_size=12),
    ),
    min_size=1,
    max_size=4,
)


def damage(path, kind, where, noise):
    """Do it to the file; it may be gone already."""
    if not path.exists():
        return
    content = path.read_bytes()
    position = int(where * len(content))
    if kind == "delete":
        return path.unlink()
    if kind == "line":
        rows = content.split(b"\n")
        rows[int(where * len(rows))] = noise.replace(b"\n", b"?")
        content = b"\n".join(rows)
    elif kind == "flip" and content:
        flipped = bytearray(content)
        flipped[position] ^= 1 + noise[0] % 255
        content = bytes(flipped)
    else:
        content = {
            "cut": content[:position],
            "garbage": content[:position] + noise + content[position + len(noise) :],
            "empty": b"",
            "append": content + noise,
        }.get(kind, content)
    path.write_bytes(content)


@pytest.mark.wide
@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damages)
@example([("metrics.jsonl", "line", 0.4, b"garbage")])
@example([(FILES[4], "cut", 0.5, b"-"), (FILES[6], "cut", 0.5, b"-")])
@example([("manifest.json", "delete", 0.0, b"-"), *((f, "delete", 0.0, b"-") for f in FILES[3:])])
def test_random_damage_to_random_files(folder, tmp_path_factory, damage_list):
    """It goes on to the digest of the run that nobody disturbed, or refuses and touches nothing.

    What was readable is still there: under its name, set aside, or gone beyond.
    """
    source, digest = folder
    path = tmp_path_factory.mktemp("case") / "run"
    shutil.copytree(source, path)
    for name, *how in damage_list:
        damage(path / name, *how)
    before = contents(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda stream: None)
        with Writer(path, checkpoint_interval=1e9) as writer:
            try:
                snapshot, _ = writer.restore()
            except UnrecoverableRun as error:
                assert contents(path) == before
                assert "restore" in str(error)
                return
            if snapshot is None:
                assert not plan_recovery(path).had_checkpoint
                writer.begin(BEGUN | {"status": "running"}, CONFIG)
            else:
                round = int(snapshot.arrays[".t"])
                np.testing.assert_array_equal(
                    snapshot.arrays[".state.x"], make_snapshot(round).arrays[".state.x"]
                )
            reached_digest = record_until(writer, -3 if snapshot is None else round)
    assert reached_digest == digest
    after = contents(path)
    lines_left = lines_of(b"".join(raw for name, raw in after.items() if "metrics" in name))
    true = lines_of((source / "metrics.jsonl").read_bytes())  # damage can make a line another one
    for name, content in before.items():
        is_preserved = content in after.values() or (name == "manifest.json" and name in after)
        assert is_preserved or (
            name == "metrics.jsonl" and lines_of(content) & true <= lines_left
        ), name
    shutil.rmtree(path.parent)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A real run that nobody disturbed, its problem, and the same stopped at round 12."""
    place = tmp_path_factory.mktemp("real")
    experiment = tiny(checkpoint_seconds=0.0)
    seen = []
    watch = RecordingListener(lambda entries: seen.append(entries[-1]["round"]))
    with without_optimizations(), jobs.use_precision(experiment):
        problem = jobs.build_problem(experiment, "tiny.toml")
        manifest = run_experiment(experiment, place / "whole", problem=problem)
        with pytest.raises(KeyboardInterrupt):
            run_experiment(experiment, place / "run", watch, lambda: seen[-1] == STOPPED, problem)
        yield manifest, problem, place / "run"


def resume_after(undisturbed, tmp_path, how, overrides=ResumeOverrides()):
    """The stopped run gone on with after `how` was done to its folder."""
    manifest, problem, source = undisturbed
    path, watch, experiment = tmp_path / "run", RecordingListener(), tiny(checkpoint_seconds=0.0)
    shutil.copytree(source, path)
    how(path)
    with without_optimizations(), jobs.use_precision(experiment):
        (job,) = jobs.expand_jobs(experiment)
        after = execute(job, problem, path, watch, overrides=overrides)
    assert after["digest"] == manifest["digest"] and after["status"] == "finished"
    return path, watch.messages


def spoil_line(path: Path):
    raw = (path / "metrics.jsonl").read_bytes().split(b"\n")
    (path / "metrics.jsonl").write_bytes(b"\n".join([*raw[:1], b"garbage", *raw[2:]]))


def test_a_garbled_line_costs_that_line_only(undisturbed, tmp_path):
    path, messages = resume_after(undisturbed, tmp_path, spoil_line)
    assert any("damaged lines" in message for message in messages)
    assert any(
        "evaluations up to round 12 are lost; the run itself is not" in message
        for message in messages
    )
    rounds = [line["round"] for line in open_run(path).lines]
    assert rounds == [0, *range(6, 25, 3)]  # and not the 3 whose line it was
    assert b"garbage" in (path / "metrics.jsonl.damaged-1").read_bytes()


def test_a_run_resumes_without_its_lines(undisturbed, tmp_path):
    """The rounds to come depend on the checkpoint alone; where it stands is measured again."""
    path, _ = resume_after(undisturbed, tmp_path, lambda path: (path / "metrics.jsonl").unlink())
    assert [line["round"] for line in open_run(path).lines] == [12, 15, 18, 21, 24]


def test_a_damaged_manifest_is_written_again(undisturbed, tmp_path):
    path, messages = resume_after(
        undisturbed, tmp_path, lambda p: (p / "manifest.json").write_text("{]")
    )
    assert any("manifest.json is damaged" in message for message in messages)
    assert (path / "manifest.json.damaged-1").read_text() == "{]"


def cut_checkpoints(path):
    for file in (path / "checkpoint").glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:50])


def test_a_fresh_start_is_asked_for(undisturbed, tmp_path):
    with pytest.raises(UnrecoverableRun, match=r"none of its checkpoints can be read.*--restart"):
        resume_after(undisturbed, tmp_path / "asked", cut_checkpoints)
    path, messages = resume_after(
        undisturbed, tmp_path / "told", cut_checkpoints, ResumeOverrides(restart=True)
    )
    assert any("started again from round 0; moved aside" in message for message in messages)
    set_aside = sorted(file.name for file in (path / "checkpoint").glob("*.damaged-1"))
    assert len(set_aside) == 4 and (path / "metrics.jsonl.damaged-1").is_file()


def test_another_config_is_refused(undisturbed, tmp_path):
    def change(path):
        text = (path / "config.toml").read_text()
        (path / "config.toml").write_text(text.replace("alpha = 0.05", "alpha = 0.06"))

    with pytest.raises(
        UnrecoverableRun, match="differs from the file that started the run; restore it"
    ):
        resume_after(undisturbed, tmp_path, change)


def rows_of(place, cell):
    lines = [f"{i % 7},{i % 5},{i % 2}" for i in range(60)]
    (place / "rows.csv").write_text("\n".join(["u,v,label", f"{cell},1,0", *lines]))


@pytest.mark.wide
def test_changed_data_is_refused_or_recorded(tmp_path, monkeypatch):
    """One cell of the table, after the run has begun."""
    skip_measures(monkeypatch)
    rows_of(tmp_path, 3)
    problem = {"kind": "hyperparameter", "dataset": "rows.csv", "agents": 3}
    experiment = validate(TINY | {"problem": problem}, tmp_path, "tiny.toml")
    path = tmp_path / "runs" / "tiny"
    with without_optimizations(), pytest.raises(KeyboardInterrupt):
        run_experiment(experiment, path, stopped=lambda: True)
    rows_of(tmp_path, 4)
    with pytest.raises(BadExperiment, match=r"\.\./\.\./rows\.csv has changed.*rows have changed"):
        plan_resume(path).execute(RecordingListener())
    watch = RecordingListener()
    with without_optimizations():
        (after,) = plan_resume(path).execute(watch, overrides=ResumeOverrides(changed_data=True))
    (confessed,) = after["changed"]
    assert confessed["round"] == 0 and any("rows.csv" in message for message in confessed["what"])
    assert any("continues although" in message for message in watch.messages)


def test_changed_packages_are_refused_or_recorded(undisturbed, tmp_path):
    def older(path):
        manifest = json.loads((path / "manifest.json").read_text())
        manifest["versions"]["jax"] = "0.0.1"
        (path / "manifest.json").write_text(json.dumps(manifest))

    with pytest.raises(BadExperiment, match=r"started with jax 0\.0\.1.*--changed-data"):
        resume_after(undisturbed, tmp_path / "refused", older)
    path, _ = resume_after(
        undisturbed, tmp_path / "told", older, ResumeOverrides(changed_data=True)
    )
    assert "jax 0.0.1" in open_run(path).manifest["changed"][0]["what"][0]


def test_the_command_explains_damage_in_one_sentence(undisturbed, tmp_path):
    (tmp_path / "runs").mkdir()
    path = tmp_path / "runs" / "tiny"
    shutil.copytree(undisturbed[2], path)
    cut_checkpoints(path)
    result = CliRunner().invoke(cli.app, ["resume", str(path)])
    assert result.exit_code == 2 and "--restart" in result.stderr
    (path / "manifest.json").write_text("{]")
    for words in (["show", str(path)], ["report", str(path)]):
        result = CliRunner().invoke(cli.app, words)
        assert result.exit_code == 2 and "manifest.json is damaged" in result.stderr, words
    result = CliRunner().invoke(cli.app, ["list", str(tmp_path / "runs")])
    assert result.exit_code == 0 and "manifest.json is damaged" in result.stderr
