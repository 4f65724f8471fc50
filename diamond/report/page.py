"""The page: a template, its style and scripts, and the numbers, put into one file."""

import base64
import hashlib
import html
import re
from functools import cache
from pathlib import Path
from typing import Any

from .payload import dumps, payload

HERE = Path(__file__).parent
SCRIPTS = [
    *"data dom chart scale convergence target links network".split(),
    *"costs sensitivity about pace main".split(),
]


def build(folders: list[Path], out: Path) -> Path:
    """Write the report of all runs below `folders` as one offline HTML file, under 2 MB."""
    out = Path(out)
    text = render(payload([Path(folder) for folder in folders]))
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".part")
    partial.write_text(text, encoding="utf-8")
    partial.replace(out)
    return out


def render(found: dict[str, Any], live: bool = False) -> str:
    """The page as text. It runs its own two scripts only, and `live` lets it ask its server."""
    plotly, script = _file("vendor/plotly-basic.min.js"), _script()
    parts = {
        "title": html.escape(found["title"]),
        "live": "true" if live else "false",
        "policy": policy([plotly, script], live),
        "style": _file("page/report.css"),
        "data": dumps(found).replace("<", "\\u003c"),
        "plotly": plotly,
        "script": script,
    }
    # In one pass: nothing that was put in is looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _file("page/report.html"))


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
def _file(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _script() -> str:
    parts = "\n".join(_file(f"page/{name}.js") for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}\n}})();\n'
