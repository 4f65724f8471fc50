"""Build-time parts of the site: generated reference pages, notebooks, formulas as MathML.

A page contains a mark such as `<!-- generated: command_line -->`; the function of that name fills
it. Tables of the reference are committed too, up to a mark `<!-- end -->`:

    python docs/hooks.py    writes the generated tables into the pages of docs/reference

Tutorials have a mark `<!-- notebook: NAME -->` and are executed (`notebooks.py`), unless the
variable DIAMOND_TUTORIALS is "off". This module is an extension of Python-Markdown, which the
builder of the site loads by its name.
"""

import html
import inspect
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.postprocessors import Postprocessor
from markdown.preprocessors import Preprocessor

sys.path.append(str(Path(__file__).parent))
import notebooks

MARK = re.compile(r"^<!-- generated: (\w+)((?: [\w.]+)*) -->$(?:.*?^<!-- end -->$)?", re.M | re.S)
COMMITTED = ["command_line", "combinations", "experiment_file", "methods"]
REFERENCE = Path(__file__).parent / "reference"
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.S)


class GeneratedParts(Preprocessor):
    """Fills the generated parts of a page, before anything else reads the page."""

    def run(self, lines: list[str]) -> list[str]:
        return show_page("\n".join(lines)).split("\n")


class Formulas(Postprocessor):
    """Converts the formulas of a page, after all HTML is in the page."""

    def run(self, text: str) -> str:
        return convert_formulas(text)


