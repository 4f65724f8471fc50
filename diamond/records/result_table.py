"""Tables of runs as text, HTML, CSV and LaTeX."""

import csv
import html
import io
import math
import statistics
from collections.abc import Sequence
from typing import Any

from .folder_reader import StoredRun

TableRow = dict[str, Any]
IDENTITY_COLUMNS = ("run", "algorithm", "network", "seed", "status", "round")
LINK_COLUMNS = ("network_seconds", "joules")  # only if the network has links
COST_COLUMNS = ("samples", "gradients", "hvps", "jvps", "bytes", "seconds", *LINK_COLUMNS)
LEADING_MEASURES = ("upper_loss", "metric")  # a small metric may be that of a poor point
OMITTED_COLUMNS = ("agents", "round", "curvature", "solver_error", "definition1")
LATEX_ESCAPES = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
LATEX_ESCAPES |= {c: "\\" + c for c in "&%$#_{}"}


class Table(list[TableRow]):
    """Rows that print as a table, also in a notebook, and convert to `pandas.DataFrame`."""

    def __repr__(self) -> str:
        return format_aligned(self._cells())

    def _repr_html_(self) -> str:
        return format_html(self._cells())

    def _cells(self) -> list[list[str]]:
        columns = list(dict.fromkeys(name for row in self for name in row))
        return [columns, *([format_value(row.get(name, "")) for name in columns] for row in self)]


def format_value(value: Any) -> str:
    """Format a number or word; "-" for a missing number."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:,.0f}" if value >= 1e4 else f"{value:.4g}"
    return str(value)


def format_aligned(cells: Sequence[Sequence[str]]) -> str:
    """Align cells as text: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths))
        )
        for line in cells
    ]
    return "\n".join(line.rstrip() for line in lines)


def format_html(cells: Sequence[Sequence[str]]) -> str:
    """Format cells as an HTML table whose first line is the header."""
    head, *body = cells
    line = lambda tag, cells: "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells)
    lines = "".join(f"<tr>{line('td', cells)}</tr>" for cells in body)
    return f"<table><thead><tr>{line('th', head)}</tr></thead><tbody>{lines}</tbody></table>"


def make_rows(runs: Sequence[StoredRun]) -> list[TableRow]:
    """Make one row per run: names, status, last evaluation and digest."""
    return [make_row(run.path.name, run.manifest, run.last_evaluation) for run in runs]


def make_row(name: str, manifest: dict[str, Any], last: dict[str, Any]) -> TableRow:
    """Make the row of a run from its manifest and its last evaluation."""
    identity = {
        "run": name,
        "algorithm": manifest["algorithm"]["label"],
        "network": manifest["network"]["name"],
        "seed": manifest["seed"],
        "status": manifest["status"],
        "round": last.get("round", 0),
    }
    names = dict.fromkeys([name for name in LEADING_MEASURES if name in last]) | last
    measures = {name: last[name] for name in names if name not in (*OMITTED_COLUMNS, *COST_COLUMNS)}
    costs = {key: last[key] for key in COST_COLUMNS if key in last}
    return identity | measures | costs | {"digest": manifest.get("digest", "")}


def average_over_seeds(rows: Sequence[TableRow]) -> list[TableRow]:
    """Make one row per algorithm and network: the mean over the seeds, and the deviation `*_sd`.

    Runs that diverged count in `diverged` only; a run without evaluations counts in `seeds` only.
    """
    groups: dict[tuple[str, str], list[TableRow]] = {}
    for row in rows:
        groups.setdefault((row["algorithm"], row["network"]), []).append(row)
    summaries = []
    for (algorithm, network), members in groups.items():
        converged = [row for row in members if row["status"] != "diverged"]
        summary: TableRow = {"algorithm": algorithm, "network": network, "seeds": len(members)}
        summary["diverged"] = len(members) - len(converged)
        for key in dict.fromkeys(key for row in converged for key in row):
            if key not in (*IDENTITY_COLUMNS, "digest"):
                values = [float(row[key]) for row in converged if key in row]
                summary[key] = statistics.fmean(values)
                summary[f"{key}_sd"] = statistics.stdev(values) if len(values) > 1 else 0.0
        summaries.append(summary)
    return summaries


def solution_entries(answer: dict[str, Any]) -> list[tuple[str, list[float]]]:
    """Return the entries of x along the first axis of its leaves, by name."""
    entries = []
    for leaf, values in answer.get("x", {}).items():
        rows = values if isinstance(values, list) else [values]
        numbered = [f"x{leaf}[{i}]" for i in range(len(rows))]
        names = answer.get("names") or (numbered if isinstance(values, list) else [f"x{leaf}"])
        entries += [(str(name), _flat(row)) for name, row in zip(names, rows)]
    return entries


def name_entry(leaf: str, index: tuple[int, ...], names: Any) -> str:
    """Name an entry: "age", "age[1]", "x/w[0, 1]"; `names` is text or nested lists."""
    remaining = list(index)
    while isinstance(names, list):
        names = names[remaining.pop(0)]
    return f"{names or leaf}{remaining}" if remaining else names or leaf


def _flat(value: Any) -> list[float]:
    if isinstance(value, list):
        return [number for part in value for number in _flat(part)]
    return [math.nan if value is None else float(value)]


def format_csv(rows: Sequence[TableRow]) -> str:
    """Format all columns as CSV in full precision."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def format_latex(rows: Sequence[TableRow], columns: Sequence[str]) -> str:
    """Format the given columns as a LaTeX tabular for booktabs; deviations as $\\pm$."""
    head = " & ".join(_escape_latex(column.replace("_", " ")) for column in columns)
    alignment = "".join("l" if isinstance(rows[0].get(c, ""), str) else "r" for c in columns)
    lines = [rf"\begin{{tabular}}{{{alignment}}}", r"\toprule", rf"{head} \\", r"\midrule"]
    lines += [" & ".join(_cell(row, column) for column in columns) + r" \\" for row in rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _cell(row: TableRow, column: str) -> str:
    value = row.get(column, "")
    if isinstance(value, str):
        return _escape_latex(value)
    spread = row.get(f"{column}_sd")
    return f"{value:.4g}" + (rf" $\pm$ {spread:.2g}" if spread else "")


def _escape_latex(text: str) -> str:
    return "".join(LATEX_ESCAPES.get(c, c) for c in text)
