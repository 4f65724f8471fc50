"""Tables on a terminal: at any width, every name is there in full."""

import io
import json

import pytest
from rich.console import Console

from diamond.cli.result_commands import LIST_COLUMNS
from diamond.cli.terminal_tables import heading, print_table, select_columns
from diamond.metrics import display as progress
from diamond.records.folder_reader import open_runs, sort_by_start
from diamond.records.folder_recovery import REQUIRED_KEYS
from diamond.records.manifest import current_time
from diamond.records.result_table import average_over_seeds
from diamond.records.run_summary import summarize_run

pytestmark = pytest.mark.quick

LABELS = ("DIAMOND, alpha=0.02, beta=0.3", "GT-SGD, alpha=0.02, beta=0.3")
STARTED = {"started": "2026-01-02T03:04:05.123+00:00"}
GRAPHS = ("erdos_renyi(9, p=0.3, seed=0)", "ring(9)")


def runs():
    """A comparison as `compare` and `show` have it: names that differ late."""
    numbers = {"metric": 0.001234, "upper_loss": 0.5123, "consensus": 1e-5, "accuracy": 0.91}
    numbers |= {"samples": 1234567.0, "bytes": 1.2e9, "seconds": 12.34}
    for label in LABELS:
        for graph in GRAPHS:
            for seed in (0, 1):
                who = {"run": f"{label}-{graph}-seed{seed}", "algorithm": label, "network": graph}
                state = {"seed": seed, "status": "finished", "round": 5000}
                yield who | state | numbers | {"digest": "00"}


KINDS = {
    "compare": (lambda: list(runs()), (), ("run",)),
    "show --seeds": (lambda: average_over_seeds(list(runs())), (), ("algorithm", "network")),
    "list": (lambda: [row | STARTED for row in runs()], LIST_COLUMNS[:-1], ("run",)),
}


@pytest.mark.parametrize("width", [80, 300])
@pytest.mark.parametrize("kind", KINDS)
def test_names_stay_and_numbers_go(kind, width, monkeypatch, capsys):
    make, columns, names = KINDS[kind]
    table = make()
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(table, columns)
    text = capsys.readouterr().out
    for row in table:
        assert all(row[name] in text for name in names), text
    lines = [line for line in text.splitlines() if "not shown at" not in line]
    assert "\u2026" not in text and max(map(len, lines)) <= width
    header, selected = lines[0], select_columns(table, columns)
    omitted = [heading(column) for column in selected if heading(column) not in header]
    assert (
        bool(omitted)
        == (width == 80)
        == (f"not shown at 80 columns: {', '.join(omitted)};" in text)
    )


def test_a_name_wider_than_the_terminal_is_folded(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "30")
    print_table(list(runs()))
    letters = "".join(capsys.readouterr().out.split())
    assert all("".join(row["run"].split()) in letters for row in runs())


def test_the_live_table_keeps_names_too():
    board = progress.TableDisplay([row["run"] for row in runs()], 100)
    entry = {"metric": 1.0, "upper_loss": 0.5, "consensus": 0.1, "samples": 64.0, "bytes": 2e6}
    for row in runs():
        board.begin(row["run"], 100)
        board.progress(row["run"], [entry | {"round": 0}])
    output = io.StringIO()
    Console(file=output, width=80).print(board)
    assert all(row["run"] in output.getvalue() for row in runs())
    assert "0/100" in output.getvalue() and "consensus" not in output.getvalue()


def test_runs_are_shown_in_the_order_they_were_begun(tmp_path):
    """That of `compare`, which is that of the file, not of the alphabet."""
    for second, name in enumerate(["m_sgd", "dsgd", "diamond"]):
        (tmp_path / name).mkdir()
        needed = dict.fromkeys(REQUIRED_KEYS, "")
        manifest = needed | {"started": f"2026-01-02T03:04:05.00{second}+00:00", "resolved": {}}
        (tmp_path / name / "manifest.json").write_text(json.dumps(manifest))
    assert [run.path.name for run in sort_by_start(open_runs([tmp_path]))] == [
        "m_sgd",
        "dsgd",
        "diamond",
    ]
    assert "." in current_time()  # of runs that begin within a second


@pytest.mark.parametrize(
    ("site", "owner"),
    [({"site": {"name": "north", "agent": 0}}, "of north"), ({}, "mean of the agents")],
)
def test_it_is_said_whose_x_is_shown(site, owner):
    network = {"network": {"agents": 2, "name": "ring(2)"}}
    summary = summarize_run({"answer": {"size": 1, "x": {"": [0.5]}}} | network | site, [])
    assert summary.sections[0].cells == [["entry", owner], ["x[0]", "0.5"]]
    assert f"entry  {owner}\nx[0]  " in " ".join([repr(summary)])