class PageParts(Extension):
    """Both, as one extension of Python-Markdown."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.preprocessors.register(GeneratedParts(md), "generated_parts", 100)
        md.postprocessors.register(Formulas(md), "formulas", -100)


def makeExtension(**options: Any) -> PageParts:
    """Return the extension: Python-Markdown calls the function of this name."""
    return PageParts(**options)


def show_page(markdown: str) -> str:
    """Fill the generated parts of a page; show the outputs of a tutorial."""
    return fill_marks(notebooks.shown(markdown))


def fill_marks(markdown: str, committed: bool = False) -> str:
    """Fill the generated parts of a page; `committed` leaves the marks around them."""

    def fill(mark: re.Match[str]) -> str:
        text = GENERATED[mark[1]](*mark[2].split())
        start = mark[0].splitlines()[0]
        return f"{start}\n{text.strip()}\n<!-- end -->" if committed else text

    return MARK.sub(fill, markdown)


def convert_formulas(html: str) -> str:
    """Convert the formulas of a page to MathML, which browsers show without a script."""
    return FORMULA.sub(_mathml, html)


def _mathml(found: re.Match[str]) -> str:
    formula = html.unescape(found[3]).strip().replace("{aligned}", "{align*}")
    if found[2] == "(":
        return convert(formula, display="inline")
    return f'<div class="formula">{convert(formula, display="block")}</div>'


def command_line() -> str:
    """Describe every command of `diamond` with its arguments and options."""
    import typer

    from diamond.cli import app

    root: Any = typer.main.get_command(app)
    lines = [root.epilog or "", ""]
    for name, command in _commands(root, "diamond"):
        words = " ".join(p.name.upper() for p in command.params if not _is_option(p))
        lines += [f"## {name}", "", f"    {name} {words}".rstrip(), "", command.help or "", ""]
        rows = [_option(p) for p in command.params if not p.hidden]
        if rows:
            lines += [
                "| argument or option | meaning | default |",
                "| --- | --- | --- |",
                *rows,
                "",
            ]
    return "\n".join(lines)


def _commands(group: Any, name: str) -> list[tuple[str, Any]]:
    found = []
    for word, command in group.commands.items():
        inside = getattr(command, "commands", None)
        found += _commands(command, f"{name} {word}") if inside else [(f"{name} {word}", command)]
    return found


def _is_option(parameter: Any) -> bool:
    return any(word.startswith("-") for word in parameter.opts)


def _option(parameter: Any) -> str:
    """Return the table row of an option or argument; a default in its help goes to its column."""
    names = parameter.opts if _is_option(parameter) else [parameter.name.upper()]
    meaning, _, default = (parameter.help or "").partition(" Default: ")
    default = default.rstrip(".")
    if not default and not parameter.required and parameter.default not in (None, [], (), False):
        value = parameter.default
        several = isinstance(value, list | tuple)
        default = f"`{', '.join(map(str, value)) if several else value}`"
    if parameter.required:
        default = "required"
    shown = ", ".join(f"`{name}`" for name in names)
    return f"| {shown} | {_cell(meaning)} | {_cell(default)} |"


def keys(model: str) -> str:
    """Describe the keys of a file: a pydantic model, or the arguments of a function."""
    module, _, name = model.rpartition(".")
    made = getattr(__import__(module, fromlist=[name]), name)
    meanings = described(made)
    one_or_more = hasattr(made, "model_fields")  # lists of a file may be single values
    rows = []
    for key, (annotation, default) in _fields(made).items():
        kind = "" if annotation is None else _type(annotation)
        if one_or_more:
            kind = re.sub(r"^list of (.*)", r"\1, or a list", kind)
        rows.append(f"| `{key}` | {_cell(meanings[key])} | {_cell(kind)} | {_cell(default)} |")
    return "\n".join(["| key | meaning | type | default |", "| --- | --- | --- | --- |", *rows])


def described(made: Any) -> dict[str, str]:
    """Return the meanings in the section Args or Attributes of a docstring, by name."""
    text = inspect.getdoc(made) or ""
    section = re.search(r"^(?:Args|Attributes):\n((?:    .*\n?|\n)*)", text, re.M)
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section[1] if section else "", re.M)
    return {name: " ".join(meaning.split()) for name, meaning in entries}


def _fields(made: Any) -> dict[str, tuple[Any, str]]:
    """Return (annotation, default) of every key; the annotation is None for components."""
    if hasattr(made, "model_fields"):
        found = {}
        for name, field in made.model_fields.items():
            parts = name in ("problem", "network", "algorithm")
            needed = field.is_required() and name != "name"
            default = "required" if needed else _default(field.default)
            found[name] = (None if parts else field.annotation, default)
        return found
    parameters = inspect.signature(made).parameters
    taken = {n: p for n, p in parameters.items() if n not in ("real", "first")}
    return {n: (p.annotation, _default(p.default)) for n, p in taken.items()}


def _default(value: Any) -> str:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, tuple):
        value = list(value)
    empty = value is None or value == {} or "Undefined" in repr(value)
    return "" if empty else f"`{value!r}`".replace("'", '"')


def _type(annotation: Any) -> str:
    """Return an annotation in words of TOML."""
    words = {str: "text", int: "integer", float: "number", bool: "true or false", dict: "table"}
    if annotation in words:
        return words[annotation]
    inner = [part for part in get_args(annotation) if part is not type(None)]
    origin = get_origin(annotation)
    if origin is dict:
        return "table"
    if origin is list or str(origin).endswith("Sequence'>"):
        return f"list of {_type(inner[0])}"
    if origin is Literal:
        return " or ".join(f'"{part}"' for part in inner)
    if hasattr(annotation, "__metadata__"):
        return _type(inner[0])
    if inner:
        return " or ".join(dict.fromkeys(_type(part) for part in inner))
    return getattr(annotation, "__name__", str(annotation))


def methods() -> str:
    """Return the table of all methods, with the cases of the benchmark that each has solved."""
    from diamond import catalogue
    from diamond.advice.standings import load_standings

    solved: dict[str, list[str]] = {"name": ["solved"], "---": ["---"]}
    for suite, rows in load_standings().items():
        for row in rows:
            cases = f"{suite} {row.solved} of {row.cases}"
            solved.setdefault(row.method, []).append(cases)

    def with_solved(line: str) -> str:
        if not line.startswith("|"):
            return line
        return f"{line} {', '.join(solved.get(line.split('|')[1].strip(), []))} |"

    table = "\n".join(map(with_solved, catalogue.markdown().splitlines()))
    return table.replace("*", "\\*")  # y*inner z*inner x


def exclusions(kind: str) -> str:
    """Return the table of features that cannot be combined, of one kind."""
    from diamond.core.exclusions import EXCLUSIONS

    rows = [
        f"| {row.features} | {row.others} | {row.reason}{' (*sites*)' * (row.scope == 'sites')} "
        f"| {row.remedy} |"
        for row in EXCLUSIONS
        if row.kind == kind.replace("_", " ")
    ]
    return "\n".join(
        ["| feature | not with | reason | remedy |", "| --- | --- | --- | --- |", *rows]
    )


def every_method() -> str:
    """Return the API entry of every function that makes a method, with an example."""
    from diamond import catalogue
    from diamond.catalogue.registry import package_methods

    own = package_methods()
    names = [name for name in catalogue.names() if name in own and name != catalogue.COMPOSED]
    entry = lambda name: _entry(f"diamond.{name}", catalogue.maker(name))
    return "\n".join(f"{entry(name)}\n```python\n{method_example(name)}```\n" for name in names)


def method_example(name: str) -> str:
    """Return code that runs a method on a problem with a lower level that it is for."""
    from diamond import catalogue

    level = catalogue.maker(name)().lower_levels[0]
    kind = "" if level == "personal" else f', lower_level="{level}"'
    method = "algorithms.solve.solve" if name == "solve" else name
    return (
        f"problem = diamond.gallery.quadratic(agents=4, upper=3, lower=3, rows=20{kind})\n"
        f"method = diamond.{method}(batch=4)\n"
        f"run = diamond.simulate(problem, diamond.network.ring(4), method, rounds=100)\n"
    )


def members(module: str, level: str = "2") -> str:
    """Return the API entries of the public names of a module, with headings of a level."""
    made = __import__(module, fromlist=["_"])
    parts = []
    for name in public_names(module):
        parts.append(_entry(f"{module}.{name}", getattr(made, name), level))
        if example := examples().get(f"{module}.{name}"):
            parts.append(f"```pycon\n{example}\n```\n")
        elif (script := REFERENCE / "gallery" / f"{name}.py").exists():
            parts.append(f"```python\n{script.read_text()}```\n")
    return "\n".join(parts)


@cache
def examples() -> dict[str, str]:
    """Return the examples of docs/reference/api/examples.txt, by the function they call first."""
    text = (REFERENCE / "api" / "examples.txt").read_text()
    blocks = [block.strip() for block in text.split("\n\n") if "(" in block and ">>> " in block]
    return {re.search(r"(diamond[\w.]+)\(", block)[1]: block for block in blocks}


def _entry(name: str, value: Any, level: str = "2") -> str:
    """Return an API entry by the defining module, since a module may have a function's name."""
    options = {"heading": name, "toc_label": name.rpartition(".")[2], "heading_level": level}
    lines = [f"      {key}: {option}" for key, option in options.items()]
    return "\n".join([f"::: {value.__module__}.{value.__qualname__}", "    options:", *lines, ""])


def public_names(module: str) -> list[str]:
    """Return the public names of a module, without its modules and type aliases."""
    made = __import__(module, fromlist=["_"])
    names = getattr(made, "__all__", None) or [n for n in vars(made) if n[0] != "_"]
    is_documented = lambda value: inspect.isfunction(value) or inspect.isclass(value)
    own = lambda value: str(getattr(value, "__module__", "")).startswith("diamond")
    listed = [n for n in names if is_documented(getattr(made, n)) and own(getattr(made, n))]
    error = lambda value: inspect.isclass(value) and issubclass(value, Exception)
    return listed if hasattr(made, "__all__") else [n for n in listed if not error(vars(made)[n])]


def _cell(text: str) -> str:
    """Return text for a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")


GENERATED: dict[str, Callable[..., str]] = {
    "command_line": command_line,
    "every_method": every_method,
    "exclusions": exclusions,
    "keys": keys,
    "members": members,
    "methods": methods,
}


if __name__ == "__main__":
    for name in COMMITTED:
        page = REFERENCE / f"{name}.md"
        page.write_text(fill_marks(page.read_text(), committed=True))
