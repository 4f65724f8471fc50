"""The `bench` command: compare methods on problems by the same rules, on one page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..metrics.display import print_message
from .app import INTERRUPTED, Json, app, print_json, report_errors
from .experiment_commands import Quiet
from .plan_execution import prepare_jax
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

    The results are a folder of plain files and a page. To continue an interrupted
    benchmark, run the same command again.
    """
    with report_errors():
        prepare_jax()
        from ..bench import leaderboard_page, load_suite, suite_results
        from ..config.validation_errors import value_errors_as_mistakes

        split_names = lambda text: None if text is None else tuple(filter(None, text.split(",")))
        changes = {"methods": split_names(methods), "cases": split_names(cases)}
        with value_errors_as_mistakes("diamond bench"):
            selected = load_suite(suite, settings=settings, seeds=seeds, **changes)
        folder = out / selected.name
        process_count = processes or _default_processes()
        if not quiet:
            print_message(
                f"{selected.name}: {len(selected.pairs)} pairs of method and case, "
                f"{selected.settings} settings each, {selected.seeds} seeds: {selected.runs:,} "
                f"runs, {process_count} at a time"
            )
        limit = {} if minutes is None else {"seconds": 60 * minutes}
        pairs = _run_suite(selected, folder, process_count, quiet, **limit)
        if len(pairs) < len(selected.pairs):
            print_message(
                f"time limit reached: {len(pairs)} of {len(selected.pairs)} pairs are done; run "
                "the same command again to continue",
                "yellow",
            )
        if not pairs:
            raise typer.Exit(INTERRUPTED)
        results = suite_results.collect_results(selected, pairs, process_count)
        suite_results.write_results(folder, results)
        written = leaderboard_page.build_leaderboard(results, folder / "page.html")
    if json:
        print_json(
            {
                "folder": str(folder),
                "page": str(written),
                "methods": suite_results.summarize_methods(results),
            }
        )
    elif latex:
        typer.echo(suite_results.format_latex(results), nl=False)
    else:
        _print_summary(suite_results.summarize_methods(results))
        typer.echo(f"page: {written}")


def _default_processes() -> int:
    """Return the number of cores of this process; 1 if an accelerator does the work."""
    import jax

    from ..hardware.cores import available_cores

    return len(available_cores()) if jax.default_backend() == "cpu" else 1


def _run_suite(
    suite: "Suite", folder: Path, processes: int, quiet: bool, **limit: float
) -> list[dict[str, Any]]:
    """Run all pairs of method and case under a progress bar that shows the time left."""
    from ..bench.run_suite import run_suite
    from .progress_bars import progress_bar

    with progress_bar("pairs", len(suite.pairs), quiet) as advance:
        report = lambda pair: advance(1, f"{pair['method']} on {pair['case']}")
        return run_suite(suite, folder, processes, report, **limit)


def _print_summary(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console

    columns = ["method", "cases solved", "without tuning", "shared-case rank by calls"]
    format_rank = lambda row: "-" if row["rank"] != row["rank"] else f"{row['rank']:.2f}"
    cells = [(row["method"], row["solved"], row["untuned"], format_rank(row)) for row in rows]
    Console(highlight=False).print(text_table(columns, cells))
