"""The commands `net request` and `net sign`: keys that never leave their sites."""

from pathlib import Path
from typing import Annotated

import typer

from ..metrics.display import print_message
from .app import Json, print_json
from .net_commands import (
    NewFolder,
    Stewards,
    Threshold,
    chosen_stewards,
    load_federation,
    net,
    print_bundles,
)
from .net_renew_command import Days, OverlapHours, Revoke, print_renewal
from .net_site_setup import report_site_errors


@net.command()
def request(
    folder: Annotated[
        Path, typer.Argument(help="Folder of this site's bundle; created if there is none.")
    ],
    site: Annotated[str, typer.Option(help="Name of this site, as in the federation's file.")],
    encrypt: Annotated[
        bool,
        typer.Option(
            "--encrypt",
            help="Encrypt the key by the passphrase in the file that DIAMOND_KEY_PASSPHRASE_FILE "
            "names; without the variable it is asked for.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Make a key of this site, which stays here, and a request that the authority signs."""
    with report_site_errors():
        from ..sites.identity.private_keys import create_request, given_passphrase

        passphrase = None
        if encrypt:
            passphrase = given_passphrase() or typer.prompt(
                "passphrase", hide_input=True, confirmation_prompt=True
            )
        path = create_request(folder, site, passphrase)
        if json:
            print_json({"site": site, "request": str(path)})
            return
        typer.echo(str(path))
    print_message("send this file to the authority; it has no secret. The key stays in the folder")
    print_message(f"copy the files that come back into {folder}")


@net.command()
def sign(
    federation: Annotated[
        Path,
        typer.Argument(
            help="TOML file of a federation to found, or the folder of a founded one, whose sites "
            "renew their keys."
        ),
    ],
    requests: Annotated[
        list[Path], typer.Argument(help="Files of `diamond net request`.", show_default=False)
    ],
    out: NewFolder = None,
    days: Days = 365,
    overlap: OverlapHours = 24.0,
    revoke: Revoke = False,
    steward: Stewards = None,
    threshold: Threshold = 0,
    json: Json = False,
) -> None:
    """Sign certificates of keys that sites have made, and the roster that lists them."""
    with report_site_errors():
        from ..sites.identity import certificate_authority as authority
        from ..sites.identity.private_keys import read_request

        wanted = [read_request(path) for path in requests]
        if federation.is_dir():
            hours = 0.0 if revoke else overlap
            bundles = authority.renew_keys(federation, None, days, 3600 * hours, wanted)
            print_renewal(federation, bundles, hours, json)
            return
        terms = load_federation(federation, out)
        folder, chosen = out or Path(terms.name), chosen_stewards(steward, threshold)
        bundles = authority.create_federation(
            folder,
            terms.name,
            terms.sites,
            terms.build_network(),
            terms.terms(),
            terms.relays,
            wanted,
            terms.read_authorities(federation.parent),
            terms.site_subjects(),
            chosen,
        )
    next_steps = (
        f"copy the files of each folder to its site, beside its key: they have no secret. "
        f"Keep {folder}/ca.key here"
    )
    signatures = chosen.threshold if chosen else 0
    print_bundles(terms, folder, bundles, [next_steps], json, signatures)
