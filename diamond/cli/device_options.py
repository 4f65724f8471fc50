"""Devices and processes that a run uses."""

import os
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from .app import BAD_INPUT, FAILED, talk


def asked_for(devices: str, hosts: str) -> list[str]:
    """Return the change of the experiment that --devices and --hosts stand for."""
    chosen = devices or ("all" if hosts else "")
    if not chosen:
        return []
    return [f"devices={chosen}" if chosen.isdigit() else f'devices="{chosen}"']


def recorded(folder: Path) -> Any:
    """Read the devices that the run in `folder` was started on."""
    try:
        return tomllib.loads((folder / "config.toml").read_text()).get("devices")
    except (OSError, ValueError):
        return None  # opening the folder later reports the cause


def show_cores(devices: Any) -> None:
    """Make JAX show every core as a device if `devices` is "cores"; call before using JAX."""
    if devices == "cores":
        import jax

        from ..hardware.cores import cores

        jax.config.update("jax_num_cpu_devices", len(cores()))


@contextmanager
def joined(hosts: str, rank: int | None, size: int | None) -> Iterator[None]:
    """Join the job as one of several processes, if --hosts is given.

    If another process of the job is lost, this process exits with an explanation.
    """
    if not hosts:
        if rank is not None or size is not None:
            talk("--rank and --size go with --hosts: where does process 0 listen?", "red")
            raise typer.Exit(BAD_INPUT)
        yield
        return
    import jax

    from ..engine.multi_host import join

    known = hosts != "auto"
    if known and (rank is None or size is None or ":" not in hosts):
        talk("--hosts HOST:PORT takes --rank and --size too; under a launcher, say auto", "red")
        raise typer.Exit(BAD_INPUT)
    _keep_the_output_clean()
    join(hosts if known else None, rank, size)
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        reason = str(error).splitlines()[0]
        talk(
            f"another process of this job is lost ({reason}); start all of them again with "
            f"`diamond resume`, on as many devices as you like",
            "red",
        )
        os._exit(FAILED)  # jax.distributed's shutdown would wait for the lost process


def _keep_the_output_clean() -> None:
    """Redirect the output of libraries to stderr; the command's own output stays on stdout."""
    sys.stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)


def leading() -> bool:
    """Return whether this process writes files and prints messages."""
    from ..engine.multi_host import first

    return first()
