"""What goes wrong at a site is said in one sentence, with the right exit code."""

import asyncio
import errno
import json
import stat
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import typer
from tls_sites import federation, with_certificate

from diamond.cli import net_site_setup
from diamond.cli.net_progress import show_site_progress
from diamond.cli.net_status_commands import _format_answer, _print_overview
from diamond.records.write_check import DiskFull
from diamond.sites.identity import roster
from diamond.sites.rounds.node_status import NeighbourStatus
from diamond.sites.transport.errors import Refused, RunFailed, RunMismatch
from diamond.sites.transport.messages import StatusQuery
from diamond.sites.transport.operator_queries import query_members
from diamond.sites.transport.server import Server
from diamond.sites.transport.timeouts import NeighbourTimeout, WaitRecord
from diamond.sites.transport.wire_format import pack


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.full((9, 3), np.nan, np.float32), "west's training rows are not finite: row 0"),
        (np.zeros((0, 3), np.float32), "west has 0 training rows"),
    ],
)
def test_errors_about_rows_name_the_site(trial, command, rows, message):
    np.save(trial / "bad.npy", rows)
    words = trial / "trial" / "west", "--problem", f"{trial / 'mine.py'}:make"
    found = command("start", *words, "--data", trial / "bad.npy", "--out", trial / "runs")
    assert found.exit_code == 2 and message in found.stderr and "Traceback" not in found.output


def test_restart_with_onward_is_refused_before_anything_is_moved(trial, command):
    place = trial / "runs" / "trial" / "west"
    place.mkdir(parents=True)
    words = trial / "trial" / "west", "--out", trial / "runs", "--restart", "--onward"
    found = command("start", *words)
    message = " ".join(found.stderr.replace("\u2502", " ").split())
    assert found.exit_code == 2 and "give one of them, the same at all sites" in message
    assert [path.name for path in place.parent.iterdir()] == ["west"]


def test_a_folder_that_cannot_be_written_to_is_named(trial, command):
    (trial / "runs").write_text("a file")
    words = trial / "trial" / "west", "--problem", f"{trial / 'mine.py'}:make"
    found = command("start", *words, "--data", trial / "west.npy", "--out", trial / "runs")
    assert (
        found.exit_code == 2 and "is a file, where the folder of the run is to go" in found.stderr
    )


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (RunFailed("south diverged in round 3"), 3, "south diverged in round 3"),
        (RunMismatch("west runs something else than all"), 2, "west runs something else than all"),
        (Refused("its key is not in roster 2 of north"), 2, "its key is not in roster 2"),
        (NeighbourTimeout("waited 9 s for the message"), 1, "waited 9 s for the message"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "No space left on device: the fold"),
        (DiskFull(errno.ENOSPC, "No space left", "runs/a.json"), 1, "runs/a.json: No space left: "),
        (OSError("127.0.0.1:1 cannot be listened on"), 1, "127.0.0.1:1 cannot be"),
    ],
)
def test_a_failure_is_explained_in_one_sentence(capsys, error, code, message):
    with pytest.raises(typer.Exit) as found, net_site_setup.report_site_errors():
        raise error
    assert found.value.exit_code == code
    output = capsys.readouterr().err
    assert output.startswith(message) and output.count("\n") == 1


def test_agents_are_called_by_the_names_of_their_sites(trial, capsys):
    with net_site_setup.load_site(trial / "trial" / "north"):
        warnings.warn("g_yy of agent 2 is -0.1; agent 12", RuntimeWarning, stacklevel=1)
    output = capsys.readouterr().err.replace("\n", " ")
    assert output.startswith("g_yy of west is -0.1; agent 12") and "warnings.warn" not in output


def test_doctor_says_that_no_liar_can_be_survived(trial, command):
    examined = command("doctor", trial / "trial" / "north", "--connect", "0.1")
    assert "no liar can be survived on this graph" in examined.stderr.replace("\n", " ")


def test_an_expired_own_certificate_is_reported(trial, command):
    place = trial / "trial" / "north"
    for days, code, message in (
        (-1, 2, "the certificate of north expired on "),
        (20, 1, "the certificate of north expires on "),
    ):
        new = with_certificate(trial / "trial", roster.load_bundle(place), days=days)
        (place / "agent.pem").write_bytes(new.certificate)
        found = command("doctor", place, "--connect", "0.1")
        assert found.exit_code == code and message in found.stderr
        assert "`diamond net renew` at the authority" in found.stderr


