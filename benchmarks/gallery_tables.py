"""Tables of docs/results/gallery.md, from what `compare` found."""

import re

import numpy as np
from gallery_entries import ENTRIES

HEADS = {"f1": "F1", "return": "mean return", "upper_loss": "upper loss"}


def write(results, page):
    """Put every table between its marks."""
    text = page.read_text()
    for name, methods in results.items():
        marks = rf"(<!-- table {re.escape(name)} -->\n).*?(<!-- end -->)"
        lines = table(name, methods)
        text = re.sub(
            marks, lambda match, lines=lines: f"{match[1]}{lines}{match[2]}", text, flags=re.S
        )
    page.write_text(text)


def table(name, methods):
    """A line a method: the metric and the upper loss at the end, and how alpha was tuned."""
    metric = ENTRIES[name].metric
    has_metric = metric != "upper_loss"
    head = [HEADS.get(metric, metric.replace("_", " ")), *(["upper loss"] if has_metric else [])]
    lines = [["method", *head, "alpha, of its own"], ["---", *["---:"] * (len(head) + 1)]]
    for method, outcome in methods.items():
        if "refused" in outcome:
            lines.append([f"`{method}`", outcome["refused"]])
            continue
        diverged = sum(round is not None for round in outcome["diverged"])
        ends = [
            outcome["metric" if has_metric else "upper_loss"],
            *([outcome["upper_loss"]] if has_metric else []),
        ]
        cells = [format_runs(runs, outcome["diverged"]) for runs in ends]
        cells[0] += f"; {diverged} of {len(outcome['diverged'])} diverged" if diverged else ""
        lines.append([f"`{method}`", *cells, f"x {outcome['factors']['alpha']:g}"])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def format_runs(runs, diverged):
    """The mean over the seeds that got to the end, and their range."""
    last = [run[-1] for run, diverged_round in zip(runs, diverged) if diverged_round is None]
    if not last:
        return "-"
    shorten = lambda value: f"{value:.4g}"
    return f"{shorten(np.mean(last))} ({shorten(min(last))} to {shorten(max(last))})"
