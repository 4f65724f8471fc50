"""The command line: parse, call, print. JAX is imported inside the commands, not before."""

from pathlib import Path
from typing import Annotated

import typer

FIGURES = ("fig1", "fig2", "fig3", "fig4")
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
    table = Table(title=f"{demo.ROUNDS} rounds, each method with its best constants of one grid")
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


Data = Annotated[Path | None, typer.Option(help="Folder of the data sets.", envvar="DIAMOND_DATA")]
Out = Annotated[Path, typer.Option(help="Where numbers, tables and figures go.")]


@app.command()
def reproduce(
    figure: Annotated[str, typer.Argument(help="fig1, fig2, fig3, fig4 or all.")],
    quick: Annotated[bool, typer.Option("--quick", help="Small: minutes on two cores.")] = False,
    constants: Annotated[str, typer.Option(help="tuned, loss or published.")] = "tuned",
    data: Data = None,
    out: Out = Path("runs/reproduce"),
) -> None:
    """Run an experiment of the paper on the real data: table, figure and all numbers."""
    from rich.console import Console

    from .cache import compile_cache

    if figure != "all" and figure not in FIGURES:
        raise typer.BadParameter(f"no figure {figure!r}; there are {', '.join(FIGURES)} and all")
    if constants not in ("tuned", "loss", "published"):
        raise typer.BadParameter(f"no constants {constants!r}; there are tuned, loss, published")
    compile_cache()
    from .reproduce import command
    from .reproduce.case import FULL, QUICK

    scale = QUICK if quick else FULL
    for name in FIGURES if figure == "all" else (figure,):
        command.reproduce(name, scale, constants, out, data, Console())


@app.command()
def tune(
    cases: Annotated[list[str], typer.Argument(help="mnist-9-label-p0.3, ..., or all.")],
    scale: Annotated[str, typer.Option(help="full or quick.")] = "full",
    data: Data = None,
    out: Out = Path("runs/reproduce"),
    store: Annotated[Path | None, typer.Option(help="File of the constants.")] = None,
) -> None:
    """Find every method's constants by one grid: 27 settings x 2 seeds each, all recorded."""
    from rich.console import Console

    from .cache import compile_cache

    compile_cache()
    from .reproduce import command
    from .reproduce.case import FULL, QUICK
    from .reproduce.tune import STORE

    names = list(command.CASES) if cases == ["all"] else cases
    if unknown := [name for name in names if name not in command.CASES]:
        raise typer.BadParameter(f"no case {unknown[0]!r}; there are {', '.join(command.CASES)}")
    path = store or Path(command.__file__).with_name(STORE)
    scales = {"full": FULL, "quick": QUICK}
    if scale not in scales:
        raise typer.BadParameter(f"no scale {scale!r}; there are full and quick")
    command.tune_cases(names, scales[scale], out, path, data, Console())
