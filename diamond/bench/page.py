"""The page of a benchmark: its numbers and charts in one offline file."""

import html
import re
from pathlib import Path
from typing import Any

from ..report.page import policy
from ..runs.strict_json import dumps

HERE = Path(__file__).parent / "page"
PLOTLY = Path(__file__).parents[1] / "report" / "vendor" / "plotly-basic.min.js"


def build(found: dict[str, Any], out: Path) -> Path:
    """Write the page of these results."""
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_name(out.name + ".part")
    draft.write_text(render(found), encoding="utf-8")
    draft.replace(out)
    return out


def render(found: dict[str, Any]) -> str:
    """The page as text; it runs its own two scripts only, and asks nobody for anything."""
    read = lambda path: path.read_text(encoding="utf-8")
    plotly, script = read(PLOTLY), f'"use strict";\n(() => {{\n{read(HERE / "bench.js")}\n}})();\n'
    parts = {
        "title": html.escape(f"Benchmark {found['suite']}"),
        "policy": policy([plotly, script], live=False),
        "style": read(HERE / "bench.css"),
        "data": dumps(found).replace("<", "\\u003c"),
        "plotly": plotly,
        "script": script,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], read(HERE / "bench.html"))
