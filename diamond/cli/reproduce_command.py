"""The `reproduce` command: the experiments of the paper."""

from pathlib import Path
from typing import Annotated

import typer

from .app import Json, app, emit, reported

FIGURES = ("fig1", "fig2", "fig3", "fig4")
Data = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the data sets. Default: the usual locations.", envvar="DIAMOND_DATA"
    ),
]
Out = Annotated[Path, typer.Option(help="Folder of the numbers, tables and figures.")]


@app.command()
def reproduce(
    figure: Annotated[str, typer.Argument(help="Figure: fig1, fig2, fig3, fig4 or all.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Run a small version that takes minutes on two cores.")
    ] = False,
    constants: Annotated[
        str, typer.Option(help="Step-size constants: tuned, loss or published.")
    ] = "tuned",
    data: Data = None,
    out: Out = Path("runs/reproduce"),
    json: Json = False,
) -> None:
    """Run an experiment of the paper on the real data: table, figure and all numbers."""
    from rich.console import Console

    from ..hardware.compilation_cache import compile_cache

    if figure != "all" and figure not in FIGURES:
        raise typer.BadParameter(f"no figure {figure!r}; there are {', '.join(FIGURES)} and all")
    if constants not in ("tuned", "loss", "published"):
        raise typer.BadParameter(f"no constants {constants!r}; there are tuned, loss, published")
    compile_cache()
    from ..reproduce import paper_commands
    from ..reproduce.paper_case import FULL, QUICK

    scale = QUICK if quick else FULL
    given = scale, constants, out, data, Console(stderr=json)
    with reported():
        names = FIGURES if figure == "all" else (figure,)
        made = [paper_commands.reproduce(name, *given) for name in names]
    if json:
        emit({"figures": made})
