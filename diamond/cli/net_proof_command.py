"""The `net proof` command: verify a proof that a site told different neighbours other things."""

from pathlib import Path
from typing import Annotated

import typer

from ..metrics.display import print_message
from .app import FAILED, Json, print_json
from .net_commands import net
from .net_site_setup import report_site_errors


@net.command()
def proof(
    file: Annotated[Path, typer.Argument(help="Proof, from the folder `proofs` of a run folder.")],
    authority: Annotated[
        Path,
        typer.Argument(
            help="The federation's certificate, `ca.pem`, or a bundle or folder that has it."
        ),
    ],
    json: Json = False,
) -> None:
    """Verify offline that a site signed two different messages for one exchange."""
    with report_site_errors():
        from ..sites.identity.roster import CA
        from ..sites.trust.equivocation_proof import BadProof, read_proof

        certificate = (authority / CA if authority.is_dir() else authority).read_bytes()
        try:
            evidence, _ = read_proof(file, certificate)
        except BadProof as error:
            print_message(f"proves nothing: {error}", "red")
            raise typer.Exit(FAILED) from None
        if json:
            statements = [evidence.first, evidence.second]
            print_json(
                {
                    "site": evidence.site,
                    "run": evidence.first.run,
                    "exchange": evidence.first.exchange,
                    "version": evidence.first.version,
                    "digests": [statement.digest.hex() for statement in statements],
                }
            )
        else:
            typer.echo(f"proven: {evidence.describe()}")
