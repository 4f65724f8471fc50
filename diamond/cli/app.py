"""The Typer application, its exit codes and its error messages."""

import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core.suggestions import did_you_mean
from ..metrics.display import print_message, suppress_display

STARTED = time.monotonic()  # start time of the command
FAILED, BAD_INPUT, DIVERGED, INTERRUPTED = 1, 2, 3, 130
EXIT_CODES = (
    "Exit codes: 0 success, 1 failure, 2 bad input (all mistakes are listed), 3 a run diverged, "
    "130 interrupted (`diamond resume` continues a run)."
)
PACKAGE = "diamond-bilevel"
# Packages beyond JAX and numpy that commands need, with the extra that installs each; "" means the
# package itself.
EXTRA_BY_PACKAGE = dict.fromkeys(
    ("networkx", "pydantic", "rich", "safetensors", "scipy", "tomli_w"), ""
)
EXTRA_BY_PACKAGE |= {"matplotlib": "[plot]"}
EXTRA_BY_PACKAGE |= dict.fromkeys(("PIL", "platformdirs", "pooch", "tqdm"), "[data]")
EXTRA_BY_PACKAGE |= dict.fromkeys(("cryptography", "msgpack", "prometheus_client"), "[net]")
EXTRA_BY_PACKAGE |= {"pyarrow": "[parquet]"}
REMEDIES: dict[type[OSError], str] = {
    FileNotFoundError: "; check the path",
    FileExistsError: ", and is no folder; give another path",
    NotADirectoryError: "; give the path of a folder",
    IsADirectoryError: "; give the path of a file",
}
Port = Annotated[
    int, typer.Option(help="Port on loopback; 0 selects a free port.", min=0, max=65535)
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]

PICTURE_FORMATS = ("png", "pdf", "svg", "jpg", "jpeg", "eps", "ps", "tif", "tiff", "webp")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_requested: bool) -> None:
    """Print the version and exit."""
    if is_requested:
        from .._version import __version__

        typer.echo(f"diamond {__version__}")
        raise typer.Exit


@app.callback(epilog=EXIT_CODES)
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Decentralized bilevel optimization: agents on a network, private data, no server.

    Start with `diamond demo`, or write an experiment with `diamond new` and run it.
    """


def check_picture(path: Path) -> Path:
    """Reject a picture whose format cannot be drawn, before the work that it shows."""
    if (kind := path.suffix.lower()[1:]) not in PICTURE_FORMATS:
        raise typer.BadParameter(
            f"{path}: no format {kind!r}; {did_you_mean(kind, PICTURE_FORMATS)}"
        )
    return path


def print_json(result: Any) -> None:
    """Print a result as JSON."""
    from ..records.strict_json import dumps

    typer.echo(dumps(result, indent=1))


@contextmanager
def report_errors() -> Iterator[None]:
    """Print bad input, failures and warnings as plain messages without tracebacks."""
    try:
        with suppress_display(), warnings.catch_warnings():  # commands show progress themselves
            warnings.showwarning = lambda message, *_, **__: print_message(f"{message}", "yellow")
            yield
    except typer.Exit:
        raise
    except Exception as error:
        code = _report_error(error)
        if code is None:
            raise
        raise typer.Exit(code) from None


def _report_error(error: Exception) -> int | None:
    """Print the message of an error and return its exit code; None if the user did not cause it."""
    package = (getattr(error, "name", None) or "").split(".")[0]
    if isinstance(error, ModuleNotFoundError) and package in EXTRA_BY_PACKAGE:
        message = f"{package} is not installed: pip install '{PACKAGE}{EXTRA_BY_PACKAGE[package]}'"
        typer.echo(message, err=True)  # not by rich, which may be the missing package
        return FAILED
    from ..data import DataError
    from ..hardware.device_memory import TooLarge
    from ..records.checkpoint_file import DamagedCheckpoint
    from ..records.folder_lock import FolderBusy
    from ..records.folder_reader import DamagedRun
    from ..records.folder_recovery import UnrecoverableRun
    from ..records.write_check import DiskFull

    # Unless this module was imported, its error cannot have been raised. Importing it here could
    # fail, since pydantic may be missing.
    validation_errors = sys.modules.get("diamond.config.validation_errors")
    if validation_errors and isinstance(error, validation_errors.BadExperiment):
        count = len(error.mistakes)
        print_message(f"{error.source}: {count} mistake{'s' * (count != 1)}", "bold red")
        for mistake in error.mistakes:
            print_message(f"  {mistake}")
        return BAD_INPUT
    if isinstance(error, DiskFull):
        print_message(
            f"{error.filename}: {error.strerror}: free some space, then `diamond resume` continues "
            f"the run from its last checkpoint",
            "red",
        )
        return FAILED
    if isinstance(error, OSError) and error.errno is not None:  # of the system, not of the package
        remedy = next((text for kind, text in REMEDIES.items() if isinstance(error, kind)), "")
        place = "" if error.filename is None else f"{error.filename}: "
        is_plain = error.strerror == os.strerror(error.errno)  # other messages have a remedy
        print_message(f"{place}{error.strerror}{remedy * is_plain}", "red")
        return BAD_INPUT if remedy else FAILED
    bad_input = (*REMEDIES, DataError, TooLarge, DamagedRun, DamagedCheckpoint, UnrecoverableRun)
    if isinstance(error, (*bad_input, FolderBusy)):
        print_message(str(error), "red")
        return BAD_INPUT if isinstance(error, bad_input) else FAILED
    return None
