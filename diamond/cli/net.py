"""net init, start, doctor: sites that run together without a server."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .app import FAILED, Json, app, emit, reported, talk
from .net_sites import (
    Connect,
    Place,
    Rows,
    agreed,
    built,
    digest_of,
    installed,
    own_problem,
    plainly,
    private_files,
)

if TYPE_CHECKING:
    from ..peers.agent import Agent
    from ..peers.roster import Bundle
    from ..peers.timeouts import Limits

net = typer.Typer(no_args_is_help=True, help="Sites that run together, without a server.")
app.add_typer(net, name="net")

Own = Annotated[
    str | None,
    typer.Option("--problem", help="Yours, as in my_problem.py:make, if the file has none."),
]
Answer = Annotated[float, typer.Option("--round", help="Seconds for its answer.")]
Listen = Annotated[str | None, typer.Option(help="Listen here, not at the roster's address.")]
Restart = Annotated[bool, typer.Option("--restart", help="Set aside what is there; begin anew.")]
Onward = Annotated[
    bool,
    typer.Option("--onward", help="Begin a new run where the sites stood; one may have lost it."),
]
Metrics = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="Port of this machine for Prometheus to read."),
]
GiveUp = Annotated[float, typer.Option(help="Seconds without news after which to stop.")]


@net.command()
def init(
    file: Annotated[Path, typer.Argument(help="The federation, a TOML file.")],
    out: Annotated[Path | None, typer.Option(help="Where to found it.")] = None,
    json: Json = False,
) -> None:
    """Found a federation: its own authority, and one bundle to carry to each site."""
    with reported():
        installed()
        from ..config.federation import load
        from ..peers.authority import found_federation
        from ..peers.programs import CLIP_WARNING

        federation = load(file)
        if federation.clip is not None:
            talk(CLIP_WARNING, "yellow")
        place = out or Path(federation.name)
        bundles = found_federation(
            place, federation.name, federation.sites, federation.graph(), federation.terms()
        )
        if json:
            emit({site: str(path) for site, path in bundles.items()})
            return
        for site, path in bundles.items():
            typer.echo(f"{site}: {path}")
    talk(f"carry each folder to its site over a safe way; {place}/ca.key stays here")
    function = "" if federation.problem else " --problem my_problem.py:make"
    named = bool({"dataset", "train"} & {*(federation.problem or {})})
    talk(f"then, at each site:  diamond net start BUNDLE{function}{' --data FILE' * (not named)}")


@net.command()
def start(
    bundle: Place,
    problem: Own = None,
    data: Rows = None,
    out: Annotated[Path, typer.Option(help="Where the folder of the run goes.")] = Path("runs"),
    connect: Connect = 10.0,
    answer: Answer = 120.0,
    give_up: GiveUp = 24 * 3600.0,
    listen: Listen = None,
    restart: Restart = False,
    onward: Onward = False,
    metrics: Metrics = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but the end.")] = False,
    json: Json = False,
) -> None:
    """Run this site's part, or go on with it; the neighbours are waited for."""
    if restart and onward:
        raise typer.BadParameter(
            "--restart begins anew, --onward where the sites stood: give one, at all sites the same"
        )
    with plainly(), agreed(bundle) as (site, federation):
        from ..config.federation import origin
        from ..engine.peers import run
        from ..machine.compiler import at_once
        from ..peers.onward import prepare
        from ..peers.timeouts import Limits
        from ..runs.recovery import unused
        from ..runs.writable import room
        from .net_progress import watching

        at_once()
        folder = out / federation.name / site.me.name
        room(folder)
        if restart and folder.exists():
            aside = unused(folder)
            folder.rename(aside)
            talk(f"what was there is in {aside}; the run begins anew, once all sites do")
        elif onward:
            with private_files():
                old = prepare(folder)
            was = f"what was there is in {old}; " if old else ""
            talk(f"{was}a new run begins where the sites stood, once all are started with --onward")
        who = f"{site.me.name} (agent {site.me.number}) at {site.me.address}"
        names = {member.number: member.name for member in site.neighbours}
        talk(f"{who}; neighbours {', '.join(names.values())}; folder {folder}")
        made = own_problem(problem, data, site, federation)
        command = f"diamond net start {bundle}" + f" --problem {problem}" * bool(problem)
        command += f" --data {data}" * bool(data)
        whole = built(made, site.me.name)
        with private_files(), watching(names, federation.rounds, quiet) as watch:
            last = run(
                whole,
                federation.graph(),
                federation.algorithm.build(),
                federation.rounds,
                bundle,
                folder,
                federation.seed,
                federation.sampling,
                federation.every,
                Limits(connect, answer, give_up),
                watch,
                origin(federation, site.me.name, made, command),
                federation.toml(),
                listen,
                federation.missing,
                federation.clip,
                metrics,
                federation.measure,
            )
        x = digest_of(last.state.x)
        if json:
            emit({"site": site.me.name, "round": last.t, "folder": str(folder), "x": x})
        else:
            typer.echo(f"finished: round {last.t}, state in {folder}, sha256 of x {x}")


@net.command()
def doctor(
    bundle: Place,
    problem: Annotated[
        str | None, typer.Option("--problem", help="Compare this problem with theirs, too.")
    ] = None,
    data: Rows = None,
    connect: Connect = 5.0,
    json: Json = False,
) -> None:
    """Try every edge of this site; name those that fail, and why."""
    with plainly(), agreed(bundle) as (site, federation):
        from ..machine.memory import bytes_in_words
        from ..peers.agent import Agent
        from ..peers.disk_and_memory import room_for
        from ..peers.timeouts import Limits

        agent = None
        if problem or federation.problem:
            parts = federation.graph(), federation.algorithm.build(), site.me.number
            fixed = federation.seed, federation.sampling, federation.clip
            own = built(own_problem(problem, data, site, federation), site.me.name)
            agent = Agent(own, *parts, *fixed)
            needs = room_for(agent, federation.every, federation.missing)
            disk, memory = map(bytes_in_words, needs)
            talk(f"messages and checkpoints take at most {disk} of disk and {memory} of memory")
        terms = federation.rounds, federation.missing, Limits(connect, connect)
        found = asyncio.run(_examine(site, agent, *terms))
        if json:
            emit(found)
        else:
            for name, said in found.items():
                typer.echo(f"{site.me.name} - {name}: {said}")
        if any(said != "good" for said in found.values()):
            raise typer.Exit(FAILED)


async def _examine(
    site: "Bundle", agent: "Agent | None", rounds: int, missing: str, limits: "Limits"
) -> dict[str, str]:
    """What there is to say of each neighbour: "good", or what fails."""
    from ..peers.errors import Refused, Unreachable
    from ..peers.frame import REQUEST, FrameError, pack
    from ..peers.handshake import digest
    from ..peers.rpc import Client

    header: dict[str, Any] = {"kind": "ping", "sender": site.me.number}
    if agent is not None:
        header = {
            "kind": "hello",
            "sender": site.me.number,
            "parts": digest(agent, rounds, missing),
        }
    found = {}
    async with Client(site, REQUEST, limits) as client:
        for neighbour in site.neighbours:
            try:
                await client.call(neighbour.number, pack(header))
                found[neighbour.name] = "good"
            except (Refused, Unreachable, FrameError) as cause:
                found[neighbour.name] = f"{neighbour.address}: {cause}"
    return found
