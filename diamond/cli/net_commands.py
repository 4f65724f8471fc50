"""The commands `net init`, `net start` and `net doctor`: sites that run without a server."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .app import FAILED, Json, app, emit, reported, talk
from .net_site_setup import (
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
    from ..peers.roster import Bundle
    from ..peers.site_agent import Agent
    from ..peers.timeouts import Limits

net = typer.Typer(no_args_is_help=True, help="Run sites together, without a server.")
app.add_typer(net, name="net")

Own = Annotated[
    str | None,
    typer.Option(
        "--problem",
        help="Your problem, as in my_problem.py:make. Default: that of the federation's file.",
    ),
]
Answer = Annotated[float, typer.Option("--round", help="Seconds to wait for a neighbour's answer.")]
Listen = Annotated[
    str | None, typer.Option(help="Address to listen at, HOST:PORT. Default: the roster's address.")
]
Restart = Annotated[
    bool, typer.Option("--restart", help="Set the existing run aside and start again from round 0.")
]
Onward = Annotated[
    bool,
    typer.Option(
        "--onward",
        help="Start a new run from the sites' last points; one site may have lost its own.",
    ),
]
Metrics = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="Port on this machine that serves metrics to Prometheus. Default: none.",
    ),
]
GiveUp = Annotated[float, typer.Option(help="Seconds without any message after which to stop.")]


@net.command()
def init(
    file: Annotated[Path, typer.Argument(help="Federation, a TOML file.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the federation. Default: its name.")
    ] = None,
    json: Json = False,
) -> None:
    """Found a federation: its certificate authority, and one bundle to carry to each site."""
    with reported():
        installed()
        from ..config.federation_file import load
        from ..peers.agent_programs import CLIP_WARNING
        from ..peers.certificate_authority import found_federation

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
    out: Annotated[
        Path, typer.Option(help="Folder in which the folder of the run is created.")
    ] = Path("runs"),
    connect: Connect = 10.0,
    answer: Answer = 120.0,
    give_up: GiveUp = 24 * 3600.0,
    listen: Listen = None,
    restart: Restart = False,
    onward: Onward = False,
    metrics: Metrics = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")] = False,
    json: Json = False,
) -> None:
    """Start or continue this site's part of the run; wait for the neighbours."""
    if restart and onward:
        raise typer.BadParameter(
            "--restart begins anew, --onward where the sites stood: give one, at all sites the same"
        )
    with plainly(), agreed(bundle) as (site, federation):
        from ..config.federation_file import origin
        from ..engine.site_rehearsal import run
        from ..hardware.compiler import at_once
        from ..peers.timeouts import Limits
        from ..peers.warm_restart import prepare
        from ..records.folder_recovery import unused
        from ..records.write_check import room
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
        str | None,
        typer.Option(
            "--problem",
            help="Problem to compare with the neighbours'. Default: that of the federation's file.",
        ),
    ] = None,
    data: Rows = None,
    connect: Connect = 5.0,
    json: Json = False,
) -> None:
    """Test the connection to every neighbour of this site and explain each failure."""
    with plainly(), agreed(bundle) as (site, federation):
        from ..hardware.memory import bytes_in_words
        from ..peers.resource_estimate import room_for
        from ..peers.site_agent import Agent
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
    """Return "good" or the failure for each neighbour."""
    from ..peers.call_errors import Refused, Unreachable
    from ..peers.handshake import digest
    from ..peers.rpc import Client
    from ..peers.wire_format import REQUEST, FrameError, pack

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
