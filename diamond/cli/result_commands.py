"""The commands `show`, `export`, `list`, `report` and `live`: results of runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core.suggestions import did_you_mean
from ..metrics.display import print_message
from .app import FAILED, Json, Port, app, print_json, report_errors
from .terminal_tables import print_table, print_text_rows, select_columns

Runs = Annotated[list[Path], typer.Argument(help="Folders of runs or of comparisons.")]
RUNS = Path("runs")
ALGORITHMS = Path("algorithms")  # argument of `list` that selects the algorithms
LIST_COLUMNS = ("run", "started", "status", "round", "upper_loss", "metric", "local_loss")


@app.command()
def show(
    runs: Runs,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV with all columns in full precision.")
    ] = False,
    latex: Annotated[
        bool, typer.Option("--latex", help="Print a LaTeX tabular for booktabs.")
    ] = False,
    seeds: Annotated[
        bool, typer.Option("--seeds", help="Print mean and standard deviation over the seeds.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Recompute the digests of the files and compare.")
    ] = False,
    json: Json = False,
) -> None:
    """Print what a run found, or the final numbers of runs as a table, CSV, LaTeX or JSON."""
    with report_errors():
        from ..records.folder_reader import open_runs, sort_by_start
        from ..records.result_table import average_over_seeds, format_csv, format_latex, make_rows
        from ..records.run_summary import summarize_run

        runs_found = sort_by_start(open_runs(runs))
        if verify:
            _verify_digests(runs_found)
        table = average_over_seeds(make_rows(runs_found)) if seeds else make_rows(runs_found)
        if json:
            print_json({"runs": table})
        elif csv:
            typer.echo(format_csv(table), nl=False)
        elif latex:
            typer.echo(format_latex(table, select_columns(table)), nl=False)
        else:
            if len(runs_found) == 1:
                typer.echo(f"{summarize_run(runs_found[0].manifest, runs_found[0].lines)}\n")
            print_table(table)
            if len(runs_found) == 1:
                _print_details(runs_found[0])


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    to: Annotated[
        str, typer.Option(help="Format: npz, safetensors, or csv (a folder of tables).")
    ] = "npz",
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write, or folder for csv. Default: RUN/answer.npz, "
            "RUN/answer.safetensors or the folder RUN/answer."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Export the solution of a run, x and y of every agent and of the best round."""
    with report_errors():
        from ..records.export import FORMATS, export_solution
        from ..records.folder_reader import open_single_run

        if to not in FORMATS:
            raise typer.BadParameter(f"no format {to!r}; {did_you_mean(to, FORMATS)}")
        files = export_solution(open_single_run(run), to, out)
        if json:
            print_json({"files": [str(path) for path in files]})
        else:
            for path in files:
                typer.echo(path)


@app.command("list")
def list_runs(
    folder: Annotated[
        Path, typer.Argument(help="Folder to search, or `algorithms` to list all algorithms.")
    ] = RUNS,
    json: Json = False,
) -> None:
    """List all runs below a folder, newest last; or list all algorithms."""
    with report_errors():
        if folder == ALGORITHMS and not folder.is_dir():
            return _list_algorithms(json)
        if not folder.is_dir() and folder != RUNS:
            suggestion = did_you_mean(str(folder), [str(ALGORITHMS), str(RUNS)])
            raise typer.BadParameter(f"no folder {str(folder)!r}; {suggestion}")
        from ..records.folder_reader import find_runs, sort_by_start
        from ..records.result_table import make_rows

        runs_found = sort_by_start(
            find_runs(folder, on_unreadable=lambda message: print_message(message, "yellow"))
        )
        table = make_rows(runs_found)
        for row, run in zip(table, runs_found):
            row |= {"run": str(run.path), "started": run.manifest["started"]}
        if json:
            print_json({"runs": table})
        elif not runs_found:
            print_message(f"no runs in {folder}; start one with:  diamond run FILE.toml")
        else:
            sites = all("metric" not in row for row in table)
            print_table(table, LIST_COLUMNS if sites else LIST_COLUMNS[:-1])


def _list_algorithms(json: bool) -> None:
    """List the parts, messages and cost of each algorithm, derived from the code."""
    from ..catalogue import methods_table

    rows = [row._asdict() for row in methods_table()]
    if json:
        return print_json({"algorithms": rows})
    columns = ["name", "solves", "directions", "estimator", "moves", "plan", "reference"]
    print_text_rows(rows, columns)


@app.command()
def report(
    runs: Runs,
    out: Annotated[
        Path | None,
        typer.Option(help="File of the page. Default: report.html in the first folder."),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Folder to draw the curves into. Default: no figures.")
    ] = None,
    format: Annotated[
        list[str], typer.Option(help="Format of the figures: png, pdf or svg; may be repeated.")
    ] = ["png", "pdf"],  # noqa: B006
    json: Json = False,
) -> None:
    """Write one offline HTML page of runs: curves, costs, network, agents, configuration."""
    with report_errors():
        from ..report import build

        figure_paths = _draw_figures(runs, figures, format) if figures else []
        page = build(runs, out or runs[0] / "report.html")
        if json:
            result = {"report": str(page), "bytes": page.stat().st_size}
            print_json(result | {"figures": [str(path) for path in figure_paths]})
        else:
            for path in (page, *figure_paths):
                typer.echo(path)


def _draw_figures(runs: Sequence[Path], folder: Path, formats: Sequence[Any]) -> list[Path]:
    """Draw the figures of `diamond.report.figures`."""
    from ..report.figures import STRIPPED_METADATA, draw_convergence

    if unknown := [kind for kind in formats if kind not in STRIPPED_METADATA]:
        raise typer.BadParameter(
            f"no format {unknown[0]!r}; {did_you_mean(unknown[0], STRIPPED_METADATA)}"
        )
    return draw_convergence(runs, folder, formats=formats)


@app.command()
def live(
    run: Annotated[Path, typer.Argument(help="Folder of a run or of a comparison.")],
    port: Port = 0,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    json: Json = False,
) -> None:
    """Serve the report page on loopback and refresh it while the run continues."""
    with report_errors():
        from ..report import serve

        def print_address(address: str) -> None:
            if json:
                print_json({"address": address, "folder": str(run)})
            else:
                typer.echo(f"{address}  (stop with Ctrl-C)")

        serve(run, port, browser, print_address)


def _verify_digests(runs: Sequence[Any]) -> None:
    """Compare the digests recorded at the end of runs with those of their files."""
    for run in runs:
        recorded = run.manifest.get("digest")
        if run.manifest["status"] != "finished":
            print_message(
                f"{run.path}: {run.manifest['status']}, so it has no digest to verify", "yellow"
            )
        elif run.digest() != recorded:
            print_message(
                f"{run.path}: the files do not match the digest {recorded[:12]}...: altered", "red"
            )
            raise typer.Exit(FAILED)
        else:
            print_message(f"{run.path}: digest verified", "green")


def _print_details(run: Any) -> None:
    manifest = run.manifest
    lines = {
        "problem": f"{manifest['problem']['name']}, {manifest['problem']['agents']} agents",
        "agents": ", ".join(manifest["network"].get("sites", ())),
        "network": f"{manifest['network']['name']}, lam = {manifest['network']['lam']:.3f}",
        "resolved": ", ".join(f"{k} = {v:.4g}" for k, v in manifest["resolved"].items()),
        "digest": manifest.get("digest", ""),
        "reproduce": manifest["command"],
    }
    for name, value in lines.items():
        if value:
            typer.echo(f"{name}: {value}")
    for note in manifest["problem"].get("notes", ()):
        typer.echo(f"rows: {note}")
