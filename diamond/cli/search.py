"""search: the best method for one's own problem and links among all that can be composed."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .app import Json, app, emit, reported, talk
from .experiments import Quiet, Set, start

FOUND = "searched.toml"  # in the folder of a search: the experiment with what was found


@app.command()
def search(
    file: Annotated[Path, typer.Argument(help="FILE.toml: its problem, network, rounds, batch.")],
    budget: Annotated[
        int, typer.Option(help="Runs of full length that it may take, about.", min=3)
    ] = 20,
    seeds: Annotated[int, typer.Option(help="Fresh seeds for the evidence.", min=1)] = 5,
    cost: Annotated[
        str, typer.Option(help="What is equal for all: calls (of f and g), samples or bytes.")
    ] = "calls",
    set: Set = [],  # noqa: B006
    out: Annotated[Path, typer.Option(help="Where what was found goes.")] = Path("runs"),
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Find the best method for your problem and links, published or composed of parts.

    Many get a short run, the better third a longer one, and so on; the winner and the best
    published method are then run from seeds that the search has not seen.
    """
    with reported():
        start()
        from ..bench import search as searching
        from ..experiment import jobs
        from ..experiment.config import parsed, read
        from ..runs.checkpoint import replace

        raw = parsed(file, set)
        experiment = read(raw, file.parent, str(file))
        tell = lambda label: None if quiet else talk(label)
        with jobs.precision(experiment):
            problem = jobs.build(experiment, str(file))
            batch = experiment.algorithm[0].build().batch
            links = experiment.network[0].build()
            given = problem, links, experiment.rounds, batch, budget, seeds, cost
            found = searching.search(*given, tell)
        best = min(found.winner, found.published, key=lambda one: one.loss)
        table = best.candidate.table | {"label": best.candidate.label.split(" #")[0]}
        changed = raw | {"algorithm": table, "rounds": best.candidate.rounds}
        folder = out / f"{experiment.name}-search"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FOUND
        name = f"{experiment.name}-searched"
        text = read(changed | {"name": name}, file.parent, str(file)).toml(folder)
        replace(path, text.encode())
    rows = searching.said([found.winner, found.published])
    if json:
        emit({"tried": found.tried, "found": str(path), "evidence": rows})
    else:
        _show(found.tried, rows, cost)
        typer.echo(f"found: {path}\ntry it:  diamond run {path}")


def _show(tried: int, rows: list[dict[str, Any]], cost: str) -> None:
    from rich.console import Console
    from rich.table import Table

    typer.echo(f"{tried} candidates; on fresh seeds, at equal {cost}:")
    drawn = Table(box=None, pad_edge=False)
    for name in ("", "method", "late upper loss", "of each seed", "rounds"):
        drawn.add_column(name, overflow="fold")
    for kind, row in zip(("composed", "published"), rows):
        each = ", ".join(f"{loss:.4g}" for loss in row["of"])
        drawn.add_row(kind, row["method"], f"{row['upper_loss']:.5g}", each, str(row["rounds"]))
    Console(highlight=False).print(drawn)
