"""Where a run is computed: on which devices, in how many processes."""

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
    """The change of an experiment that --devices and --hosts stand for."""
    chosen = devices or ("all" if hosts else "")
    if not chosen:
        return []
    return [f"devices={chosen}" if chosen.isdigit() else f'devices="{chosen}"']


def recorded(folder: Path) -> Any:
    """The devices that the run in `folder` was begun on."""
    try:
        return tomllib.loads((folder / "config.toml").read_text()).get("devices")
    except (OSError, ValueError):
        return None  # what is wrong is said when the folder is opened


def show_cores(devices: Any) -> None:
    """Have JAX show every core as a device, if that is what is asked for; before its first use."""
    if devices == "cores":
        import jax

        from ..machine.cores import cores

        jax.config.update("jax_num_cpu_devices", len(cores()))


@contextmanager
def joined(hosts: str, rank: int | None, size: int | None) -> Iterator[None]:
    """As one of several processes, if asked to be: one that is lost ends this one, with a word."""
    if not hosts:
        if rank is not None or size is not None:
            talk("--rank and --size go with --hosts: where does process 0 listen?", "red")
            raise typer.Exit(BAD_INPUT)
        yield
        return
    import jax

    from ..engine.hosts import join

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
        os._exit(FAILED)  # the goodbye of jax.distributed would wait for the lost one


def _keep_the_output_clean() -> None:
    """What libraries print themselves goes to the error output; ours stays where it was."""
    sys.stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)


def leading() -> bool:
    """Whether this process writes and speaks."""
    from ..engine.hosts import first

    return first()
