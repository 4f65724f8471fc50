"""The page: a template, its style and scripts, and the numbers, put into one file."""

import base64
import hashlib
import html
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from .payload import dumps, payload

HERE = Path(__file__).parent
PLOTLY, STYLE = HERE / "vendor" / "plotly-basic.min.js", HERE / "page" / "report.css"
SHARED = [HERE / "page" / f"{name}.js" for name in "numbers dom chart theme".split()]
OWN = "data scale convergence target links network costs sensitivity about pace main".split()
SCRIPTS = [*SHARED, *(HERE / "page" / f"{name}.js" for name in OWN)]


def build(folders: list[Path], out: Path) -> Path:
    """Write the report of all runs below `folders` as one offline HTML file, under 2 MB."""
    return write(render(payload([Path(folder) for folder in folders])), Path(out))


def write(text: str, out: Path) -> Path:
    """All of a page or nothing of it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".part")
    partial.write_text(text, encoding="utf-8")
    partial.replace(out)
    return out


def render(found: dict[str, Any], live: bool = False) -> str:
    """The page as text. `live` lets it ask its server."""
    parts = {"live": "true" if live else "false", "style": read(STYLE)}
    return fill(HERE / "page" / "report.html", found, SCRIPTS, parts, live)


def fill(
    template: Path,
    found: dict[str, Any],
    scripts: Sequence[Path],
    parts: dict[str, str],
    live: bool = False,
) -> str:
    """The template with the numbers `found`, which have a title, and these scripts as one.

    The page runs Plotly and its own script only.
    """
    joined = "\n".join(read(path) for path in scripts)
    plotly, script = read(PLOTLY), f'"use strict";\n(() => {{\n{joined}\n}})();\n'
    parts = parts | {
        "title": html.escape(found["title"]),
        "policy": policy([plotly, script], live),
        "data": dumps(found).replace("<", "\\u003c"),
        "plotly": plotly,
        "script": script,
    }
    # In one pass: nothing that was put in is looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], read(template))


def policy(scripts: list[str], live: bool) -> str:
    """The page's content security policy: these scripts, and no request to anywhere else."""
    digests = [hashlib.sha256(text.encode()).digest() for text in scripts]
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    connect = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        f"img-src data: blob:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


@cache
def read(path: Path) -> str:
    """A file of the package."""
    return path.read_text(encoding="utf-8")
