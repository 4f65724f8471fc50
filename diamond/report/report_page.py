"""Report page: a template with its style, scripts and numbers in one file."""

import base64
import hashlib
import html
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from .report_payload import collect_report_data, dump_compact

HERE = Path(__file__).parent
PLOTLY, STYLE = HERE / "vendor" / "plotly-basic.min.js", HERE / "page" / "report.css"
SHARED_SCRIPTS = [HERE / "page" / f"{name}.js" for name in "numbers dom chart theme".split()]
REPORT_SCRIPT_NAMES = (
    "data scale answer convergence target links network costs sensitivity about pace main".split()
)
SCRIPTS = [*SHARED_SCRIPTS, *(HERE / "page" / f"{name}.js" for name in REPORT_SCRIPT_NAMES)]


def build(folders: list[Path], out: Path) -> Path:
    """Write the report of runs as one offline HTML file, under 2 MB.

    Args:
        folders: Folders of runs or of comparisons.
        out: File to write.
    """
    return write_page(
        render_report(collect_report_data([Path(folder) for folder in folders])), Path(out)
    )


def write_page(text: str, out: Path) -> Path:
    """Write a page atomically."""
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".part")
    partial.write_text(text, encoding="utf-8")
    partial.replace(out)
    return out


def render_report(data: dict[str, Any], live: bool = False) -> str:
    """Render the page as text; if `live` is true, it polls its server."""
    parts = {"live": "true" if live else "false", "style": read_asset(STYLE)}
    return fill_template(HERE / "page" / "report.html", data, SCRIPTS, parts, live=live)


def fill_template(
    template: Path,
    data: dict[str, Any],
    scripts: Sequence[Path],
    parts: dict[str, str],
    *,
    live: bool = False,
) -> str:
    """Fill the template with the numbers `data`, which have a title, and the joined scripts.

    The page runs Plotly and its own script only.
    """
    joined = "\n".join(read_asset(path) for path in scripts)
    plotly, script = read_asset(PLOTLY), f'"use strict";\n(() => {{\n{joined}\n}})();\n'
    parts = parts | {
        "title": html.escape(data["title"]),
        "policy": security_policy([plotly, script], live),
        "data": dump_compact(data).replace("<", "\\u003c"),
        "plotly": plotly,
        "script": script,
    }
    # In one pass, so that inserted text is not searched again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], read_asset(template))


def security_policy(scripts: list[str], live: bool) -> str:
    """Return the content security policy: these scripts, and no requests elsewhere."""
    digests = [hashlib.sha256(text.encode()).digest() for text in scripts]
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    connect = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        f"img-src data: blob:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


@cache
def read_asset(path: Path) -> str:
    """Read a file of the package."""
    return path.read_text(encoding="utf-8")
