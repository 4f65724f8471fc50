"""Folders of an earlier version are read, shown and gone on with."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import command
from compiling import quickly, unchecked

import diamond

pytestmark = pytest.mark.quick

FOLDERS = Path(__file__).with_name("written_before")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copytree(FOLDERS, tmp_path, dirs_exist_ok=True)
    unchecked(monkeypatch)
    with quickly():
        yield tmp_path


def test_a_finished_run_is_loaded_and_shown(folder, float32):
    run = diamond.load(folder / "finished")
    assert run.rounds == 60 and run.status == "finished" and run.network.agents == 3
    np.testing.assert_allclose(run.history["upper_loss"][-1], 5.833, atol=1e-3)
    assert run.x.shape == run.state.x.shape == (3, 2) and (run.x == run.state.x).all()
    assert run.resolved["curvature"] == 1.5
    assert "finished" in command("show", folder / "finished").output


def test_a_stopped_run_whose_bound_was_measured_is_refused(folder, float32):
    """It divided by an L that was measured before round 0; today L is learned, and in the state."""
    found = command("resume", folder / "stopped", "--changed-data", "--quiet", code=2)
    assert "these arrays are of another problem, algorithm or precision" in found.output
    assert diamond.load(folder / "stopped").rounds > 0  # what it has is still there
