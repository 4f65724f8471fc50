"""The `net renew` command: new keys for the sites of a federation."""

from pathlib import Path
from typing import Annotated

import typer

from ..metrics.display import print_message
from .app import Json, print_json
from .net_commands import net, print_missing_signatures
from .net_site_setup import report_site_errors

Days = Annotated[int, typer.Option(min=1, help="Validity of the certificates in days.")]
OverlapHours = Annotated[
    float, typer.Option("--overlap", min=0, help="Hours for which the old keys are accepted too.")
]
Revoke = Annotated[
    bool, typer.Option("--revoke", help="Reject the old keys at once, as for a stolen key.")
]


@net.command()
def renew(
    folder: Annotated[Path, typer.Argument(help="Folder that `diamond net init` created.")],
    site: Annotated[str | None, typer.Option(help="Site to renew. Default: all sites.")] = None,
    days: Days = 365,
    overlap: OverlapHours = 24.0,
    revoke: Revoke = False,
    json: Json = False,
) -> None:
    """Issue new keys, certificates and a roster that lists them; running sites take them up."""
    with report_site_errors():
        from ..sites.identity.certificate_authority import renew_keys

        hours = 0.0 if revoke else overlap
        bundles = renew_keys(folder, site, days, 3600 * hours)
        print_renewal(folder, bundles, hours, json)


def print_renewal(folder: Path, bundles: dict[str, Path], hours: float, json: bool) -> None:
    """Print where the new files are, and what to do; old keys are valid for some hours."""
    from ..sites.identity.roster import ROSTER, decode_roster

    roster = decode_roster((folder / ROSTER).read_bytes())
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
    print_missing_signatures(roster.stewards, folder)
    names = list(roster.relays)
    if names:
        print_message(f"relays too: {', '.join(names)}")
    when = f"{hours:g} hours from now" if hours else "at once"
    print_message(
        f"a running site uses its new files seconds after they are copied, without a restart; "
        f"sites that have the roster reject the old keys {when}"
    )
