"""Helpers that the `diamond net` commands share: bundle, problem and errors of a site."""

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..metrics.display import print_message
from .app import BAD_INPUT, DIVERGED, FAILED, INTERRUPTED, report_errors

if TYPE_CHECKING:
    from ..config.components import Component
    from ..config.federation_file import Federation
    from ..problem import Problem
    from ..sites.identity.roster import Bundle

BundleFolder = Annotated[
    Path, typer.Argument(help="Folder of this site's bundle, from `diamond net init`.")
]
DataFile = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="File with the rows of this site, passed to the problem as `data`. Default: the file "
        "that the federation names.",
    ),
]
ConnectSeconds = Annotated[
    float, typer.Option(help="Seconds to wait for a connection to a neighbour.")
]
RunsFolder = Annotated[Path, typer.Option(help="Folder of runs, as given to `net start`.")]
OwnAddress = Annotated[
    str | None,
    typer.Option(
        "--listen",
        help="Address at which this site listens. Default: the roster's, or the one that `net "
        "start` wrote into the bundle.",
    ),
]


@contextmanager
def load_site(bundle: Path) -> "Iterator[tuple[Bundle, Federation]]":
    """Load the bundle and its federation, and set the precision of JAX to the federation's."""
    import jax

    from ..config.federation_file import from_terms
    from ..hardware.compilation_cache import enable_compile_cache
    from ..sites.identity.roster import check_expiry, load_bundle
    from ..sites.identity.site_names import replace_agent_numbers

    enable_compile_cache()
    site = load_bundle(bundle)
    if warning := check_expiry(site):
        print_message(warning, "yellow")
    roster = site.roster
    sites = {member.name: member.address for member in roster.founders}
    federation = from_terms(
        roster.federation, roster.terms, sites, roster.all_relays, is_checked=bool(roster.epochs)
    )
    names = {member.number: member.name for member in site.roster.members}
    with jax.enable_x64(federation.precision == "float64"), warnings.catch_warnings():
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = lambda message, *_, **__: print_message(
            replace_agent_numbers(str(message), names), "yellow"
        )
        yield site, federation


def site_problem(
    kind: str | None, data: Path | None, site: "Bundle", federation: "Federation"
) -> "Component":
    """Return the problem of the user's function or of the federation's file, on the site's rows."""
    from pydantic import ValidationError

    from ..config.problem_section import read_problem
    from ..config.site_problem import read_site_problem
    from ..config.validation_errors import BadExperiment, Mistake

    table = {"kind": kind} | ({"data": str(data)} if data else {})
    federated_problem = federation.problem
    if kind is None and federated_problem is None:
        message = "the federation's file has none; give yours, as in --problem my_problem.py:make"
        raise BadExperiment(site.me.name, [Mistake("problem", message)])
    try:
        if kind is None and federated_problem is not None:
            return read_site_problem(
                federated_problem, site.me.name, site.me.number, data, base=Path.cwd()
            )
        return read_problem(table, Path.cwd())
    except ValidationError as error:
        key = lambda e: ".".join(["problem", *map(str, e["loc"])]) if kind is None else "problem"
        mistakes = [Mistake(key(e), e["ctx"]["message"]) for e in error.errors()]
        raise BadExperiment(kind or site.me.name, mistakes) from None


def build_problem(component: "Component", site: str) -> "Problem":
    """Build the problem; errors about its rows name the site, which has no other agent."""
    from ..config.validation_errors import BadExperiment, Mistake

    try:
        problem: Problem = component.build()
        for note in problem.notes:
            print_message(re.sub(r"^agent \d+", site, note), "dim")
        return problem
    except ValueError as cause:
        message = str(cause).replace("agent 0's", f"{site}'s").replace("agent 0", site)
        raise BadExperiment(component.name, [Mistake("problem", message)]) from None


@contextmanager
def report_site_errors() -> Iterator[None]:
    """Report errors as `report_errors` does, those of sites included."""
    with report_errors():
        require_net_packages()
        from ..privacy.ledger import BudgetExhausted, LedgerMismatch
        from ..privacy.private_runs import PrivacyRefusal
        from ..records.write_check import DiskFull
        from ..sites.identity.private_keys import BadBundle
        from ..sites.memory.edge_journal import DamagedJournal
        from ..sites.memory.site_checkpoint import OtherRun
        from ..sites.rounds.shutdown import Halted
        from ..sites.transport.errors import Refused, RunFailed
        from ..sites.transport.timeouts import NeighbourTimeout
        from ..sites.trust.equivocation_proof import BadProof

        try:
            yield
        except (FloatingPointError, RunFailed) as error:
            print_message(str(error), "red")
            raise typer.Exit(DIVERGED) from None
        except (
            BadBundle,
            OtherRun,
            DamagedJournal,
            BadProof,
            Refused,
            LedgerMismatch,
            PrivacyRefusal,
        ) as error:
            print_message(str(error), "red")
            raise typer.Exit(BAD_INPUT) from None
        except Halted as error:
            print_message(f"{error}; run the same command again to continue", "yellow")
            raise typer.Exit(INTERRUPTED) from None
        except (BudgetExhausted, NeighbourTimeout) as error:
            print_message(str(error), "red")
            raise typer.Exit(FAILED) from None
        except OSError as error:
            is_unnamed = error.filename is None and type(error) is OSError
            if not isinstance(error, DiskFull) and not is_unnamed:
                raise
            place = "" if is_unnamed else f"{error.filename}: "
            message = (
                f"{place}{error.strerror}: the folder of the run cannot be written to; free some "
                f"space or give another --out, then run the command again to continue from the "
                f"checkpoint"
            )
            print_message(str(error) if error.errno is None else message, "red")
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt:
            print_message(
                "interrupted; run the same command again to continue from the checkpoint", "yellow"
            )
            raise typer.Exit(INTERRUPTED) from None


@contextmanager
def lock_bundle(bundle: Path, federation: "Federation") -> Iterator[None]:
    """Lock the bundle, so that one process runs the site; a private site must write there."""
    from ..privacy.ledger import LedgerMismatch
    from ..records.folder_lock import acquire_lock

    lock: AbstractContextManager[object] = nullcontext()
    try:
        lock = acquire_lock(bundle / "site.lock")
    except OSError as cause:
        if federation.privacy is not None:
            raise LedgerMismatch(
                f"{bundle} cannot be written to ({cause.strerror}), and a private site has its "
                f"ledger there, beside its key: make the folder writable"
            ) from None
    with lock:
        yield


@contextmanager
def private_files() -> Iterator[None]:
    """Create files readable by their owner only."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def require_net_packages() -> None:
    """Exit with an explanation if a package of the extra `net` is missing."""
    for name in ("cryptography", "msgpack"):
        if find_spec(name) is None:
            print_message(f"{name} is missing: pip install 'diamond-bilevel[net]'", "red")
            raise typer.Exit(BAD_INPUT)


def compute_digest(x: Any) -> str:
    """Compute the SHA-256 digest of x."""
    import hashlib

    import jax
    import numpy as np

    leaves = jax.tree.leaves(x)
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest()
