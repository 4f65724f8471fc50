"""Tables of runs as text, HTML, CSV and LaTeX."""

import csv
import html
import io
import math
import statistics
from collections.abc import Sequence
from typing import Any

from .folder_reader import Stored

Row = dict[str, Any]
FIRST = ("run", "algorithm", "network", "seed", "status", "round")
ON_LINKS = ("network_seconds", "joules")  # only if the network has links
SPENT = ("samples", "gradients", "hvps", "jvps", "bytes", "seconds", *ON_LINKS)
LEFT_OUT = ("agents", "round", "curvature", "solver_error", "definition1")
SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
SPECIAL |= {c: "\\" + c for c in "&%$#_{}"}


class Table(list[Row]):
    """Rows that print as a table, also in a notebook, and convert to `pandas.DataFrame`."""

    def __repr__(self) -> str:
        return aligned(self._cells())

    def _repr_html_(self) -> str:
        return as_html(self._cells())

    def _cells(self) -> list[list[str]]:
        columns = list(dict.fromkeys(name for row in self for name in row))
        return [columns, *([_plain(row.get(name, "")) for name in columns] for row in self)]


def _plain(value: Any) -> str:
    """Format a number or word; "-" for a missing number."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:,.0f}" if value >= 1e4 else f"{value:.4g}"
    return str(value)


def aligned(cells: Sequence[Sequence[str]]) -> str:
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


def as_html(cells: Sequence[Sequence[str]]) -> str:
    """Format cells as an HTML table whose first line is the header."""
    head, *body = cells
    line = lambda tag, cells: "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells)
    lines = "".join(f"<tr>{line('td', cells)}</tr>" for cells in body)
    return f"<table><thead><tr>{line('th', head)}</tr></thead><tbody>{lines}</tbody></table>"


def rows(found: Sequence[Stored]) -> list[Row]:
    """Make one row per run: names, status, last evaluation and digest."""
    return [row(one.path.name, one.manifest, one.last) for one in found]


def row(name: str, manifest: dict[str, Any], last: dict[str, Any]) -> Row:
    """Make the row of a run from its manifest and its last evaluation."""
    who = {
        "run": name,
        "algorithm": manifest["algorithm"]["label"],
        "network": manifest["network"]["name"],
        "seed": manifest["seed"],
        "status": manifest["status"],
        "round": last.get("round", 0),
    }
    measured = {key: value for key, value in last.items() if key not in (*LEFT_OUT, *SPENT)}
    spent = {key: last[key] for key in SPENT if key in last}
    return who | measured | spent | {"digest": manifest.get("digest", "")}


def over_seeds(given: Sequence[Row]) -> list[Row]:
    """Make one row per algorithm and network: the mean over the seeds, and the deviation `*_sd`.

    Runs that diverged count in `diverged` only; a run without evaluations counts in `seeds` only.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in given:
        groups.setdefault((row["algorithm"], row["network"]), []).append(row)
    found = []
    for (algorithm, network), members in groups.items():
        sound = [row for row in members if row["status"] != "diverged"]
        summary: Row = {"algorithm": algorithm, "network": network, "seeds": len(members)}
        summary["diverged"] = len(members) - len(sound)
        for key in dict.fromkeys(key for row in sound for key in row):
            if key not in (*FIRST, "digest"):
                values = [float(row[key]) for row in sound if key in row]
                summary[key] = statistics.fmean(values)
                summary[f"{key}_sd"] = statistics.stdev(values) if len(values) > 1 else 0.0
        found.append(summary)
    return found


def of_x(answer: dict[str, Any]) -> list[tuple[str, list[float]]]:
    """Return the entries of x along the first axis of its leaves, by name."""
    found = []
    for leaf, values in answer.get("x", {}).items():
        rows = values if isinstance(values, list) else [values]
        numbered = [f"x{leaf}[{i}]" for i in range(len(rows))]
        names = answer.get("names") or (numbered if isinstance(values, list) else [f"x{leaf}"])
        found += [(str(name), _flat(row)) for name, row in zip(names, rows)]
    return found


def _flat(value: Any) -> list[float]:
    if isinstance(value, list):
        return [number for part in value for number in _flat(part)]
    return [math.nan if value is None else float(value)]


def as_csv(given: Sequence[Row]) -> str:
    """Format all columns as CSV in full precision."""
    columns = list(dict.fromkeys(key for row in given for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(given)
    return text.getvalue()


def as_latex(given: Sequence[Row], columns: Sequence[str]) -> str:
    """Format the given columns as a LaTeX tabular for booktabs; deviations as $\\pm$."""
    head = " & ".join(_escaped(column.replace("_", " ")) for column in columns)
    kinds = "".join("l" if isinstance(given[0].get(c, ""), str) else "r" for c in columns)
    lines = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule", rf"{head} \\", r"\midrule"]
    lines += [" & ".join(_cell(row, column) for column in columns) + r" \\" for row in given]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _cell(row: Row, column: str) -> str:
    value = row.get(column, "")
    if isinstance(value, str):
        return _escaped(value)
    spread = row.get(f"{column}_sd")
    return f"{value:.4g}" + (rf" $\pm$ {spread:.2g}" if spread else "")


def _escaped(text: str) -> str:
    return "".join(SPECIAL.get(c, c) for c in text)
