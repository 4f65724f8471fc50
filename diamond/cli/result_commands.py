"""The commands `show`, `export`, `list`, `report` and `live`: results of runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core.suggestions import did_you_mean
from .app import FAILED, Json, app, emit, reported, talk
from .terminal_tables import columns_of, print_table, print_words

Runs = Annotated[list[Path], typer.Argument(help="Folders of runs or of comparisons.")]
ALGORITHMS = Path("algorithms")  # argument of `list` that selects the algorithms
LISTED = ("run", "started", "status", "round", "metric", "upper_loss", "local_loss")


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
    """Print the final numbers of runs as a table, CSV, LaTeX or JSON."""
    with reported():
        from ..records.folder_reader import as_begun
        from ..records.folder_reader import runs as stored
        from ..records.result_table import as_csv, as_latex, over_seeds, rows

        found = as_begun(stored(runs))
        if verify:
            _verify(found)
        table = over_seeds(rows(found)) if seeds else rows(found)
        if json:
            emit({"runs": table})
        elif csv:
            typer.echo(as_csv(table), nl=False)
        elif latex:
            typer.echo(as_latex(table, columns_of(table)), nl=False)
        else:
            print_table(table)
            if len(found) == 1:
                _details(found[0])


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    to: Annotated[
        str, typer.Option(help="Format: npz, safetensors, or csv (a folder of tables).")
    ] = "npz",
    out: Annotated[
        Path | None, typer.Option(help="File to write, or folder for csv. Default: RUN/answer.")
    ] = None,
    json: Json = False,
) -> None:
    """Export the solution of a run, x and y of every agent and of the best round."""
    with reported():
        from ..records.export import KINDS
        from ..records.export import export as write
        from ..records.folder_reader import one

        if to not in KINDS:
            raise typer.BadParameter(f"no format {to!r}; {did_you_mean(to, KINDS)}")
        made = write(one(run), to, out)
        if json:
            emit({"files": [str(path) for path in made]})
        else:
            for path in made:
                typer.echo(path)


@app.command("list")
def list_runs(
    folder: Annotated[
        Path, typer.Argument(help="Folder to search, or `algorithms` to list all algorithms.")
    ] = Path("runs"),
    json: Json = False,
) -> None:
    """List all runs below a folder, newest last; or list all algorithms."""
    with reported():
        if folder == ALGORITHMS and not folder.is_dir():
            return _list_algorithms(json)
        from ..records.folder_reader import as_begun, below
        from ..records.result_table import rows

        found = as_begun(below(folder, unreadable=lambda said: talk(said, "yellow")))
        table = rows(found)
        for row, run in zip(table, found):
            row |= {"run": str(run.path), "started": run.manifest["started"]}
        if json:
            emit({"runs": table})
        elif not found:
            talk(f"no runs in {folder}; make one with:  diamond run FILE.toml")
        else:
            sites = all("metric" not in row for row in table)
            print_table(table, LISTED if sites else LISTED[:-1])


def _list_algorithms(json: bool) -> None:
    """List the parts, messages and cost of each algorithm, derived from the code."""
    from ..catalogue import table

    found = [row._asdict() for row in table()]
    if json:
        return emit({"algorithms": found})
    shown = ["name", "solves", "directions", "estimator", "moves", "plan", "reference"]
    print_words(found, shown)


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
    with reported():
        from ..report import build

        drawn = _drawn(runs, figures, format) if figures else []
        page = build(runs, out or runs[0] / "report.html")
        if json:
            told = {"report": str(page), "bytes": page.stat().st_size}
            emit(told | {"figures": [str(path) for path in drawn]})
        else:
            for path in (page, *drawn):
                typer.echo(path)


def _drawn(runs: Sequence[Path], folder: Path, formats: Sequence[Any]) -> list[Path]:
    """Draw the figures of `diamond.report.figures`."""
    from ..report.figures import FIXED, draw

    if unknown := [kind for kind in formats if kind not in FIXED]:
        raise typer.BadParameter(f"no format {unknown[0]!r}; {did_you_mean(unknown[0], FIXED)}")
    return draw(runs, folder, formats=formats)


@app.command()
def live(
    run: Annotated[Path, typer.Argument(help="Folder of a run or of a comparison.")],
    port: Annotated[int, typer.Option(help="Port on loopback; 0 takes any free port.")] = 0,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    json: Json = False,
) -> None:
    """Serve the report page on loopback and refresh it while the run continues."""
    with reported():
        from ..report import serve

        def tell(address: str) -> None:
            if json:
                emit({"address": address, "folder": str(run)})
            else:
                typer.echo(f"{address}  (Ctrl-C ends)")

        serve(run, port, browser, tell)


def _verify(found: Sequence[Any]) -> None:
    """Compare the digests recorded at the end of runs with those of their files."""
    for run in found:
        said = run.manifest.get("digest")
        if run.manifest["status"] != "finished":
            talk(f"{run.path}: {run.manifest['status']}, so there is no digest to verify", "yellow")
        elif run.digest() != said:
            talk(f"{run.path}: the files do not give the digest {said[:12]}...: altered", "red")
            raise typer.Exit(FAILED)
        else:
            talk(f"{run.path}: digest verified", "green")


def _details(run: Any) -> None:
    manifest = run.manifest
    lines = {
        "problem": f"{manifest['problem']['name']}, {manifest['problem']['agents']} agents",
        "agents": ", ".join(manifest["network"].get("sites", ())),
        "network": f"{manifest['network']['name']}, lam = {manifest['network']['lam']:.3f}",
        "found": ", ".join(f"{k} = {v:.4g}" for k, v in manifest["resolved"].items()),
        "message": manifest["message"],
        "digest": manifest.get("digest", ""),
        "reproduce": manifest["command"],
    }
    for name, said in lines.items():
        if said:
            typer.echo(f"{name}: {said}")
    for note in manifest["problem"].get("notes", ()):
        typer.echo(f"rows: {note}")
    _answer(run)


def _answer(run: Any) -> None:
    """Print the best round, and x if it is small or its entries have names."""
    from ..records.result_table import of_x

    found = run.manifest.get("answer", {})
    if best := found.get("best"):
        typer.echo(f"best: round {best['round']}, upper loss {best['upper_loss']:.4g}")
    rows = of_x(found)
    if rows:
        width = max(len(name) for name, _ in rows)
        meaning = f" ({found['meaning']})" if "meaning" in found else ""
        typer.echo(f"x{meaning}, the mean of the agents:")
        for name, values in rows:
            typer.echo(f"  {name:{width}}  {'  '.join(f'{value: .4g}' for value in values)}")
    elif found:
        typer.echo(f"x: {found['size']:,} numbers; to have them:  diamond export {run.path}")
