"""The `demo --peers` command: five sites as processes over mutual TLS, one killed midway."""

import time
from pathlib import Path

import typer

from .app import FAILED, emit, talk
from .experiment_commands import start
from .net_site_setup import plainly

CLOSE = 1e-5  # relative difference from the simulation: float32 rounding over a hundred rounds


def demo_of_peers(out: Path, quiet: bool, json: bool) -> None:
    """Found a federation, run it, kill and restart a site, and compare with `diamond.simulate`."""
    with plainly():
        start()
        import jax

        from ..report import build
        from ..templates.sites_demo import ROUNDS, SITES, VICTIM, Demo, Failed

        begun = time.monotonic()
        say = lambda said: None if quiet else talk(f"{time.monotonic() - begun:5.1f} s  {said}")
        demo = Demo(out, say)
        demo.lay()
        say(f"{len(SITES)} sites founded in {demo.place}: {', '.join(SITES)}, on a ring")
        say(f"one process each, mutual TLS on loopback, {ROUNDS} rounds; {VICTIM} will be killed")
        try:
            demo.run()
        except Failed as error:
            talk(str(error), "red")
            raise typer.Exit(FAILED) from None
        say("all have finished; the same run by diamond.simulate, all rows in one process")
        with jax.enable_x64(False):
            gap = demo.difference()
        page = build([demo.folder], demo.folder / "report.html")
        if json:
            emit({"folder": str(demo.folder), "difference": gap, "report": str(page)})
        else:
            typer.echo(f"largest relative difference from diamond.simulate: {gap:.1e}")
            typer.echo(f"report: {page}\nruns:   {demo.folder}")
        if not gap <= CLOSE:
            talk(f"more than rounding explains ({CLOSE:g})", "red")
            raise typer.Exit(FAILED)
