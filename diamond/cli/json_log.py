"""Messages of a site or relay as JSON lines, for collectors of logs."""

import datetime
import json
import logging
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

import typer

from ..metrics.display import MessageEvent, MessageValue, redirect_messages

JsonLog = Annotated[
    bool,
    typer.Option("--json-log", help="Write messages to the error output as JSON, one a line."),
]
Level = Literal["info", "warning", "error"]
LEVELS: dict[str, Level] = {"red": "error", "bold red": "error", "yellow": "warning"}  # by style


@dataclass(frozen=True)
class LogLine:
    """Schema of a line; all fields are always there.

    Attributes:
        time: time in UTC, ISO 8601 with milliseconds.
        level: "error" before the command ends with a failure, "warning" if an operator should look.
        site: name of the site, or folder of the relay; empty until the bundle has been read.
        event: kind of the line, which says what `values` has. "ready": round, seconds since the
            start of the command, seconds waited. "progress": round, rounds, local_loss, bytes,
            seconds, waited, and measures of this evaluation. "waiting": neighbour, seconds, reason.
            "notice", as of a refused connection, and "message", everything else: nothing.
        message: text for people.
        values: numbers and names in the message.
    """

    time: str
    level: Level
    site: str
    event: MessageEvent
    message: str
    values: dict[str, MessageValue]


class JsonLogWriter(logging.Handler):
    """Writer of messages and of log records; `site` is set as soon as the site is known."""

    site = ""

    def write(
        self,
        message: str,
        style: str,
        event: MessageEvent,
        values: Mapping[str, MessageValue],
    ) -> None:
        """Write a message of the command."""
        self._write_line(LEVELS.get(style, "info"), event, message, values)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record of the log."""
        level: Level = "error" if record.levelno >= logging.ERROR else "warning"
        self._write_line(level, "notice", record.getMessage(), {})

    def _write_line(
        self, level: Level, event: MessageEvent, message: str, values: Mapping[str, MessageValue]
    ) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        safe = {name: _as_json(value) for name, value in values.items()}
        line = LogLine(now, level, self.site, event, message, safe)
        print(json.dumps(asdict(line)), file=sys.stderr, flush=True)


def _as_json(value: MessageValue) -> MessageValue:
    """Return the value, or its name if JSON has no such number."""
    return value if isinstance(value, str) or math.isfinite(value) else str(value)


@contextmanager
def json_log(is_wanted: bool) -> Iterator[JsonLogWriter]:
    """Write messages and warnings of the log as JSON lines, if wanted."""
    writer = JsonLogWriter(logging.WARNING)
    if not is_wanted:
        yield writer
        return
    root = logging.getLogger()
    root.addHandler(writer)
    try:
        with redirect_messages(writer.write):
            yield writer
    finally:
        root.removeHandler(writer)
