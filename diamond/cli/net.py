"""net init, start, doctor: sites that run together without a server."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .app import BAD_INPUT, DIVERGED, FAILED, Json, app, emit, reported, talk

if TYPE_CHECKING:
    from ..peers.agent import Agent, Progress
    from ..peers.patience import Limits
    from ..peers.roster import Bundle

net = typer.Typer(no_args_is_help=True, help="Sites that run together, without a server.")
app.add_typer(net, name="net")

Place = Annotated[Path, typer.Argument(help="The bundle of this site, a folder.")]
Own = Annotated[str, typer.Option("--problem", help="Your function, as in my_problem.py:make.")]
Rows = Annotated[Path | None, typer.Option("--data", help="Handed to it as `data`: your own rows.")]
Connect = Annotated[float, typer.Option(help="Seconds for one try to reach a neighbour.")]
Answer = Annotated[float, typer.Option("--round", help="Seconds for its answer.")]
GiveUp = Annotated[float, typer.Option(help="Seconds without news after which to stop.")]


@net.command()
def init(
    file: Annotated[Path, typer.Argument(help="The federation, a TOML file.")],
    out: Annotated[Path | None, typer.Option(help="Where to found it.")] = None,
    json: Json = False,
) -> None:
    """Found a federation: its own authority, and one bundle to carry to each site."""
    with reported():
        _installed()
        from ..experiment.federation import load
        from ..peers.authority import found

        federation = load(file)
        place = out or Path(federation.name)
        bundles = found(
            place, federation.name, federation.sites, federation.graph(), federation.terms()
        )
        if json:
            emit({site: str(path) for site, path in bundles.items()})
            return
        for site, path in bundles.items():
            typer.echo(f"{site}: {path}")
    talk(f"carry each folder to its site over a safe way; {place}/ca.key stays here")
    talk("then, at each site:  diamond net start BUNDLE --problem my_problem.py:make --data FILE")


@net.command()
def start(
    bundle: Place,
    problem: Own,
    data: Rows = None,
    out: Annotated[Path, typer.Option(help="Where the folder of the run goes.")] = Path("runs"),
    connect: Connect = 10.0,
    answer: Answer = 120.0,
    give_up: GiveUp = 24 * 3600.0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but the end.")] = False,
    json: Json = False,
) -> None:
    """Run this site's part, or go on with it; the neighbours are waited for."""
    with _plainly(), _agreed(bundle) as (site, federation):
        from ..peers.patience import Limits
        from ..runtimes.peers import run

        begun = time.monotonic()

        def said(progress: "Progress") -> None:
            if not quiet and (
                progress.t % federation.every == 0 or progress.t == federation.rounds
            ):
                talk(f"round {progress.t} of {federation.rounds}, {time.monotonic() - begun:.1f} s")

        folder = out / federation.name / site.me.name
        who = f"{site.me.name} (agent {site.me.number}) at {site.me.address}"
        others = ", ".join(m.name for m in site.neighbours)
        talk(f"{who}; neighbours {others}; folder {folder}")
        last = run(
            _problem(problem, data),
            federation.graph(),
            federation.algorithm.build(),
            federation.rounds,
            bundle,
            folder,
            federation.seed,
            federation.sampling,
            federation.every,
            Limits(connect, answer, give_up),
            said,
        )
        result = {"site": site.me.name, "round": last.t, "folder": str(folder), "x": _digest(last)}
        if json:
            emit(result)
        else:
            typer.echo(f"finished: round {last.t}, state in {folder}, sha256 of x {result['x']}")


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
    with _plainly(), _agreed(bundle) as (site, federation):
        from ..peers.agent import Agent
        from ..peers.patience import Limits

        agent = None
        if problem:
            parts = federation.graph(), federation.algorithm.build(), site.me.number
            fixed = federation.seed, federation.sampling
            agent = Agent(_problem(problem, data), *parts, *fixed)
        found = asyncio.run(_examine(site, agent, federation.rounds, Limits(connect, connect)))
        if json:
            emit(found)
        else:
            for name, said in found.items():
                typer.echo(f"{site.me.name} - {name}: {said}")
        if any(said != "good" for said in found.values()):
            raise typer.Exit(FAILED)


async def _examine(
    site: "Bundle", agent: "Agent | None", rounds: int, limits: "Limits"
) -> dict[str, str]:
    """What there is to say of each neighbour: "good", or what fails."""
    from ..peers.agreement import digest
    from ..peers.frame import FrameError, pack
    from ..peers.rpc import Client
    from ..peers.transport import REQUEST, Refused, Unreachable

    header: dict[str, Any] = {"kind": "ping", "sender": site.me.number}
    if agent is not None:
        header = {"kind": "hello", "sender": site.me.number, "parts": digest(agent, rounds)}
    found = {}
    async with Client(site, REQUEST, limits) as client:
        for neighbour in site.neighbours:
            try:
                await client.call(neighbour.number, pack(header))
                found[neighbour.name] = "good"
            except (Refused, Unreachable, FrameError) as cause:
                found[neighbour.name] = f"{neighbour.address}: {cause}"
    return found


@contextmanager
def _agreed(bundle: Path) -> "Iterator[tuple[Bundle, Any]]":
    """The bundle and the federation it is of, in whose precision JAX works meanwhile."""
    import jax

    from ..cache import compile_cache
    from ..experiment.federation import agreed
    from ..peers.roster import load

    compile_cache()
    site = load(bundle)
    sites = {member.name: member.address for member in site.roster.members}
    federation = agreed(site.roster.federation, site.roster.terms, sites)
    with jax.enable_x64(federation.precision == "float64"):
        yield site, federation


def _problem(kind: str, data: Path | None) -> Any:
    from pydantic import ValidationError

    from ..experiment.mistakes import BadExperiment, Mistake
    from ..experiment.problems import problem

    given = {"kind": kind} | ({"data": str(data)} if data else {})
    try:
        return problem(given, Path.cwd()).build()
    except ValidationError as error:
        said = [Mistake("problem", e["ctx"]["said"]) for e in error.errors()]
        raise BadExperiment(kind, said) from None


def _digest(last: "Progress") -> str:
    import hashlib

    import jax
    import numpy as np

    leaves = jax.tree.leaves(last.state.x)
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest()


@contextmanager
def _plainly() -> Iterator[None]:
    """As `reported`, for what sites have to say as well."""
    with reported():
        _installed()
        from ..peers.patience import GaveUp
        from ..peers.roster import BadBundle
        from ..peers.saved import OtherRun
        from ..peers.transport import Refused

        try:
            yield
        except (BadBundle, OtherRun) as error:
            talk(str(error), "red")
            raise typer.Exit(BAD_INPUT) from None
        except FloatingPointError as error:
            talk(str(error), "red")
            raise typer.Exit(DIVERGED) from None
        except (Refused, GaveUp) as error:
            talk(str(error), "red")
            raise typer.Exit(FAILED) from None


def _installed() -> None:
    """Say what is missing where the extra was not installed."""
    try:
        import cryptography  # noqa: F401
        import msgpack  # noqa: F401
    except ImportError as cause:
        talk(f"{cause.name} is missing: pip install 'diamond-bilevel[net]'", "red")
        raise typer.Exit(BAD_INPUT) from None
