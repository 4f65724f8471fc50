"""Helpers that the `diamond net` commands share: bundle, problem and errors of a site."""

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .app import BAD_INPUT, DIVERGED, FAILED, INTERRUPTED, reported, talk

if TYPE_CHECKING:
    from ..config.components import Part
    from ..config.federation_file import Federation
    from ..peers.roster import Bundle
    from ..problem import Problem

Place = Annotated[Path, typer.Argument(help="Bundle of this site, a folder.")]
Rows = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="Rows of this site, passed to the problem as `data`. Default: those of the file.",
    ),
]
Connect = Annotated[float, typer.Option(help="Seconds for one attempt to reach a neighbour.")]


@contextmanager
def agreed(bundle: Path) -> "Iterator[tuple[Bundle, Federation]]":
    """Load the bundle and its federation, and set the precision of JAX to the federation's."""
    import jax

    from ..config.federation_file import agreed
    from ..hardware.compilation_cache import compile_cache
    from ..peers.roster import fresh, load
    from ..peers.site_names import by_name

    compile_cache()
    site = load(bundle)
    if said := fresh(site):
        talk(said, "yellow")
    sites = {member.name: member.address for member in site.roster.members}
    federation = agreed(site.roster.federation, site.roster.terms, sites)
    if federation.clip is not None:
        from ..peers.agent_programs import CLIP_WARNING

        talk(CLIP_WARNING, "yellow")
    names = {member.number: member.name for member in site.roster.members}
    with jax.enable_x64(federation.precision == "float64"), warnings.catch_warnings():
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = lambda message, *_, **__: talk(
            by_name(str(message), names), "yellow"
        )
        yield site, federation


def own_problem(
    kind: str | None, data: Path | None, site: "Bundle", federation: "Federation"
) -> "Part":
    """Return the problem of the user's function or of the federation's file, on the site's rows."""
    from pydantic import ValidationError

    from ..config.problem_section import problem
    from ..config.site_problem import at_site
    from ..config.validation_errors import BadExperiment, Mistake

    given = {"kind": kind} | ({"data": str(data)} if data else {})
    stated = federation.problem
    if kind is None and stated is None:
        said = "the file of the federation has none; give yours, as in --problem my_problem.py:make"
        raise BadExperiment(site.me.name, [Mistake("problem", said)])
    try:
        if kind is None and stated is not None:
            return at_site(stated, site.me.name, site.me.number, data, Path.cwd())
        return problem(given, Path.cwd())
    except ValidationError as error:
        place = lambda e: ".".join(["problem", *map(str, e["loc"])]) if kind is None else "problem"
        found = [Mistake(place(e), e["ctx"]["said"]) for e in error.errors()]
        raise BadExperiment(kind or site.me.name, found) from None


def built(part: "Part", site: str) -> "Problem":
    """Build the problem; errors about its rows name the site, which has no other agent."""
    from ..config.validation_errors import BadExperiment, Mistake

    try:
        made: Problem = part.build()
        for note in made.notes:
            talk(re.sub(r"^agent \d+", site, note), "dim")
        return made
    except ValueError as cause:
        said = str(cause).replace("agent 0's", f"{site}'s").replace("agent 0", site)
        raise BadExperiment(part.name, [Mistake("problem", said)]) from None


@contextmanager
def plainly() -> Iterator[None]:
    """Report errors as `reported` does, those of sites included."""
    with reported():
        installed()
        from ..peers.call_errors import Refused, Stopped
        from ..peers.edge_journal import DamagedJournal
        from ..peers.roster import BadBundle
        from ..peers.shutdown import Halted
        from ..peers.site_checkpoint import OtherRun
        from ..peers.timeouts import GaveUp

        try:
            yield
        except (FloatingPointError, Stopped) as error:
            talk(str(error), "red")
            raise typer.Exit(DIVERGED) from None
        except (BadBundle, OtherRun, DamagedJournal, Refused) as error:
            talk(str(error), "red")
            raise typer.Exit(BAD_INPUT) from None
        except Halted as error:
            talk(f"{error}; the same command goes on", "yellow")
            raise typer.Exit(INTERRUPTED) from None
        except GaveUp as error:
            talk(str(error), "red")
            raise typer.Exit(FAILED) from None
        except OSError as error:
            if error.filename is not None or type(error) is not OSError:
                raise
            said = (
                f"{error.strerror}: the folder of the run cannot be written to; make room or give "
                f"another --out, and the same command goes on from the last checkpoint"
            )
            talk(str(error) if error.errno is None else said, "red")
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt:
            talk("interrupted; the same command goes on from the checkpoint", "yellow")
            raise typer.Exit(INTERRUPTED) from None


@contextmanager
def private_files() -> Iterator[None]:
    """Create files readable by their owner only."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def installed() -> None:
    """Exit with an explanation if a package of the extra `net` is missing."""
    for name in ("cryptography", "msgpack"):
        if find_spec(name) is None:
            talk(f"{name} is missing: pip install 'diamond-bilevel[net]'", "red")
            raise typer.Exit(BAD_INPUT)


def digest_of(x: Any) -> str:
    """Compute the SHA-256 digest of x."""
    import hashlib

    import jax
    import numpy as np

    leaves = jax.tree.leaves(x)
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest()
