"""network and data: what an experiment is made of, looked at before it is run."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .app import Json, app, emit, reported

Data = Annotated[Path | None, typer.Option(help="Folder of the data sets.", envvar="DIAMOND_DATA")]


@app.command()
def network(
    spec: Annotated[str, typer.Argument(help="er:9,p=0.3,seed=0, ring:5, torus:3x3, ...")],
    picture: Annotated[Path, typer.Option(help="Where to draw it.")] = Path("network.png"),
    json: Json = False,
) -> None:
    """Draw a network; say how fast it mixes, and that its matrix is one."""
    with reported():
        from ..config.previews import network_of
        from ..network.draw import draw

        made, numbers = network_of(spec)
        numbers["picture"] = str(draw(made, picture))
        if json:
            emit(numbers)
        else:
            typer.echo(str(made))
            for name, value in numbers.items():
                typer.echo(f"{name.replace('_', ' ')}: {_said(value)}")


@app.command()
def data(
    dataset: Annotated[
        list[str] | None, typer.Argument(help="digits, mnist, ..., a file, or a file a site.")
    ] = None,
    agents: Annotated[int | None, typer.Option(help="How many share it; 9, or the sites.")] = None,
    partition: Annotated[
        str | None,
        typer.Option(help="As in a file: iid, by_label:shards=2, dirichlet:concentration=0.3, ..."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the partition.")] = 0,
    label: Annotated[str, typer.Option(help="The column of labels, of a table.")] = "label",
    site: Annotated[str | None, typer.Option(help="The column of sites, of a table.")] = None,
    features: Annotated[
        list[str] | None,
        typer.Option(help="Columns to use, as in age,dose, or one by one; all others by default."),
    ] = None,
    hashed: Annotated[
        int | None, typer.Option(help="Words of the text become so many features.", min=1)
    ] = None,
    text: Annotated[str, typer.Option(help="The column of text, of a table.")] = "text",
    missing_values: Annotated[
        str, typer.Option(help="Of cells without a value: refuse, drop, mean, or a number.")
    ] = "refuse",
    real: Annotated[bool, typer.Option("--real", help="Labels are numbers to regress on.")] = False,
    folder: Data = None,
    json: Json = False,
) -> None:
    """Which data sets are found where; for one of them, what each agent would get."""
    with reported():
        from ..config.previews import data_at_hand, dealt_out

        if not dataset:
            found = data_at_hand(folder)
            if json:
                emit(found)
            else:
                for name, place in found.items():
                    typer.echo(f"{name:9} {place or 'not found; downloaded when first used'}")
            return
        parts = [name.strip() for given in features or () for name in given.split(",")]
        columns = None if features is None else list(filter(None, parts))
        given = dataset, agents, partition, seed, folder, label, site, real, columns
        said, numbers = dealt_out(*given, hashed, text, missing_values)
        if json:
            emit(numbers)
        else:
            typer.echo(said)


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
