"""The command `predict`: predictions of a run's model for the rows of a table."""

from pathlib import Path
from typing import Annotated

import typer

from .app import Json, app, print_json, report_errors


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or of a site's run.")],
    table: Annotated[Path, typer.Argument(help="Table of new rows: csv, tsv or parquet.")],
    site: Annotated[
        str | None,
        typer.Option(help="Site whose model predicts. Default: the only site of the run."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write. Default: RUN/predictions.csv."),
    ] = None,
    json: Json = False,
) -> None:
    """Predict the rows of a table by the model of one site, prepared as the rows of the run.

    The file has the columns of the table that are no features, the prediction, and for classes
    one column per class: the probability, or the score of a model without probabilities.
    """
    with report_errors():
        from ..records.folder_reader import open_single_run
        from ..records.stored_models import load_models, write_predictions

        stored = open_single_run(run)
        models, path = load_models(stored), out or stored.path / "predictions.csv"
        values = models.predictor.predictions(models.x, models.y, table, site)
        preparation = models.predictor.table_preparation
        write_predictions(path, preparation.open_table(table), preparation, values)
        if json:
            print_json({"file": str(path), "rows": len(values)})
        else:
            typer.echo(f"{path}: {len(values)} rows")
