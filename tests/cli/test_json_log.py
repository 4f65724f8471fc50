"""Logs of sites as JSON lines: one schema, whatever the message."""

import datetime
import json
import logging
from types import SimpleNamespace
from typing import get_type_hints

import pytest
from pydantic import ConfigDict, TypeAdapter

from diamond.cli.json_log import LogLine, json_log
from diamond.cli.net_progress import SiteProgress
from diamond.cli.net_site_setup import report_site_errors
from diamond.metrics.display import print_message
from diamond.sites.rounds.node_status import NeighbourStatus
from diamond.sites.transport.audit import Audit
from diamond.sites.transport.timeouts import WaitRecord


class StrictLine(LogLine):
    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)


SCHEMA = TypeAdapter(StrictLine)
NODE = SimpleNamespace(
    t=3,
    rounds=60,
    greeting_seconds=0.5,
    names={1: "south"},
    agent=SimpleNamespace(neighbours=[1]),
    neighbour_status={1: NeighbourStatus(2, awaited_since=-60.0)},
    wait_records={1: WaitRecord(last_error="nothing\nlistens there")},
)
ENTRY = {"round": 10, "local_loss": float("inf"), "bytes": 5, "seconds": 1.0, "waited": 0.5}


def lines_of(text):
    return [vars(SCHEMA.validate_json(line)) for line in text.splitlines()]


def test_every_line_fits_the_schema_and_says_in_fields_what_its_text_says(capsys):
    with json_log(True) as log:
        print_message("before the site is known")
        log.site = "north"
        shown = SiteProgress({1: "south"}, 60, lines=True)
        shown.begin(NODE)
        shown.ready()
        shown.progress([ENTRY | {"disagreement": 0.25}])
        shown._print_waits()
        Audit().record_event("1.2.3.4:5", "refused: \x1b[2J")
        logging.getLogger("jax").error("out of %s", "memory")
    print_message("plain again")
    *texts, last = capsys.readouterr().err.splitlines()
    lines = lines_of("\n".join(texts))
    assert last == "plain again"
    assert [line["site"] for line in lines] == ["", *["north"] * 5]
    kinds = [(line["event"], line["level"]) for line in lines]
    assert kinds == [
        ("message", "info"),
        ("ready", "info"),
        ("progress", "info"),
        ("waiting", "info"),
        ("notice", "warning"),
        ("notice", "error"),
    ]
    _, ready, progress, waiting, notice, failure = lines
    assert ready["values"]["round"] == 3 and ready["values"]["waited"] == 0.5
    assert progress["values"] == ENTRY | {"disagreement": 0.25, "rounds": 60, "local_loss": "inf"}
    assert waiting["values"]["seconds"] > 60 and waiting["values"]["neighbour"] == "south"
    assert notice["message"] == "1.2.3.4:5: refused: \\x1b[2J"
    assert failure["message"] == "out of memory"
    times = [datetime.datetime.fromisoformat(line["time"]) for line in lines]
    assert times == sorted(times) and times[0].utcoffset() == datetime.timedelta(0)
    for name in get_type_hints(LogLine):  # each field is necessary
        with pytest.raises(ValueError, match=name):
            lines_of(json.dumps({k: v for k, v in ready.items() if k != name}))


def test_errors_of_commands_are_lines_too(trial, command):
    with pytest.raises(Exception) as ended, json_log(True), report_site_errors():
        raise FileNotFoundError("no rows")
    assert ended.value.exit_code == 2
    words = "start", trial / "trial" / "west", "--problem", f"{trial / 'none.py'}:make"
    found = command(*words, "--json-log", "--out", trial / "runs")
    lines = lines_of(found.stderr)
    assert found.exit_code == 2 and lines[-1]["site"] == "west"
    assert [line["level"] for line in lines[-2:]].count("error") >= 1
    assert lines_of(command("relay", trial / "trial", "--json-log").stderr)[0]["level"] == "error"
