"""The Typer application, its exit codes and its error messages."""

import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ..metrics.display import talk, undisplayed

BEGUN = time.monotonic()  # start time of the command
FAILED, BAD_INPUT, DIVERGED, INTERRUPTED = 1, 2, 3, 130
CODES = (
    "Exit codes: 0 done, 1 failed, 2 bad input (all mistakes are listed), 3 a run diverged, "
    "130 interrupted (`diamond resume` goes on)."
)
PACKAGE = "diamond-bilevel"
# Packages beyond JAX and numpy that commands need, with the extra that installs each; "" means the
# package itself.
NEEDED = dict.fromkeys(("networkx", "pydantic", "rich", "safetensors", "scipy", "tomli_w"), "")
NEEDED |= {"matplotlib": "[plot]"}
NEEDED |= dict.fromkeys(("PIL", "platformdirs", "pooch", "tqdm"), "[data]")
NEEDED |= dict.fromkeys(("cryptography", "msgpack"), "[net]") | {"pyarrow": "[parquet]"}
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    """Print the version and exit."""
    if asked:
        from .._version import __version__

        typer.echo(f"diamond {__version__}")
        raise typer.Exit


@app.callback(epilog=CODES)
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Decentralized bilevel optimization: agents on a network, private data, no server."""


def emit(result: Any) -> None:
    """Print a result as JSON."""
    from ..records.strict_json import dumps

    typer.echo(dumps(result, indent=1))


@contextmanager
def reported() -> Iterator[None]:
    """Print bad input, failures and warnings as plain messages without tracebacks."""
    try:
        with undisplayed(), warnings.catch_warnings():  # commands show progress themselves
            warnings.showwarning = lambda message, *_, **__: talk(f"{message}", "yellow")
            yield
    except typer.Exit:
        raise
    except Exception as error:
        code = _tell(error)
        if code is None:
            raise
        raise typer.Exit(code) from None


def _tell(error: Exception) -> int | None:
    """Print the message of an error and return its exit code; None if the user did not cause it."""
    missing = (getattr(error, "name", None) or "").split(".")[0]
    if isinstance(error, ModuleNotFoundError) and missing in NEEDED:
        said = f"{missing} is not installed: pip install '{PACKAGE}{NEEDED[missing]}'"
        typer.echo(said, err=True)  # not by rich, which may be the missing package
        return FAILED
    from ..data import DataError
    from ..hardware.memory import TooLarge
    from ..records.folder_lock import Busy
    from ..records.folder_reader import DamagedRun
    from ..records.folder_recovery import Lost

    # Unless this module was imported, its error cannot have been raised. Importing it here could
    # fail, since pydantic may be missing.
    experiments = sys.modules.get("diamond.config.validation_errors")
    if experiments and isinstance(error, experiments.BadExperiment):
        count = len(error.mistakes)
        talk(f"{error.source}: {count} mistake{'s' * (count != 1)}", "bold red")
        for mistake in error.mistakes:
            talk(f"  {mistake}")
        return BAD_INPUT
    known = DataError, FileNotFoundError, FileExistsError, TooLarge, DamagedRun, Lost
    if isinstance(error, known):
        talk(str(error), "red")
        return BAD_INPUT
    if isinstance(error, Busy):
        talk(str(error), "red")
        return FAILED
    if isinstance(error, OSError) and error.filename is not None:
        talk(f"{error.filename}: {error.strerror}", "red")
        return BAD_INPUT if isinstance(error, NotADirectoryError) else FAILED
    return None
