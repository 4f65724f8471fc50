"""The `net relay` command: forward connections between sites that accept none, without keys."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from ..metrics.display import print_message
from .json_log import JsonLog, json_log
from .net_commands import net
from .net_site_setup import report_site_errors


@net.command()
def relay(
    folder: Annotated[
        Path, typer.Argument(help="Folder of this relay, from `diamond net init`; it has no keys.")
    ],
    listen: Annotated[
        str | None,
        typer.Option(help="Address to listen at, HOST:PORT. Default: the roster's address."),
    ] = None,
    edges: Annotated[
        int, typer.Option(min=1, help="Largest number of edges that are served at a time.")
    ] = 256,
    megabytes: Annotated[
        float, typer.Option(min=0.001, help="Megabytes a second for each edge and direction.")
    ] = 125.0,
    gigabytes: Annotated[
        float, typer.Option(min=0.001, help="Gigabytes a day for each edge.")
    ] = 1000.0,
    log_as_json: JsonLog = False,
) -> None:
    """Forward the encrypted connections of sites that accept none; the relay cannot read them."""
    with json_log(log_as_json) as log, report_site_errors():
        from ..sites.transport.relay import RelayLimits, run_relay

        log.site = folder.resolve().name
        limits = RelayLimits(edges, 1e6 * megabytes, 1e9 * gigabytes)
        with suppress(KeyboardInterrupt):  # nothing is lost: sites dial again
            asyncio.run(run_relay(folder, listen, limits, print_message))
