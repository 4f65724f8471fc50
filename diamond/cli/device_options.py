"""Devices and processes that a run uses."""

import os
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from ..metrics.display import print_message
from .app import BAD_INPUT, FAILED


def device_changes(devices: str, hosts: str) -> list[str]:
    """Return the change of the experiment that --devices and --hosts stand for."""
    selection = devices or ("all" if hosts else "")
    if not selection:
        return []
    return [f"devices={selection}" if selection.isdigit() else f'devices="{selection}"']


def recorded_devices(folder: Path) -> Any:
    """Read the devices that the run in `folder` was started on."""
    try:
        return tomllib.loads((folder / "config.toml").read_text()).get("devices")
    except (OSError, ValueError):
        return None  # opening the folder later reports the cause


def expose_cores(devices: Any) -> None:
    """Make JAX show every core as a device if `devices` is "cores"; call before using JAX."""
    if devices == "cores":
        import jax

        from ..hardware.cores import available_cores

        jax.config.update("jax_num_cpu_devices", len(available_cores()))


@contextmanager
def join_processes(hosts: str, rank: int | None, size: int | None) -> Iterator[None]:
    """Join the job as one of several processes, if --hosts is given.

    If another process of the job is lost, this process exits with an explanation.
    """
    if not hosts:
        if rank is not None or size is not None:
            print_message(
                "--rank and --size need --hosts HOST:PORT, the address of process 0", "red"
            )
            raise typer.Exit(BAD_INPUT)
        yield
        return
    import jax

    from ..engine.multi_host import join

    has_address = hosts != "auto"
    if has_address and (rank is None or size is None or ":" not in hosts):
        print_message(
            "--hosts HOST:PORT needs --rank and --size; under a launcher, use --hosts auto", "red"
        )
        raise typer.Exit(BAD_INPUT)
    _redirect_library_output()
    join(hosts if has_address else None, rank, size)
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        reason = str(error).splitlines()[0]
        print_message(
            f"another process of this job was lost ({reason}); start all processes again with "
            f"`diamond resume`, on any number of devices",
            "red",
        )
        os._exit(FAILED)  # jax.distributed's shutdown would wait for the lost process


def _redirect_library_output() -> None:
    """Redirect the output of libraries to stderr; the command's own output stays on stdout."""
    sys.stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)


def is_first_process() -> bool:
    """Return whether this process writes files and prints messages."""
    from ..engine.multi_host import is_first_process

    return is_first_process()
