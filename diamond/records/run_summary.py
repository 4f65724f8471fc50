"""What a run found, in sentences and tables: for terminals, notebooks and reports."""

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .cooperation import Cooperation, read_cooperation
from .folder_reader import agent_columns
from .result_table import (
    LINK_COLUMNS,
    format_aligned,
    format_html,
    format_value,
    solution_entries,
)

OWN_MEASURES = (
    "local_loss upper_loss lower_error consensus disagreement solver_error x_direction y_direction "
    "stationarity waited epsilon"
).split()
MAX_ENTRIES = 40  # lines of a table, if it is not scrolled


class Section(NamedTuple):
    """A table of a summary; its first line is the header."""

    title: str
    cells: list[list[str]]

    def shortened(self) -> "Section":
        """Return the section with at most `MAX_ENTRIES` lines; the last one says what is left."""
        more = len(self.cells) - 1 - MAX_ENTRIES
        if more <= 1:
            return self
        blank = [""] * (len(self.cells[0]) - 1)
        return Section(self.title, [*self.cells[:-more], [f"and {more} more", *blank]])


class RunSummary(NamedTuple):
    """Sentences, and tables of x, of y by agent, of scores and of costs."""

    sentences: list[str]
    sections: list[Section]

    def __repr__(self) -> str:
        """Format as text."""
        parts = ["\n".join(self.sentences)]
        for title, cells in map(Section.shortened, self.sections):
            parts.append(f"{title}\n{format_aligned(cells)}")
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        paragraphs = [f"<p>{html.escape(sentence)}</p>" for sentence in self.sentences]
        for title, cells in map(Section.shortened, self.sections):
            paragraphs.append(f"<p><b>{html.escape(title)}</b></p>{format_html(cells)}")
        return "".join(paragraphs)


def summarize_run(manifest: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> RunSummary:
    """Summarize a run from its manifest and its evaluations."""
    answer = manifest.get("answer") or {}
    agents = agent_columns(manifest, manifest["network"]["agents"])
    best_round = answer.get("best", {}).get("round", lines[-1]["round"] if lines else 0)
    best = next((line for line in lines if line["round"] == best_round), {})
    cooperation = read_cooperation(answer)
    sentences = [_describe_decrease(manifest, lines, best), as_sentence(manifest.get("message"))]
    sentences += cooperation.sentences if cooperation else []
    sections = [
        _x_section(manifest, answer),
        _y_section(answer, agents),
        _score_section(cooperation) if cooperation else _measured_section(best, agents),
        _cost_section(lines),
    ]
    return RunSummary(
        [sentence for sentence in sentences if sentence],
        [section for section in sections if len(section.cells) > 1],
    )


def as_sentence(text: str | None) -> str:
    """Return the text with a capital and a full stop."""
    return f"{text[0].upper()}{text[1:].rstrip('.')}." if text else ""


def _describe_decrease(
    manifest: Mapping[str, Any], lines: Sequence[Mapping[str, Any]], best: Mapping[str, Any]
) -> str:
    """Say how far the run came."""
    site, network = manifest.get("site"), manifest["network"]
    several = network["agents"] > 1
    team = f"{network['agents']} agents on {network['name']}" if several else "one agent"
    who = f"{site['name']}, one of {team}" if site else team
    start = f"{lines[-1]['round'] if lines else 0} rounds of {who}"
    name = next((n for n in ("upper_loss", "local_loss") if n in best), "")
    if not name:
        return f"{start}."
    title, first, end = name.replace("_", " "), lines[0][name], best[name]
    if not end < first:
        return f"{start}: no evaluation has a smaller {title} than the start, {first:.4g}."
    return f"{start}: {title} {first:.4g} at the start, {end:.4g} in round {best['round']}."


def _x_section(manifest: Mapping[str, Any], answer: Mapping[str, Any]) -> Section:
    site = manifest.get("site")
    owner = f"of {site['name']}" if site else "mean of the agents"
    meaning = answer.get("meaning", "")
    entries = solution_entries(dict(answer))
    rows = [[name, "  ".join(map(format_value, values))] for name, values in entries]
    if not rows and "size" in answer:
        rows = [[f"{answer['size']:,} numbers", "`diamond export` writes them"]]
    return Section(f"x: {meaning or 'shared by all agents'}", [["entry", owner], *rows])


def model_entries(answer: Mapping[str, Any]) -> tuple[str, dict[str, list[float]]]:
    """Return a title, and the numbers of the agents' models by entry: coefficients, or y."""
    if coefficients := answer.get("coefficients"):
        return f"Coefficients: {coefficients['meaning']}", coefficients["values"]
    return "y of each agent", answer.get("y", {})


def _y_section(answer: Mapping[str, Any], agents: list[str]) -> Section:
    title, values = model_entries(answer)
    rows = [[entry, *map(format_value, row)] for entry, row in values.items()]
    return Section(title, [["entry", *agents], *rows])


def _measured_section(best: Mapping[str, Any], agents: list[str]) -> Section:
    """Tabulate what was measured on the rows of each agent."""
    own = best.get("agents") or {}
    names = [name for name in own if name not in OWN_MEASURES and not name.endswith("_se")]
    names = names or [name for name in ("local_loss",) if name in own]
    columns = [[format_value(float(value)) for value in own[name]] for name in names]
    titles = [name.replace("_", " ") for name in names]
    rows = [[agent, *row] for agent, row in zip(agents, zip(*columns))]
    return Section(f"Each agent, in round {best.get('round', 0)}", [["agent", *titles], *rows])


def _score_section(cooperation: Cooperation) -> Section:
    measure = cooperation.measure.replace("_", " ")
    return Section(f"{measure} on {cooperation.rows} rows of each agent", cooperation.cells())


def _cost_section(lines: Sequence[Mapping[str, Any]]) -> Section:
    if not lines:
        return Section("Cost", [[]])
    last = lines[-1]
    calls = sum(last.get(name, 0) for name in ("gradients", "hvps", "jvps"))
    columns = {
        "rounds": f"{last['round']:,}",
        "calls per agent": f"{calls:,.0f}",
        "MB sent": format_value(last.get("bytes", math.nan) / 1e6),
        "seconds": format_value(float(last.get("seconds", math.nan))),
    } | {n.replace("_", " "): format_value(float(last[n])) for n in LINK_COLUMNS if n in last}
    return Section("Cost", [[*columns], [*columns.values()]])
