"""The `bench` command: compare methods on problems by the same rules, on one page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .app import INTERRUPTED, Json, app, emit, reported, talk
from .experiment_commands import Quiet, start
from .terminal_tables import text_table

if TYPE_CHECKING:
    from ..bench import Suite


@app.command()
def bench(
    suite: Annotated[
        str,
        typer.Argument(
            help="Suite: quick, paper, personal, common, one-agent, links or full; or a file "
            "x.toml."
        ),
    ] = "quick",
    out: Annotated[
        Path, typer.Option(help="Folder of the results; the suite gets a subfolder.")
    ] = Path("bench"),
    methods: Annotated[
        str | None,
        typer.Option(help="Methods to run, as a,b,c. Default: all methods of the suite."),
    ] = None,
    cases: Annotated[
        str | None, typer.Option(help="Cases to run, as a,b,c. Default: all cases of the suite.")
    ] = None,
    settings: Annotated[
        int | None,
        typer.Option(
            help="Number of settings to try for every method on every case. Default: that of the "
            "suite.",
            min=1,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(help="Number of seeds of the final runs. Default: that of the suite.", min=1),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            help="Number of parallel processes. Default: one per core; 1 on an accelerator.", min=1
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Time limit in minutes; run the same command again to continue. Default: none.",
            min=0,
        ),
    ] = None,
    latex: Annotated[
        bool, typer.Option("--latex", help="Print the costs as a LaTeX tabular.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Tune every method on every case with equal budgets, run it from other seeds, and compare.

    The results are a folder of plain files and a page. Run the same command again to continue an
    interrupted benchmark.
    """
    with reported():
        start()
        from ..bench import leaderboard_page, suite_results
        from ..bench import suite as read

        words = lambda text: None if text is None else tuple(filter(None, text.split(",")))
        changes = {"methods": words(methods), "cases": words(cases)}
        found = read(suite, settings=settings, seeds=seeds, **changes)
        folder = out / found.name
        many = processes or _abreast()
        if not quiet:
            talk(
                f"{found.name}: {len(found.pairs)} pairs of method and case, {found.settings} "
                f"settings each, {found.seeds} seeds: {found.runs:,} runs, {many} at a time"
            )
        limit = {} if minutes is None else {"seconds": 60 * minutes}
        pairs = _run_suite(found, folder, many, quiet, **limit)
        if len(pairs) < len(found.pairs):
            talk(
                f"time is up: {len(pairs)} of {len(found.pairs)} pairs are made, the same command "
                "goes on",
                "yellow",
            )
        if not pairs:
            raise typer.Exit(INTERRUPTED)
        made = suite_results.results(found, pairs, many)
        suite_results.write(folder, made)
        written = leaderboard_page.build(made, folder / "page.html")
    if json:
        emit({"folder": str(folder), "page": str(written), "methods": suite_results.summary(made)})
    elif latex:
        typer.echo(suite_results.as_latex(made), nl=False)
    else:
        _show(suite_results.summary(made))
        typer.echo(f"page: {written}")


def _abreast() -> int:
    """Return the number of cores of this process; 1 if an accelerator does the work."""
    import jax

    from ..hardware.cores import cores

    return len(cores()) if jax.default_backend() == "cpu" else 1


def _run_suite(
    suite: "Suite", folder: Path, processes: int, quiet: bool, **limit: float
) -> list[dict[str, Any]]:
    """Run all pairs of method and case under a progress bar that shows the time left."""
    from ..bench.run_suite import run_suite
    from .progress_bars import progress_bar

    with progress_bar("pairs", len(suite.pairs), quiet) as advance:
        report = lambda pair: advance(1, f"{pair['method']} on {pair['case']}")
        return run_suite(suite, folder, processes, report, **limit)


def _show(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console

    columns = ["method", "cases solved", "without tuning", "shared-case rank by calls"]
    rank = lambda row: "-" if row["rank"] != row["rank"] else f"{row['rank']:.2f}"
    shown = [(row["method"], row["solved"], row["untuned"], rank(row)) for row in rows]
    Console(highlight=False).print(text_table(columns, shown))
