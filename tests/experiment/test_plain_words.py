"""What goes wrong is said in one sentence, before anything is compiled, and names stay inside."""

import errno
import json
import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import pytest
import tomli_w
from fast_compilation import skip_loss_checks, without_optimizations
from helpers import quad, ring
from hypothesis import given
from hypothesis import strategies as st
from tiny_experiment import TINY, TOML, tiny
from typer.testing import CliRunner

import diamond
from diamond import cli
from diamond.config.validation_errors import BadExperiment
from diamond.experiment import jobs
from diamond.experiment.folder_names import folder_name, make_unique
from diamond.experiment.plans import load_and_check
from diamond.problem import problem_validation
from diamond.records import checkpoint_file
from diamond.records.folder_reader import find_runs, open_run
from diamond.records.folder_writer import Writer

BEGUN = dict.fromkeys(("problem", "resolved", "algorithm", "network", "seed"), 0)


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(TOML)
    return tmp_path / "tiny.toml"


def error_output(words, code):
    found = CliRunner().invoke(cli.app, words)
    assert found.exit_code == code, found.output
    (line,) = filter(None, found.stderr.splitlines())
    assert "Traceback" not in line
    return line


def test_out_that_is_a_file(file):
    line = error_output(["run", str(file), "--out", str(file), "--quiet"], 2)
    assert line.startswith(f"{file}: is a file") and "give another --out" in line


def test_a_disk_that_cannot_be_written_or_is_full(file, monkeypatch):
    with monkeypatch.context() as patch:
        refuse = OSError(errno.EROFS, os.strerror(errno.EROFS))
        patch.setattr(tempfile, "TemporaryFile", lambda dir: (_ for _ in ()).throw(refuse))
        assert "Read-only file system" in error_output(["run", str(file), "--quiet"], 1)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10**6))
        assert "only 1.0 MB are left" in error_output(["compare", str(file), "--quiet"], 1)
    assert not Path("runs").exists()


def test_a_disk_that_fills_up_on_the_way(file, monkeypatch):
    def full(path, *rest, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(checkpoint_file, "replace_file", full)
    line = error_output(["run", str(file), "--quiet"], 1)
    assert "No space left on device" in line and "tiny" in line


def test_a_full_disk_is_one_line_with_the_file_and_how_to_continue(file, monkeypatch):
    """The system names no file where a write fails."""
    sync = os.fsync

    def full(descriptor):
        if list(Path("runs").rglob("*.safetensors*")):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        line = error_output(["run", str(file), "--quiet"], 1)
    assert "No space left on device" in line and "`diamond resume` continues" in line
    (folder,) = [path.parent for path in Path("runs").rglob("manifest.json")]
    assert str(folder) in line
    assert CliRunner().invoke(cli.app, ["resume", str(folder), "--quiet"]).exit_code == 0


def test_a_module_whole():
    start = lambda key: ({"w": jnp.zeros(2), "act": jnp.tanh}, jnp.zeros(2))
    plain = quad()
    with pytest.raises(TypeError, match=r"x with a \w+ in it.*eqx\.partition"):
        diamond.Problem(
            plain.upper, plain.lower, start, plain.rows["train"], plain.rows["valid"]
        ).start(0)


def test_two_shares():
    problem = {"kind": "hyperparameter", "dataset": "digits", "shares": [0.5, 0.5], "agents": 3}
    with pytest.raises(BadExperiment, match=r"problem\.shares: must be three numbers"):
        tiny(problem=problem)


def test_check_finds_what_the_parts_have_against_one_another_too(tmp_path, monkeypatch):
    skip_loss_checks(monkeypatch)
    raw = TINY | {"network": "ring:4", "evry": 3}
    raw["algorithm"] = raw["algorithm"] | {"batch": "two"}
    (tmp_path / "tiny.toml").write_text(tomli_w.dumps(raw))
    with pytest.raises(BadExperiment) as error:
        load_and_check(tmp_path / "tiny.toml")
    keys = [mistake.key for mistake in error.value.mistakes]
    assert keys == ["algorithm.batch", "evry", "network"]


@pytest.mark.wide
def test_a_metric_has_a_name_of_its_own():
    plain = quad()
    parts = plain.upper, plain.lower, plain.init, plain.rows["train"], plain.rows["valid"]
    with pytest.raises(ValueError, match=r"a metric cannot be called 'samples'.*my_samples"):
        diamond.Problem(*parts, metrics={"samples": plain.upper})
    dsgd = diamond.dsgd(0.05, 0.2, 4, diamond.hypergradient.exact())
    with without_optimizations():
        run = diamond.simulate(plain, ring(4), dsgd, 1)
    assert {*run.history, *run.per_agent} <= problem_validation.RESERVED_NAMES


def test_a_run_whose_process_is_gone_is_not_running(tmp_path):
    """The lock tells: the system lets go of it when a process is killed."""
    path = tmp_path / "run"
    with Writer(path) as writer:
        writer.begin(BEGUN | {"status": "running", "resolved": {}}, "")
        assert open_run(path).manifest["status"] == "running"
    (run,) = find_runs(tmp_path)
    assert run.manifest["status"] == "interrupted" and "resume" in run.manifest["message"]
    assert json.loads((path / "manifest.json").read_text())["status"] == "running"


@pytest.mark.wide
@given(st.lists(st.text(max_size=300), min_size=1, max_size=4))
def test_every_name_is_a_folder_inside_its_own(texts):
    base = Path("/base/runs")
    names = make_unique(folder_name(text) for text in texts)
    assert len(set(names)) == len(names)
    for name in names:
        place = Path(os.path.normpath(base / name))
        assert place.parent == base and "\0" not in name and len(name.encode()) <= 255


@pytest.mark.wide
def test_labels_do_not_lead_out_of_the_folder(tmp_path):
    labels = ["../evil", "/etc/evil", "..", "a/b", "a-b"]
    several = [TINY["algorithm"] | {"label": label} for label in labels]
    names = [job.name for job in jobs.expand_jobs(tiny(algorithm=several))]
    assert names == ["evil", "etc-evil", "run", "a-b", "a-b-2"]
    dsgd = diamond.dsgd(0.05, 0.2, 4, diamond.hypergradient.exact())
    with without_optimizations():
        found = diamond.compare(quad(), ring(4), {"../evil": dsgd}, rounds=1)
    found.save(tmp_path / "inside")
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]
    assert [path.name for path in (tmp_path / "inside").iterdir()] == ["evil-seed0"]


def test_check_refuses_negative_step_sizes(file):
    for wrong in ("-0.05", '"power(-0.05)"'):
        given = ["check", str(file), "--set", f"algorithm.steps.alpha={wrong}"]
        found = CliRunner().invoke(cli.app, given)
        assert found.exit_code == 2, found.output
        assert "algorithm: alpha = " in found.stderr
        assert "a step size must not be negative (-0.05)" in found.stderr
