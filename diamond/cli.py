"""The command line: parse, call, print. JAX is imported inside the commands, not before."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False)


@app.callback()
def main() -> None:
    """Decentralized bilevel optimization: agents on a network, private data, no server."""


@app.command()
def demo(
    picture: Annotated[Path, typer.Option(help="Where to draw the curves.")] = Path("demo.png"),
) -> None:
    """DIAMOND, GT-SGD, M-SGD and D-SGD on embedded digits, nine agents, split by label."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Table

    console = Console()
    console.print("starting JAX and compiling ...", style="dim")
    from . import demo, plot
    from .cache import compile_cache

    compile_cache()
    bar = Progress(
        TextColumn("{task.description:8}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[said]}"),
        TimeElapsedColumn(),
        console=console,
    )
    network = demo.peers()
    console.print(f"1,797 digits over 9 agents by label, {network}", style="dim")
    with bar:
        tasks = {n: bar.add_task(n, total=demo.ROUNDS, said="", start=False) for n in demo.METHODS}

        def report(name: str, entry: dict[str, float]) -> None:
            said = f"loss {entry['upper_loss']:.3f}  metric {entry['metric']:.1e}"
            bar.start_task(tasks[name])
            bar.update(tasks[name], completed=int(entry["round"]), said=said)

        runs = demo.compare(report)
    table = Table(title=f"after {demo.ROUNDS} rounds, each with its best constants of one grid")
    for column in ("", "upper loss", "own loss", "accuracy", "metric", "samples", "MB", "s"):
        table.add_column(column, justify="left" if not column else "right")
    for name, run in runs.items():
        last = {key: values[-1] for key, values in run.history.items()}
        table.add_row(
            name,
            f"{last['upper_loss']:.3f}",
            f"{last['local_loss']:.3f}",
            f"{last['accuracy']:.3f}",
            f"{run.history['metric'][1:].mean():.4f}",
            f"{last['samples']:,.0f}",
            f"{last['bytes'] / 1e6:.1f}",
            f"{last['seconds']:.1f}",
        )
    console.print(table)
    console.print(
        "upper loss: the objective, at the mean of the agents' x; own loss: at each agent's own x "
        "and y; accuracy: on test rows, own x and y; metric: eq. (11), mean over the run; samples: "
        "rows drawn by an agent; MB: sent over the whole network",
        style="dim",
    )
    title = f"digits, 9 agents by label, {network.name}, lam = {network.lam:.2f}"
    console.print(f"curves: {plot.convergence(runs, picture, title)}")
