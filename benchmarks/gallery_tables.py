"""Tables of docs/results/gallery.md, from what `compare` found."""

import re

import numpy as np
from gallery_entries import ENTRIES

HEADS = {"f1": "F1", "return": "mean return", "upper_loss": "upper loss"}


def write(found, page):
    """Put every table between its marks."""
    text = page.read_text()
    for name, methods in found.items():
        marks = rf"(<!-- table {re.escape(name)} -->\n).*?(<!-- end -->)"
        lines = table(name, methods)
        text = re.sub(marks, lambda at: f"{at[1]}{lines}{at[2]}", text, flags=re.S)
    page.write_text(text)


def table(name, methods):
    """A line a method: the metric and the upper loss at the end, and how alpha was tuned."""
    metric = ENTRIES[name].metric
    both = metric != "upper_loss"
    head = [HEADS.get(metric, metric.replace("_", " ")), *(["upper loss"] if both else [])]
    lines = [["method", *head, "alpha, of its own"], ["---", *["---:"] * (len(head) + 1)]]
    for method, told in methods.items():
        if "refused" in told:
            lines.append([f"`{method}`", told["refused"]])
            continue
        bad = sum(one is not None for one in told["diverged"])
        ends = [told["metric" if both else "upper_loss"], *([told["upper_loss"]] if both else [])]
        cells = [said(runs, told["diverged"]) for runs in ends]
        cells[0] += f"; {bad} of {len(told['diverged'])} diverged" if bad else ""
        lines.append([f"`{method}`", *cells, f"x {told['factors']['alpha']:g}"])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def said(runs, diverged):
    """The mean over the seeds that got to the end, and their range."""
    last = [run[-1] for run, bad in zip(runs, diverged) if bad is None]
    if not last:
        return "-"
    few = lambda value: f"{value:.4g}"
    return f"{few(np.mean(last))} ({few(min(last))} to {few(max(last))})"
