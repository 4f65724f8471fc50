"""README and documentation as blocks of code, and what they say they print."""

import io
import re
import shlex
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from typer.testing import CliRunner

from diamond import bench, cli
from diamond.config import federation_file, user_functions
from diamond.config.experiment_file import load

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RESULTS = DOCS / "results"  # records of measurements: their commands exist, but are not run
GUIDES = [page for page in sorted(DOCS.rglob("*.md")) if not page.is_relative_to(RESULTS)]
PAGES = [ROOT / "README.md", *GUIDES]
GENERATED = re.compile(r"^<!-- generated: .*?^<!-- end -->$", re.S | re.M)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```|^(    diamond .*?)$", re.S | re.M)
ENV = {"NO_COLOR": "1", "COLUMNS": "150", "TERM": "dumb"}
RUN = ("python", "shell", "toml", "text")
SHOWN = ("ini", "dockerfile", "py")  # for machines of another kind; code of other packages
LONG = (
    "advise",
    "bench",
    "demo",
    "live",
    "reproduce",
    "tune",
)  # minutes, or for ever: tested elsewhere
APART = (
    ["net", "start"],
    ["net", "status"],
    ["net", "stop"],
    ["net", "doctor"],
    ["net", "relay"],
)  # need other machines: tested elsewhere


def written(page):
    """The text of a page without its generated parts."""
    return GENERATED.sub("", page.read_text())


def blocks(page):
    """(kind, text) of every block; a command in an indented one is a block of its own."""
    for kind, text, command in BLOCK.findall(written(page)):
        yield kind or "shell", text or command


def commands(page):
    """Words of every command of diamond that a page shows."""
    for kind, text in blocks(page):
        for line in text.splitlines() if kind == "shell" else []:
            words = shlex.split(line, comments=True)
            if words[:1] == ["diamond"]:
                yield words[1:]


def verbs(pages):
    """The verbs of diamond that the pages show."""
    return {words[0] for page in pages for words in commands(page)} - {*LONG}


def play(page, kinds=RUN):
    """Run a page from top to bottom in the present folder; the names its Python has left.

    A file of the page is run once: commands find its functions compiled, as long as it stays.
    """
    with pytest.MonkeyPatch.context() as patch:
        run, found = user_functions._execute_file, {}

        def once(path, key):
            what = path.resolve(), path.read_bytes() if path.is_file() else None
            if what not in found:
                found[what] = run(path, key)
            return found[what]

        patch.setattr(user_functions, "_execute_file", once)
        return _played(page, kinds)


def _played(page, kinds):
    names: dict = {}
    output = ""
    for kind, text in blocks(page):
        assert kind in RUN + SHOWN, f"{page.name}: no way to run a block of {kind}"
        if kind not in kinds:
            continue
        if kind == "python":
            output = _python(text, names, page.name)
        elif kind == "shell":
            output = "".join(map(_command, text.splitlines()))
        elif kind == "toml":
            path = Path(text.splitlines()[0].removeprefix("# "))
            path.write_text(text)
            kinds_of = {
                "[sites]": federation_file.load,
                "methods = ": lambda at: bench.load_suite(str(at)),
            }
            next((read for mark, read in kinds_of.items() if mark in text), load)(path)
        else:
            assert quotes(text, output), f"{page.name} promises\n{text}\nbut it is\n{output}"
    return names


def quotes(text, output):
    """Whether `text`, "..." in it standing for anything, is in the output."""
    parts = map(re.escape, " ".join(text.split()).split("..."))
    return re.search(".*?".join(parts), " ".join(output.split())) is not None


def _python(text, names, where):
    first = text.splitlines()[0]
    saved = re.fullmatch(r"# \w+\.py", first)
    heard = io.StringIO()
    with redirect_stdout(heard):
        if saved:  # a file, and the one that commands run
            path = Path(first.removeprefix("# "))
            path.write_text(text)
            names |= vars(user_functions._execute_file(path, where))
        else:
            exec(compile(text, where, "exec"), names)
    return heard.getvalue()


def _command(line):
    """What a command prints; only diamond's own are run."""
    words = shlex.split(line, comments=True)
    if words[:1] != ["diamond"] or words[1] in LONG or words[1:3] in APART:
        return ""
    found = CliRunner().invoke(cli.app, words[1:], env=ENV)
    assert found.exit_code == 0, f"{line}\n{found.output}\n{found.exception!r}"
    return found.output
