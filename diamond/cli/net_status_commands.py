"""The commands `net status` and `net stop`: state and shutdown of a running site."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .app import FAILED, Json, print_json, print_message
from .net_commands import net
from .net_site_setup import BundleFolder, ConnectSeconds, report_site_errors

if TYPE_CHECKING:
    from ..peers.roster import Bundle, Member

OwnAddress = Annotated[
    str | None,
    typer.Option(
        "--listen", help="Address at which this site listens. Default: the roster's address."
    ),
]


@net.command()
def status(
    bundle: BundleFolder,
    connect: ConnectSeconds = 5.0,
    listen: OwnAddress = None,
    json: Json = False,
) -> None:
    """Print the round of this site and of its neighbours, and whom they wait for."""
    with report_site_errors():
        from ..peers.roster import load_bundle

        site = load_bundle(bundle)
        answers = asyncio.run(
            _query_members(site, "status", [site.me, *site.neighbours], connect, listen)
        )
        if json:
            print_json(answers)
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
        from ..peers.roster import load_bundle

        site = load_bundle(bundle)
        (answer,) = asyncio.run(_query_members(site, "stop", [site.me], connect, listen)).values()
        if json:
            print_json(answer)
        elif "error" not in answer:
            typer.echo(f"{site.me.name} stops after its round, {answer['round'] + 1} at the latest")
        if "error" in answer:
            print_message(f"{site.me.name}: {_format_answer(site, answer)}", "red")
            raise typer.Exit(FAILED)
    print_message("run the same `diamond net start` command again to continue")


async def _query_members(
    site: "Bundle", kind: str, members: "Iterable[Member]", connect: float, own_address: str | None
) -> dict[str, dict[str, Any]]:
    """Request an answer from each member; {"error": reason} if a member does not answer."""
    from ..peers.call_errors import Refused, Unreachable
    from ..peers.neighbour_status import validate_status
    from ..peers.rpc import RpcClient
    from ..peers.timeouts import Timeouts
    from ..peers.wire_format import MAX_REQUEST_BYTES, FrameError, pack, unpack

    async def query(client: RpcClient, member: "Member") -> dict[str, Any]:
        try:
            request = pack({"kind": kind, "sender": site.me.number})
            header, _ = unpack(await client.send_request(member.number, request), MAX_REQUEST_BYTES)
            return validate_status(header, len(site.roster.members))
        except (Refused, Unreachable, FrameError) as cause:
            return {"error": f"{member.address}: {cause}"}

    timeouts = Timeouts(connect, connect)
    async with RpcClient(site, MAX_REQUEST_BYTES, timeouts, own_address) as client:
        answers = await asyncio.gather(*(query(client, member) for member in members))
    return {member.name: answer for member, answer in zip(members, answers)}


def _format_answer(site: "Bundle", answer: dict[str, Any]) -> str:
    """Format the answer of a member as text."""
    from ..metrics.display import format_duration

    if "error" in answer:
        return str(answer["error"])
    name = lambda number: site.roster.members[number].name
    parts = [f"{answer['state']}, round {answer['round']} of {answer['rounds']}"]
    for wait in answer["waiting"]:
        reason = f" ({wait['why']})" if wait["why"] else ""
        parts.append(
            f"has waited for {name(wait['agent'])} for {format_duration(wait['seconds'])}{reason}"
        )
    if "epsilon" in answer:
        parts.append(f"spent epsilon {answer['epsilon']:.3g} of {answer['budget']:g}")
    if answer["away"]:
        parts.append(f"continues without {', '.join(map(name, answer['away']))}")
    return "; ".join(parts)
