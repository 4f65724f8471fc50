"""The command line: what it lists, writes, prints and refuses."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fast_compilation import skip_loss_checks, without_optimizations
from typer.testing import CliRunner

from diamond import cli, gallery
from diamond.hardware import compilation_cache
from diamond.templates import demo_experiment

WIDE = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}


@pytest.fixture
def command(monkeypatch):
    """Runs a command; compiled programs are not kept in the user's cache."""
    monkeypatch.setattr(compilation_cache, "enable_compile_cache", lambda: None)
    runner = CliRunner()
    return lambda *words: runner.invoke(cli.app, [str(w) for w in words], env=WIDE)


def test_help_of_devices_says_which_values_there_are(command):
    help_text = " ".join(command("run", "--help").stdout.replace("│", " ").split())
    assert "Devices to shard the agents over: 'cores', 'all', or a number." in help_text


def test_help_lists_the_commands(command):
    found = command("--help")
    assert found.exit_code == 0
    for name in ("demo", "reproduce", "tune"):
        assert name in found.output


def in_python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.wide
def test_neither_the_package_nor_its_commands_load_jax_at_once():
    code = "import diamond.cli, sys; print('jax' in sys.modules); diamond.simulate; "
    assert in_python(code + "print('jax' in sys.modules)") == ["False", "True"]


@pytest.mark.parametrize(
    "words, message",
    [
        (("reproduce", "fig9"), "no figure 'fig9'; there are fig1, fig2, fig3, fig4 and all"),
        (
            ("reproduce", "fig1", "--constants", "best"),
            "no constants 'best'; there are tuned, loss, published",
        ),
        (("tune", "mnist"), "no case 'mnist'; there are mnist-9-label-p0.3, "),
        (
            ("tune", "a9a-5-iid-p0.3", "--scale", "tiny"),
            "no scale 'tiny'; there are full and quick",
        ),
        (("reproduce",), "Missing argument"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(command, words, message):
    found = command(*words)
    assert found.exit_code == 2
    assert message in " ".join(found.output.replace("│", " ").split())


def small():
    """Nine agents with twelve rows a part: the demo's methods, no digits."""
    random = np.random.default_rng(0)
    part = lambda: {"a": random.normal(size=(12, 3)), "b": random.integers(0, 2, 12)}
    return gallery.hyperparameter(*([part() for _ in range(9)] for _ in range(3)))


def test_the_demo_prints_draws_and_reports(command, monkeypatch, tmp_path):
    """With D-SGD for each of the four: one program to compile."""
    skip_loss_checks(monkeypatch)
    real = demo_experiment.algorithm_table
    monkeypatch.setattr(
        demo_experiment, "algorithm_table", lambda name: real("D-SGD") | {"label": name}
    )
    monkeypatch.setattr(demo_experiment, "ROUNDS", 50)
    monkeypatch.setattr(demo_experiment, "EVERY", 25)
    monkeypatch.setattr("diamond.config.problem_section.digits", small)
    monkeypatch.chdir(tmp_path)
    with without_optimizations():
        found = command("demo", "--picture", "curves.png", "--out", "here")
    assert found.exit_code == 0, found.output
    content = Path("curves.png").read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n" and len(content) > 10_000
    rows = [line.split() for line in found.stdout.splitlines() if line.startswith("│")]
    table = {row[1]: row for row in rows}
    assert list(table) == ["DIAMOND", "GT-SGD", "M-SGD", "D-SGD"]
    numbers = {
        name: [float(word.replace(",", "")) for word in row[3:-1:2]] for name, row in table.items()
    }
    assert len({tuple(row[4:5]) for row in numbers.values()}) == 1  # samples
    assert all(0 < row[0] < 1 and 0 <= row[2] <= 1 for row in numbers.values())
    assert "50 rounds, each method" in found.stdout
    assert found.stdout.endswith("report: here/demo/report.html\nruns:   here/demo\n")
    runs = {path.name for path in Path("here/demo").iterdir() if path.is_dir()}
    assert runs == {"DIAMOND", "GT-SGD", "M-SGD", "D-SGD"}
    page = Path("here/demo/report.html").read_text()
    assert all(name in page for name in runs) and len(page) < 2e6
    with without_optimizations():  # each is a run like any other
        again = command("run", "here/demo/M-SGD/config.toml", "--quiet", "--json")
        shown = command("show", "here/demo/M-SGD", "--json")
    digests = [json.loads(one.stdout)["runs"][0]["digest"] for one in (again, shown)]
    assert digests[0] == digests[1] != ""
