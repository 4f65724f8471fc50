"""The commands `network` and `data`: inspect the parts of an experiment before running it."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from .app import Json, app, check_picture, print_json, report_errors

DataFolder = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the data sets. Default: the cache of downloads.",
        envvar="DIAMOND_DATA",
    ),
]


@app.command()
def network(
    spec: Annotated[
        str, typer.Argument(help="Network, as in er:9,p=0.3,seed=0, ring:5 or torus:3x3.")
    ],
    picture: Annotated[
        Path, typer.Option(help="File to draw the network into.", callback=check_picture)
    ] = Path("network.png"),
    json: Json = False,
) -> None:
    """Draw a network, print its mixing rate, and check its mixing matrix."""
    with report_errors():
        from ..config.previews import preview_network
        from ..network.network_summary import draw

        network_built, numbers = preview_network(spec)
        numbers["picture"] = str(draw(network_built, picture))
        if json:
            print_json(numbers)
        else:
            typer.echo(str(network_built))
            for name, value in numbers.items():
                typer.echo(f"{name.replace('_', ' ')}: {_format_value(value)}")


@app.command()
def data(
    dataset: Annotated[
        list[str] | None,
        typer.Argument(
            help="Data set (digits, mnist, ...), a file, or one file per site. Default: list all."
        ),
    ] = None,
    agents: Annotated[
        int | None, typer.Option(help="Number of agents. Default: the number of sites, or 9.")
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            help="Partition of the rows, as in an experiment: iid, by_label:shards=2, "
            "dirichlet:concentration=0.3, ... Default: iid."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the partition.")] = 0,
    label: Annotated[str, typer.Option(help="Column of the labels in a table.")] = "label",
    site: Annotated[
        str | None, typer.Option(help="Column of the sites in a table. Default: none.")
    ] = None,
    features: Annotated[
        list[str] | None,
        typer.Option(
            help="Feature columns, as in age,dose; may be repeated. Default: all other columns."
        ),
    ] = None,
    hashed: Annotated[
        int | None,
        typer.Option(
            help="Number of features to hash the words of the text column into. Default: none.",
            min=1,
        ),
    ] = None,
    text: Annotated[str, typer.Option(help="Column of the text in a table.")] = "text",
    missing_values: Annotated[
        str, typer.Option(help="Treatment of missing values: refuse, drop, mean, or a number.")
    ] = "refuse",
    categories: Annotated[
        Literal["refuse", "one_hot"],
        typer.Option(help="Treatment of columns of text: refuse, or one_hot."),
    ] = "refuse",
    real: Annotated[
        bool, typer.Option("--real", help="Treat labels as real numbers to regress on.")
    ] = False,
    folder: DataFolder = None,
    json: Json = False,
) -> None:
    """List the data sets and their locations; for one data set, show the rows of each agent."""
    with report_errors():
        from ..config.previews import locate_datasets, preview_partition

        if not dataset:
            locations = locate_datasets(folder)
            if json:
                print_json(locations)
            else:
                for name, location in locations.items():
                    typer.echo(f"{name:9} {location or 'not found; downloaded when first used'}")
            return
        names = [name.strip() for arguments in features or () for name in arguments.split(",")]
        description, numbers = preview_partition(
            dataset,
            agents,
            partition,
            seed,
            folder,
            label=label,
            site=site,
            real=real,
            features=None if features is None else list(filter(None, names)),
            hashed=hashed,
            text=text,
            missing_values=missing_values,
            categories=categories,
        )
        if json:
            print_json(numbers)
        else:
            typer.echo(description)


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
