"""The `demo --peers` command: five sites as processes over mutual TLS, one killed midway."""

import time
from pathlib import Path

import typer

from ..metrics.display import print_message
from .app import FAILED, print_json
from .net_site_setup import report_site_errors
from .plan_execution import prepare_jax

MAX_DIFFERENCE = (
    1e-5  # relative difference from the simulation: float32 rounding over a hundred rounds
)


def demo_of_sites(out: Path, quiet: bool, json: bool) -> None:
    """Found a federation, run it, kill and restart a site, and compare with `diamond.simulate`."""
    with report_site_errors():
        prepare_jax()
        import jax

        from ..report import build
        from ..templates.sites_demo import KILLED_SITE, ROUNDS, SITES, SiteFailed, SitesDemo

        started = time.monotonic()
        log = lambda message: (
            None if quiet else print_message(f"{time.monotonic() - started:5.1f} s  {message}")
        )
        demo = SitesDemo(out, log)
        demo.write_files()
        log(f"{len(SITES)} sites on a ring, in {demo.federation_folder}: {', '.join(SITES)}")
        log(f"one process each, mutual TLS, {ROUNDS} rounds; {KILLED_SITE} will be killed")
        try:
            demo.run()
        except SiteFailed as error:
            print_message(str(error), "red")
            raise typer.Exit(FAILED) from None
        log("all sites have finished; now the same run by diamond.simulate, in one process")
        with jax.enable_x64(False):
            difference = demo.difference()
        page = build([demo.folder], demo.folder / "report.html")
        if json:
            print_json({"folder": str(demo.folder), "difference": difference, "report": str(page)})
        else:
            typer.echo(f"largest relative difference from diamond.simulate: {difference:.1e}")
            typer.echo(f"report: {page}\nruns:   {demo.folder}")
        if not difference <= MAX_DIFFERENCE:
            print_message(f"more than rounding explains ({MAX_DIFFERENCE:g})", "red")
            raise typer.Exit(FAILED)
