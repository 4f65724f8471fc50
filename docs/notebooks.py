"""Pages as notebooks: their code is executed, and its outputs are shown below it.

A page is Markdown. Blocks of `python` and `shell` are cells; a block whose first line is the
comment `# NAME.py` or `# NAME.toml` is written to that file. Blocks of `text` say what the tests
expect, and give way to what was printed. Pictures, and the notebook to download, are part of the
page, so any builder of sites can show it. Executed notebooks are cached in build/notebooks/ by the
text of the page and of the package.

    python docs/notebooks.py docs/tutorials/PAGE.md    executes a page, and writes PAGE.ipynb here
"""

import base64
import hashlib
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ROOT = Path(__file__).parents[1]
CACHE = ROOT / "build" / "notebooks"
SECONDS = 600
MARK = re.compile(r"^<!-- notebook: (\w+) -->\n+", re.M)
BLOCK = re.compile(r"^```(python|shell|toml|text)\n(.*?)^```\n", re.S | re.M)
FILE = re.compile(r"# (\w+\.(?:py|toml))\n")
LINK = re.compile(r"\]\(((?!https?:|#)[^)\s]+?)\.md(#[^)]*)?\)")
SITE = "https://github.com/diamond-bilevel/diamond/blob/main/docs/tutorials/"  # of the sources
# Commands print as into a file; a cell shows one line of progress, which is no result.
SETTINGS = {"NO_COLOR": "1", "COLUMNS": "100", "TERM": "dumb", "JAX_PLATFORMS": "cpu"}


def shown(markdown: str) -> str:
    """Return a page with the outputs of its code, if it has the mark of a notebook."""
    mark = MARK.search(markdown)
    if mark is None or os.environ.get("DIAMOND_TUTORIALS") == "off":
        return markdown
    made = executed(markdown[: mark.start()] + markdown[mark.end() :])
    address = "data:application/x-ipynb+json;base64," + _base64(download(made).encode())
    link = f'<a class="md-button" download="{mark[1]}.ipynb" href="{address}">Notebook</a>'
    title, _, text = rendered(made).partition("\n")
    return f"{title}\n\n<p>{link}</p>\n{text}"


def notebook(markdown: str) -> Any:
    """Return the notebook of a page, without outputs."""
    cells, end = [], 0
    for block in BLOCK.finditer(markdown):
        _add_prose(cells, markdown[end : block.start()])
        end = block.end()
        kind, text = block.groups()
        if kind == "shell":
            text = f"%%bash\n{text}"
        elif file := FILE.match(text):
            text = f"%%writefile {file[1]}\n{text}"
        if kind != "text":
            cells.append(new_code_cell(text.rstrip(), metadata={"kind": kind}))
    _add_prose(cells, markdown[end:])
    for number, cell in enumerate(cells):
        cell["id"] = str(number)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


def _add_prose(cells: list[Any], text: str) -> None:
    if text.strip():
        cells.append(new_markdown_cell(text.strip()))


def executed(markdown: str) -> Any:
    """Return the notebook of a page with its outputs, from the cache if nothing has changed."""
    path = CACHE / f"{_digest(markdown)}.ipynb"
    if not path.exists():
        made = _execute(notebook(markdown))
        CACHE.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        nbformat.write(made, unfinished)
        unfinished.replace(path)
    return nbformat.read(path, as_version=4)


def _digest(markdown: str) -> str:
    sources = sorted((ROOT / "diamond").rglob("*.py"))
    parts = [markdown.encode(), *(path.read_bytes() for path in [Path(__file__), *sources])]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def _execute(made: Any) -> Any:
    from nbclient import NotebookClient

    paths = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(made, timeout=SECONDS, resources={"metadata": {"path": folder}})
        client.execute(env=os.environ | SETTINGS | paths)
    for cell in made.cells:
        cell.metadata.pop("execution", None)  # the times of this build
        if cell.cell_type == "code":
            printed = "".join(out.text for out in cell.outputs if out.get("name") == "stdout")
            rich = [
                out for out in cell.outputs if {"image/png", "text/html"} & {*out.get("data", {})}
            ]
            is_note = printed.startswith("Writing ")  # of %%writefile
            text = [new_output("stream", name="stdout", text=printed)] if printed else []
            cell.outputs = rich if is_note else text + rich
    return made


def rendered(made: Any) -> str:
    """Return the page of an executed notebook."""
    parts = []
    for cell in made.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        source = re.sub(r"^%%(writefile|bash).*\n", "", cell.source)
        parts.append(f"```{cell.metadata['kind']}\n{source}\n```")
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/png" in data:
                address = "data:image/png;base64," + "".join(data["image/png"].split())
                alt = "Picture drawn by the code above"
                parts.append(f'<p><img class="output" alt="{alt}" src="{address}"></p>')
            elif "text/html" in data:
                html = "".join(line.strip() for line in data["text/html"].splitlines())
                parts.append(f'<div class="output">{html}</div>')
            elif text := output.text.strip("\n"):
                parts.append(f"```{{ .text .output }}\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def download(made: Any) -> str:
    """Return a notebook as a file; links to other pages lead to the web."""
    copied = nbformat.from_dict(made)
    for cell in copied.cells:
        if cell.cell_type == "markdown":
            cell.source = LINK.sub(
                lambda link: f"]({SITE}{link[1]}.md{link[2] or ''})", cell.source
            )
    return nbformat.writes(copied) + "\n"


def main() -> None:
    """Execute the pages that the command names."""
    for page in map(Path, sys.argv[1:]):
        made = executed(MARK.sub("", page.read_text()))
        Path(page.stem + ".ipynb").write_text(download(made))


if __name__ == "__main__":
    main()
