"""The `net renew` command: new keys for the sites of a federation."""

from pathlib import Path
from typing import Annotated

import typer

from .app import Json, print_json, print_message
from .net_commands import net
from .net_site_setup import report_site_errors


@net.command()
def renew(
    folder: Annotated[Path, typer.Argument(help="Folder that `diamond net init` created.")],
    site: Annotated[str | None, typer.Option(help="Site to renew. Default: all sites.")] = None,
    days: Annotated[int, typer.Option(min=1, help="Validity of the certificates in days.")] = 365,
    json: Json = False,
) -> None:
    """Issue new keys, certificates and a roster that lists them; the old keys are rejected."""
    with report_site_errors():
        from ..peers.certificate_authority import renew_keys
        from ..peers.roster import load_roster

        bundles = renew_keys(folder, site, days)
        roster = load_roster(folder)
        if json:
            places = {name: str(path) for name, path in bundles.items()}
            print_json({"version": roster.version, "bundles": places})
            return
        for name, path in bundles.items():
            typer.echo(f"{name}: {path}")
        others = [member.name for member in roster.members if member.name not in bundles]
        print_message(
            f"roster version {roster.version}; copy each folder to its site over a secure channel"
        )
        if others:
            print_message(
                f"{', '.join(others)}: roster.json and roster.sig of their folders are enough"
            )
        print_message(
            "sites use the new roster after a restart; until all sites have it, they wait"
        )
