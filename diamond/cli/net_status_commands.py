"""The commands `net status` and `net stop`: state and shutdown of a running site."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..metrics.display import print_message
from .app import FAILED, Json, Port, print_json
from .net_commands import net
from .net_site_setup import BundleFolder, ConnectSeconds, OwnAddress, RunsFolder, report_site_errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..metrics.site_status import NoStatus, SiteStatus, SiteStatuses
    from ..sites.identity.roster import Bundle


@net.command()
def status(
    bundle: BundleFolder,
    connect: ConnectSeconds = 5.0,
    listen: OwnAddress = None,
    everywhere: Annotated[
        bool,
        typer.Option("--all", help="Ask all sites, from neighbour to neighbour; print a table."),
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Serve a page of all sites on loopback until Ctrl-C.")
    ] = False,
    port: Port = 0,
    browser: Annotated[bool, typer.Option("--open", help="Open that page in the browser.")] = False,
    out: RunsFolder = Path("runs"),
    json: Json = False,
) -> None:
    """Print the round of this site and of its neighbours, or of all; and whom they wait for."""
    with report_site_errors():
        from ..sites.identity.roster import load_bundle
        from ..sites.transport.messages import StatusQuery
        from ..sites.transport.operator_queries import (
            operator_address,
            query_federation,
            query_members,
        )

        site = load_bundle(bundle)
        place, members = operator_address(bundle, site, listen), [site.me, *site.neighbours]
        if live:
            return _serve_overview(
                site, lambda: asyncio.run(query_federation(site, connect, place)), port, browser
            )
        answers = asyncio.run(
            query_federation(site, connect, place)
            if everywhere
            else query_members(site, StatusQuery, members, connect, own_address=place)
        )
        if "error" in answers[site.me.name]:
            ended = _read_ended_run(site.me.number, out / site.roster.federation / site.me.name)
            answers[site.me.name] = ended or answers[site.me.name]
        if json:
            print_json(answers)
        elif everywhere:
            _print_overview(site, answers)
        else:
            for name, answer in answers.items():
                typer.echo(f"{name}: {_format_answer(site, answer)}")
        if "error" in answers[site.me.name]:
            raise typer.Exit(FAILED)


@net.command()
def stop(
    bundle: BundleFolder,
    connect: ConnectSeconds = 5.0,
    listen: OwnAddress = None,
    json: Json = False,
) -> None:
    """Stop this site after its round, with a checkpoint; the other sites keep running."""
    with report_site_errors():
        from ..sites.identity.roster import load_bundle
        from ..sites.transport.messages import StopRequest
        from ..sites.transport.operator_queries import operator_address, query_members

        site = load_bundle(bundle)
        place = operator_address(bundle, site, listen)
        query = query_members(site, StopRequest, [site.me], connect, own_address=place)
        (answer,) = asyncio.run(query).values()
        if json:
            print_json(answer)
        elif "error" not in answer:
            typer.echo(f"{site.me.name} stops after its round, {answer['round'] + 1} at the latest")
        if "error" in answer:
            print_message(f"{site.me.name}: {_format_answer(site, answer)}", "red")
            raise typer.Exit(FAILED)
    print_message("run the same `diamond net start` command again to continue")


def _read_ended_run(number: int, folder: Path) -> "SiteStatus | None":
    """Return the last status of a run of this site that has ended, from its folder."""
    from ..metrics.site_status import SiteStatus
    from ..records.folder_recovery import read_manifest
    from ..records.metrics_file import MetricsFile

    manifest, _ = read_manifest(folder / "manifest.json")
    if manifest.get("status") not in ("finished", "diverged"):
        return None
    lines = MetricsFile(folder / "metrics.jsonl").lines()
    status = SiteStatus(
        agent=number,
        round=int(lines[-1]["round"]) if lines else 0,
        rounds=int(manifest["rounds"]),
        state=str(manifest["status"]),
        waiting=[],
        away=[],
        connected=[],
        message=str(manifest["message"]),
        folder=str(folder),
    )
    if lines:
        status["loss"] = float(lines[-1]["local_loss"])
    return status


def _format_answer(site: "Bundle", answer: "SiteStatus | NoStatus") -> str:
    """Format the answer of a member as text."""
    from ..metrics.display import format_duration

    if "error" in answer:
        return answer["error"]
    name = lambda number: site.roster.members[number].name
    parts = [f"{answer['state']}, round {answer['round']} of {answer['rounds']}"]
    if "folder" in answer:
        parts[0] = f"the run has ended here: {parts[0]}"
        parts += [f"local loss {answer['loss']:.4g}"] if "loss" in answer else []
    parts += [answer["message"]] if answer.get("message") else []
    if "folder" in answer:
        parts.append(f"`diamond show {answer['folder']}` prints the result")
    for wait in answer["waiting"]:
        reason = f" ({wait['why']})" if wait["why"] else ""
        parts.append(
            f"has waited for {name(wait['agent'])} for {format_duration(wait['seconds'])}{reason}"
        )
    if "epsilon" in answer:
        parts.append(f"spent epsilon {answer['epsilon']:.3g} of {answer['budget']:g}")
    if "liars" in answer:
        names = ", ".join(map(name, answer["liars"]))
        parts.append(f"has proof that {names} told different neighbours different things")
    if answer["away"]:
        parts.append(f"continues without {', '.join(map(name, answer['away']))}")
    return "; ".join(parts)


def _print_overview(site: "Bundle", answers: "SiteStatuses") -> None:
    """Print the statuses of all sites as a table."""
    from rich.console import Console
    from rich.table import Table

    from ..report.federation_page import describe_waits

    names = [member.name for member in site.roster.members]
    has_losses = any("loss" in answer for answer in answers.values())
    table = Table(pad_edge=False, box=None, padding=(0, 2, 0, 0))
    for heading in ("site", "state", "round", "waits for", *(["loss"] if has_losses else [])):
        table.add_column(heading, overflow="fold")
    for site_name, answer in answers.items():
        if "error" in answer:
            table.add_row(site_name, answer["error"])
            continue
        waits = describe_waits(names, answer)
        position = f"{answer['round']} of {answer['rounds']}"
        loss = [f"{answer['loss']:.4g}" if "loss" in answer else ""] if has_losses else []
        table.add_row(site_name, answer["state"], position, ", ".join(waits), *loss)
    Console(highlight=False, markup=False).print(table)  # sites have written the cells
    for site_name, answer in answers.items():
        for number in () if "error" in answer else answer.get("liars", ()):
            typer.echo(
                f"{site_name} has proof that {names[number]} told different neighbours different "
                f"things: `diamond net proof` verifies the file in its run folder"
            )


def _serve_overview(
    site: "Bundle", query: "Callable[[], SiteStatuses]", port: int, browser: bool
) -> None:
    """Serve the page of all sites on loopback until Ctrl-C."""
    from ..report.federation_page import SiteGraph, make_federation_server
    from ..report.loopback_server import serve_until_interrupted

    members = site.roster.members
    edges = [(m.number, j) for m in members for j in m.neighbours if m.number < j]
    federation = SiteGraph(site.roster.federation, [m.name for m in members], edges)
    on_ready = lambda address: typer.echo(f"{address}  (stop with Ctrl-C)")
    serve_until_interrupted(make_federation_server(federation, query, port), browser, on_ready)
