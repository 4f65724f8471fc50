"""`diamond demo --peers`, and what a site's terminal shows."""

import json
import subprocess
import sys

import pytest
from crash_cluster import LIMITS, team
from rich.console import Console
from typer.testing import CliRunner

from diamond import cli
from diamond.cli.net_progress import SiteProgress
from diamond.hardware import compilation_cache
from diamond.records.folder_reader import open_runs
from diamond.sites.rounds.node import Node
from diamond.sites.transport.in_process_transport import InProcessNetwork
from diamond.templates import sites_demo

ENTRY = {"round": 20, "local_loss": 0.5, "lower_error": 0.01, "disagreement": 0.001}
ENTRY |= {"bytes": 2e6, "seconds": 9.0, "waited": 4.0}


@pytest.fixture
def demo(monkeypatch, tmp_path):
    monkeypatch.setattr(compilation_cache, "enable_compile_cache", lambda: None)
    return lambda *words: CliRunner().invoke(
        cli.app, ["demo", "--peers", "--out", str(tmp_path), *words]
    )


@pytest.mark.slow
def test_the_demo_ends_as_the_simulation_though_one_site_is_killed(demo, monkeypatch, tmp_path):
    monkeypatch.setattr(sites_demo, "ROUNDS", 30)
    simulate, simulated = sites_demo.simulate, []
    note = lambda *given: simulated.append(simulate(*given)) or simulated[0]
    monkeypatch.setattr(sites_demo, "simulate", note)
    found = demo("--json")
    assert found.exit_code == 0, found.output
    assert 0 <= json.loads(found.stdout)["difference"] < 1e-5
    sites = open_runs([tmp_path / "demo-peers"])
    assert sorted(run.path.name for run in sites) == sorted(sites_demo.SITES)
    for run in sites:
        assert run.manifest["status"] == "finished" and run.last_evaluation["round"] == 30
        log = (tmp_path / "demo-peers" / "federation" / f"{run.path.name}.log").read_text()
        assert log.count("neighbours") == 1 + (run.path.name == sites_demo.KILLED_SITE)  # starts
    assert all(run.manifest["resolved"] == simulated[0].resolved for run in sites)
    assert (tmp_path / "demo-peers" / "report.html").exists()


@pytest.mark.parametrize(("gap", "code"), [(9e-6, 0), (2e-5, 1), (float("nan"), 1)])
def test_a_difference_beyond_rounding_fails(demo, monkeypatch, gap, code):
    monkeypatch.setattr(sites_demo.SitesDemo, "run", lambda self: None)
    monkeypatch.setattr(sites_demo.SitesDemo, "difference", lambda self: gap)
    monkeypatch.setattr("diamond.report.build", lambda folders, out: out)
    found = demo("--quiet")
    assert (
        found.exit_code == code and f"difference from diamond.simulate: {gap:.1e}" in found.stdout
    )


def test_a_site_that_fails_is_named_with_its_log(monkeypatch, tmp_path):
    start, sleep = sites_demo.SitesDemo._start, "import time; time.sleep(100)"

    def begun(self, name):  # the others are there, and compile nothing
        if name == "east":
            return start(self, name)
        self.processes[name] = subprocess.Popen([sys.executable, "-c", sleep])

    monkeypatch.setattr(sites_demo.SitesDemo, "_start", begun)
    demo = sites_demo.SitesDemo(tmp_path, lambda text: None)
    demo.write_files()
    (demo.federation_folder / "east.npz").unlink()
    with pytest.raises(sites_demo.SiteFailed, match=r"east failed; see .*east\.log"):
        demo.run()
    assert all(process.poll() is not None for process in demo.processes.values())


@pytest.fixture
def waiting():
    """A node that has heard agent 0 in round 19 and awaits agent 2, which is down."""
    node = Node(team()[1], 60, InProcessNetwork().transport(1), None, 10, LIMITS)
    node.neighbour_status[0].round = node.t = 19
    with node.neighbour_status[2].mark_awaited():
        node.neighbour_status[2].awaited_since -= 12
        node.wait_records[2].last_error = "nothing listens there"
        yield node


def test_progress_lines_show_the_state_of_each_neighbour(waiting, capsys):
    lines = SiteProgress({0: "north", 2: "west"}, 60, lines=True)
    lines.begin(waiting)
    lines.progress([ENTRY])
    lines.progress([ENTRY])  # too soon after the last
    text = capsys.readouterr().err
    assert text.count("round=20/60 local_loss=0.5") == 1
    assert "MB=2 seconds=9.0 waited=4.0 north='round 19'" in text
    assert "west='no message yet, awaited for 12 s, nothing listens there'" in text
    without_solution = {name: value for name, value in ENTRY.items() if name != "lower_error"}
    lines.printed -= 60
    lines.progress([without_solution])  # of a network, whose lower level is not solved for
    assert "local_loss=0.5 disagreement=0.001 MB=2" in capsys.readouterr().err


def test_the_progress_table_shows_the_state_of_each_neighbour(waiting):
    board, console = SiteProgress({0: "north", 2: "west"}, 60), Console(record=True, width=100)
    console.print(board)  # nothing yet
    board.begin(waiting)
    board.progress([ENTRY])
    console.print(board)
    shown = console.export_text()
    for text in ("19 of 60", "0.5 (round 20)", "2 MB", "round 19", "awaited for 12 s, nothing"):
        assert text in shown
