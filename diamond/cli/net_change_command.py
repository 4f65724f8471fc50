"""The `net change` command: sites join and leave a running federation."""

from pathlib import Path
from typing import Annotated

import typer

from ..metrics.display import print_message
from .app import Json, print_json
from .net_commands import net, print_missing_signatures
from .net_site_setup import report_site_errors


@net.command()
def change(
    folder: Annotated[Path, typer.Argument(help="Folder that `diamond net init` created.")],
    file: Annotated[
        Path,
        typer.Argument(help="TOML file of the federation, with its new [sites] and network."),
    ],
    from_round: Annotated[int, typer.Option(min=1, help="First round with the new members.")],
    rewind: Annotated[
        bool,
        typer.Option(
            "--rewind",
            help="Return to the checkpoints of that round, to remove a site that has gone.",
        ),
    ] = False,
    request: Annotated[
        list[Path] | None,
        typer.Option(help="Request of a site that joins with a key of its own; one option each."),
    ] = None,
    rejoin: Annotated[
        list[str] | None,
        typer.Option(
            help="Member that leaves and joins again, listed last, after a loss of its run folder "
            "or with other rows; one option each."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Sign a roster with other members from a round on; a running site passes it on to all."""
    with report_site_errors():
        from ..config.federation_file import load
        from ..config.validation_errors import BadExperiment, Mistake, value_errors_as_mistakes
        from ..sites.identity.private_keys import read_request
        from ..sites.identity.roster import ROSTER, decode_roster, load_roster
        from ..sites.identity.roster_changes import change_members

        federation, old = load(file), load_roster(folder)
        terms = federation.terms()
        changed = [
            name
            for name in sorted({*terms, *old.terms})
            if name != "network" and terms.get(name) != old.terms.get(name)
        ]
        if changed:
            message = "cannot change while the run goes on; only sites, relays and network can"
            raise BadExperiment(str(file), [Mistake(name, message) for name in changed])
        network = federation.build_network(), terms["network"]
        with value_errors_as_mistakes(str(file)):
            requests = [read_request(path) for path in request or ()]
            bundles = change_members(
                folder,
                federation.sites,
                *network,
                from_round,
                federation.relays,
                rewind,
                requests,
                rejoin or (),
                federation.read_authorities(file.parent),
                federation.site_subjects(),
            )
        roster = decode_roster((folder / ROSTER).read_bytes())
        before, after = (
            {roster.members[i].name for i in epoch.members} for epoch in roster.epochs[-2:]
        )
        leaving = sorted(before - after)
        if json:
            places = {name: str(path) for name, path in bundles.items()}
            print_json({"version": roster.version, "bundles": places, "leaving": leaving})
            return
        for name, path in bundles.items():
            typer.echo(f"{name}: {path}")
        print_message(
            f"roster version {roster.version} holds from round {from_round}; copy roster.json and "
            f"roster.sig of {folder} into the bundle of one running site, which passes them on"
        )
        print_missing_signatures(roster.stewards, folder)
        for name in bundles:
            print_message(f"{name} joins: copy its folder there, then  diamond net start BUNDLE")
        if leaving:
            print_message(f"after that round, {', '.join(leaving)} will have left")
