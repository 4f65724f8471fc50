"""Wrong input: one sentence with cause, place and remedy, and exit code 2."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from diamond.cli import app

EXPERIMENT = """rounds = 4
network = "ring:3"
problem = {kind = "quadratic", agents = 3, upper = 2, lower = 2, rows = 6}
algorithm = {name = "diamond", batch = 2}
"""
FILES = {
    "good.toml": EXPERIMENT,
    "encoded.toml": "\xff",
    "budget.toml": f"privacy = {{epsilon = -1, dleta = 0.1}}\n{EXPERIMENT}",
    "broken.toml": EXPERIMENT.replace('"quadratic"', '"broken.py:make"').split(", upper")[0]
    + '}\nalgorithm = "diamond"\n',
    "broken.py": "def make(agents):\n    return {}['rows']\n",
    "suite.toml": 'methods = ["dsgd"]\nsetings = 1\n',
    "file": "",
}
CASES = {
    "new mine --folder file": "file: File exists, and is no folder; give another path",
    "net proof good.toml absent": "No such file or directory; check the path",
    "check absent.toml": "cannot be read: No such file or directory; check the path",
    "net init absent.toml": "cannot be read: No such file or directory; check the path",
    "check encoded.toml": "is not text in UTF-8; save it in this encoding",
    "check budget.toml": "privacy.epsilon: must be greater than 0, not -1",
    "check budget.toml --json": "privacy.dleta: is not a known key; did you mean delta?",
    "check broken.toml": "problem: broken.py:make failed: KeyError: 'rows' (broken.py, line 2)",
    "run good.toml --devices bogus": "devices: must be 'cores', 'all', or a whole number from 1",
    "network ring:x": "ring:x: 1 mistake agents: must be a whole number, not 'x'",
    "network ring:3 --picture n.xyz": "no format 'xyz'; there are png, pdf",
    "demo --picture n.pgn": "no format 'pgn'; did you mean png?",
    "bench nosuite": "no suite 'nosuite'; there are personal",
    "bench suite.toml": "suite.toml: no key 'setings' of a suite; did you mean settings?",
    "bench absent.toml": "absent.toml: 1 mistake cannot be read",
    "bench quick --methods dsgdd": "no method 'dsgdd'; did you mean dsgd?",
    "live absent --port 99999": "'--port'",
    "net status absent --port -1": "'--port'",
    "list algoritms": "no folder 'algoritms'; did you mean algorithms?",
    "resume absent": "`diamond list` names the runs below runs/",
    "tune good.toml --scale tiny": "no scale 'tiny'; there are full and quick",
    "advise good.toml --target 0 --algorithm dsgd": "a metric is above 0; give a target above 0",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for name, text in FILES.items():
        Path(name).write_text(text, encoding="latin-1")


@pytest.mark.parametrize("command", CASES)
def test_wrong_input_is_answered_in_one_sentence(command, folder):
    result = CliRunner().invoke(app, command.split())
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2
    assert CASES[command] in " ".join(result.output.split())


def test_errors_of_the_system_name_the_place(folder, monkeypatch):
    """A folder without permission; the tests may run as root, who has all permissions."""

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", "place")

    monkeypatch.setattr(Path, "write_text", refuse)
    result = CliRunner().invoke(app, ["new", "mine"])
    assert result.exit_code == 1 and result.output.strip() == "place: Permission denied"
