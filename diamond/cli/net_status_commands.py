"""The commands `net status` and `net stop`: state and shutdown of a running site."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .app import FAILED, Json, emit, talk
from .net_commands import net
from .net_site_setup import Connect, Place, plainly

if TYPE_CHECKING:
    from ..peers.roster import Bundle, Member

Own = Annotated[
    str | None,
    typer.Option(
        "--listen", help="Address at which this site listens. Default: the roster's address."
    ),
]


@net.command()
def status(bundle: Place, connect: Connect = 5.0, listen: Own = None, json: Json = False) -> None:
    """Print the round of this site and of its neighbours, and whom they wait for."""
    with plainly():
        from ..peers.roster import load

        site = load(bundle)
        found = asyncio.run(_ask(site, "status", [site.me, *site.neighbours], connect, listen))
        if json:
            emit(found)
        else:
            for name, told in found.items():
                typer.echo(f"{name}: {_said(site, told)}")
        if "error" in found[site.me.name]:
            raise typer.Exit(FAILED)


@net.command()
def stop(bundle: Place, connect: Connect = 5.0, listen: Own = None, json: Json = False) -> None:
    """Stop this site after its round, with a checkpoint; the other sites keep running."""
    with plainly():
        from ..peers.roster import load

        site = load(bundle)
        (told,) = asyncio.run(_ask(site, "stop", [site.me], connect, listen)).values()
        if json:
            emit(told)
        elif "error" not in told:
            typer.echo(f"{site.me.name} stops after its round, {told['round'] + 1} at the latest")
        if "error" in told:
            talk(f"{site.me.name}: {_said(site, told)}", "red")
            raise typer.Exit(FAILED)
    talk("`diamond net start` with the same words goes on from there")


async def _ask(
    site: "Bundle", kind: str, members: "Iterable[Member]", connect: float, own: str | None
) -> dict[str, dict[str, Any]]:
    """Request an answer from each member; {"error": reason} if a member does not answer."""
    from ..peers.call_errors import Refused, Unreachable
    from ..peers.neighbour_status import standing
    from ..peers.rpc import Client
    from ..peers.timeouts import Limits
    from ..peers.wire_format import REQUEST, FrameError, pack, unpack

    async def one(client: Client, member: "Member") -> dict[str, Any]:
        try:
            request = pack({"kind": kind, "sender": site.me.number})
            header, _ = unpack(await client.call(member.number, request), REQUEST)
            return standing(header, len(site.roster.members))
        except (Refused, Unreachable, FrameError) as cause:
            return {"error": f"{member.address}: {cause}"}

    async with Client(site, REQUEST, Limits(connect, connect), own) as client:
        found = await asyncio.gather(*(one(client, member) for member in members))
    return {member.name: told for member, told in zip(members, found)}


def _said(site: "Bundle", told: dict[str, Any]) -> str:
    """Format the answer of a member as text."""
    from ..metrics.display import duration

    if "error" in told:
        return str(told["error"])
    name = lambda number: site.roster.members[number].name
    words = [f"{told['state']}, round {told['round']} of {told['rounds']}"]
    for wait in told["waiting"]:
        why = f" ({wait['why']})" if wait["why"] else ""
        words.append(f"has waited for {name(wait['agent'])} for {duration(wait['seconds'])}{why}")
    if told["away"]:
        words.append(f"goes on without {', '.join(map(name, told['away']))}")
    return "; ".join(words)