def test_a_key_that_others_can_read_is_refused(trial, command):
    key = trial / "trial" / "north" / "agent.key"
    key.chmod(0o644)
    found = command("doctor", trial / "trial" / "north", "--connect", "0.1")
    assert found.exit_code == 2 and f"chmod 600 {key}" in found.stderr.replace("\n", "")


def test_what_a_site_writes_is_its_owners_only(tmp_path):
    with net_site_setup.private_files():
        (tmp_path / "checkpoint").write_text("y")
    assert stat.S_IMODE((tmp_path / "checkpoint").stat().st_mode) == 0o600
    (tmp_path / "other").write_text("")
    assert stat.S_IMODE((tmp_path / "other").stat().st_mode) != 0o600  # as it was before


ODD = [
    {},
    {"agent": 1, "round": "9\n", "rounds": 9, "state": "", "waiting": [], "away": []},
    {"agent": 1, "round": 1, "rounds": 9, "state": "on", "waiting": [{"agent": 99}], "away": []},
    {"agent": 1, "round": 1, "rounds": 9, "state": "on", "waiting": [], "away": [7]},
    {"agent": 1, "round": 1, "rounds": 9, "state": "on", "waiting": 3, "away": []},
    {"agent": 1, "round": 1, "rounds": 9, "state": ["on"], "waiting": [], "away": []},
    {"agent": 1, "round": 1, "rounds": 9, "state": "on", "waiting": [], "away": [0] * 9},
    {
        **{"agent": 1, "round": 1, "rounds": 9, "state": "on", "away": []},
        "waiting": [{"agent": 0, "seconds": float("inf"), "why": ""}],
    },
]


@pytest.mark.parametrize("fields", ODD)
def test_an_odd_status_is_named_and_forges_nothing(tmp_path, fields):
    one, two, _ = federation(tmp_path / "federation")

    async def answer(sender, request):
        return pack({"kind": "status", **fields})

    async def attempt():
        async with Server(two, answer):
            return await query_members(one, StatusQuery, [two.me], 2.0, own_address=None)

    found = asyncio.run(attempt())
    assert "an answer that is no status" in _format_answer(one, found["site1"])
    json.dumps(found)


def test_codes_in_a_status_are_written_out(tmp_path):
    one, two, _ = federation(tmp_path / "federation")
    wait = {"agent": 2, "seconds": 3.0, "why": "\x1b[2Jgone\nround=9"}

    async def answer(sender, request):
        state = {"agent": 1, "round": 1, "rounds": 9, "state": "on\r", "away": []}
        return pack({"kind": "status", **state, "waiting": [wait]})

    async def attempt():
        async with Server(two, answer):
            return await query_members(one, StatusQuery, [two.me], 2.0, own_address=None)

    message = _format_answer(one, asyncio.run(attempt())["site1"])
    assert message == r"on\r, round 1 of 9; has waited for site2 for 3 s (\x1b[2Jgone\nround=9)"


def test_no_status_of_a_member_breaks_the_table_or_the_progress(capsys):
    """Square brackets are markup of rich; the cells are shown as they were written."""
    roster = SimpleNamespace(members=[SimpleNamespace(name="north"), SimpleNamespace(name="[/b]")])
    status = {"agent": 0, "round": 1, "rounds": 9, "state": "[/b]", "away": [1], "connected": []}
    waiting = [{"agent": 1, "seconds": 9e99, "why": "[/b]"}]
    answers = {"north": status | {"waiting": waiting}, "[/b]": {"error": "[/b] [red]"}}
    _print_overview(SimpleNamespace(roster=roster), answers)
    assert "[/b] [red]" in capsys.readouterr().out

    neighbour = NeighbourStatus(1, time.monotonic() - 60)
    node = SimpleNamespace(
        t=1,
        seconds=1.0,
        seconds_waited=0.5,
        names={1: "south"},
        agent=SimpleNamespace(neighbours=[1]),
        neighbour_status={1: neighbour},
        wait_records={1: WaitRecord(last_error="the relay refuses: [/b]")},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stderr.isatty", lambda: True, raising=False)
        with show_site_progress({1: "south"}, 9, quiet=False) as progress:
            progress.begin(node)
    assert "the relay refuses: [/b]" in capsys.readouterr().err
