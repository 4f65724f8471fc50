"""Examples: each is short, runs from top to bottom, and prints or draws what it announces."""

import base64
import json
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
NOTEBOOK = EXAMPLES / "tour.ipynb"
MAX_LINES = 40


@pytest.fixture
def empty_folder(tmp_path, monkeypatch, float32):
    """Run in an empty folder, with the precision that users have."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_script(name, monkeypatch, *arguments):
    """Run a script as `python examples/NAME ARGUMENTS` does; return its names."""
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    return runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def code_cells():
    """Return the source of the notebook's code cells."""
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.quick
def test_examples_are_short():
    texts = [script.read_text() for script in SCRIPTS] + ["\n".join(code_cells())]
    assert len(SCRIPTS) == 3
    assert max(len(text.splitlines()) for text in texts) <= MAX_LINES


@pytest.mark.quick
def test_every_example_is_listed_in_the_readme():
    text = (EXAMPLES / "README.md").read_text()
    missing = [path.name for path in [*SCRIPTS, NOTEBOOK] if f"]({path.name})" not in text]
    assert not missing


@pytest.mark.quick
def test_the_notebook_is_committed_without_outputs():
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@pytest.mark.wide
def test_solve_penalizes_the_features_that_do_not_matter(empty_folder, monkeypatch, capsys):
    names = run_script("solve_in_ten_lines.py", monkeypatch)
    loss, penalties = names["run"].history["upper_loss"], names["run"].x.mean(axis=0)
    assert loss[-1] < 0.9 * loss[0]
    assert penalties[:2].max() < 0 < penalties[2:].min()
    assert "penalties" in capsys.readouterr().out


@pytest.mark.wide
def test_tracking_and_momentum_come_closest(empty_folder, monkeypatch, capsys):
    comparison = run_script("compare_methods.py", monkeypatch, "figure.svg")["comparison"]
    metrics = [run.history["metric"][-10:].mean() for run in comparison.runs.values()]
    assert metrics[0] < 0.5 * metrics[1] < 0.5 * min(metrics[2:])
    assert "DIAMOND" in capsys.readouterr().out
    assert (empty_folder / "figure.svg").read_text().startswith("<?xml")


@pytest.mark.wide
def test_the_own_method_sends_half_the_bytes(empty_folder, monkeypatch, capsys):
    names = run_script("own_method.py", monkeypatch)
    reference, own = names["comparison"].runs.values()
    assert own.history["bytes"][-1] == reference.history["bytes"][-1] / 2
    assert abs(own.x - names["problem"].minimizer()).max() < 0.05
    assert "own method: largest error of x" in capsys.readouterr().out


@pytest.mark.wide
def test_the_notebook_runs_in_a_kernel_and_shows_what_it_finds(empty_folder):
    """A table of the run, a picture, one line of progress in a cell, nothing on a red ground."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    check = "assert abs(run.x - problem.minimizer()).max() < 0.05 and 'matplotlib.pyplot' not in {}"
    check = check.format("__import__('sys').modules")
    notebook.cells.append(nbformat.v4.new_code_cell(check))
    nbclient.NotebookClient(notebook, timeout=600).execute()
    outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    texts = [out.text for cell in outputs for out in cell if out.output_type == "stream"]
    assert not [o for cell in outputs for o in cell if o.get("name") == "stderr"]
    _, solved, _, drawn, lossy, _ = outputs
    shown = [out.data for out in solved if out.output_type == "display_data"]
    assert len(shown) == 1 and "upper loss" in shown[0]["text/plain"]  # the line of progress
    result = next(out.data for out in solved if out.output_type == "execute_result")
    assert "<table>" in result["text/html"] and "mean of the agents" in result["text/html"]
    (picture,) = (out.data for out in drawn)
    assert base64.b64decode(picture["image/png"])[:8] == b"\x89PNG\r\n\x1a\n"
    assert [out.output_type for out in lossy] == ["display_data", "stream"]
    assert "messages were lost" in texts[-1]
    assert not list(empty_folder.iterdir())  # no file that nobody has named
