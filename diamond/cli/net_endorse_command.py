"""The `net endorse` command: several stewards sign a roster in place of one authority."""

from pathlib import Path
from typing import Annotated

import typer

from ..metrics.display import print_message
from .app import Json, print_json
from .net_commands import net
from .net_site_setup import report_site_errors


@net.command()
def endorse(
    folder: Annotated[
        Path, typer.Argument(help="Folder with ca.pem, roster.json and roster.sig to be signed.")
    ],
    key: Annotated[
        Path | None, typer.Option(help="Key of a steward, request.key of `diamond net request`.")
    ] = None,
    add: Annotated[
        list[Path] | None,
        typer.Option(help="File roster.sig with signatures of other stewards; one option each."),
    ] = None,
    json: Json = False,
) -> None:
    """Sign a roster as one of its stewards, and collect the signatures of others."""
    with report_site_errors():
        from ..sites.identity.certificate_authority import endorse_roster
        from ..sites.identity.roster import SIGNATURE
        from ..sites.identity.stewards import read_signatures

        roster = endorse_roster(folder, key, add or ())
        count = len(read_signatures((folder / SIGNATURE).read_bytes()))
        last = roster.all_epochs[-1]
        members = [roster.members[i].name for i in last.members]
        if json:
            place = {"version": roster.version, "from_round": last.from_round, "members": members}
            print_json(place | {"signatures": count, "needed": roster.stewards})
            return
        typer.echo(
            f"roster {roster.version} of {roster.federation}, from round {last.from_round} on: "
            f"{', '.join(members)}; {count} of {roster.stewards} signatures"
        )
    if count < roster.stewards:
        print_message(f"send {folder / SIGNATURE} on to the other stewards")
    else:
        print_message(f"the roster is valid: copy {folder / SIGNATURE} beside every copy of it")
