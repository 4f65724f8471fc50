"""The `reproduce` command: the experiments of the paper."""

from pathlib import Path
from typing import Annotated

import typer

from .app import Json, app, print_json, report_errors
from .inspect_commands import DataFolder
from .plan_execution import prepare_jax

FIGURES = ("fig1", "fig2", "fig3", "fig4")


@app.command()
def reproduce(
    figure: Annotated[str, typer.Argument(help="Figure: fig1, fig2, fig3, fig4 or all.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Run a small version that takes minutes on two cores.")
    ] = False,
    constants: Annotated[
        str,
        typer.Option(
            help="Step-size constants: smallest metric among near-best losses (tuned), smallest "
            "loss (loss), or as in the paper (published)."
        ),
    ] = "tuned",
    data: DataFolder = None,
    out: Annotated[Path, typer.Option(help="Folder of the numbers, tables and figures.")] = Path(
        "runs/reproduce"
    ),
    json: Json = False,
) -> None:
    """Run an experiment of the paper on the real data: table, figure and all numbers."""
    from rich.console import Console

    if figure != "all" and figure not in FIGURES:
        raise typer.BadParameter(f"no figure {figure!r}; there are {', '.join(FIGURES)} and all")
    if constants not in ("tuned", "loss", "published"):
        raise typer.BadParameter(f"no constants {constants!r}; there are tuned, loss, published")
    prepare_jax()
    from ..reproduce import paper_commands
    from ..reproduce.paper_case import FULL, QUICK

    scale = QUICK if quick else FULL
    settings = scale, constants, out, data, Console(stderr=json)
    with report_errors():
        names = FIGURES if figure == "all" else (figure,)
        results = [paper_commands.reproduce(name, *settings) for name in names]
    if json:
        print_json({"figures": results})
