"""Words in backticks of docstrings are names that exist, near enough to be meant."""

import ast
import builtins
import inspect
import re
from pathlib import Path

import diamond
from diamond.metrics import measures
from diamond.metrics.stopping import MEASURES
from diamond.problem.problem_validation import RESERVED_NAMES

PACKAGE = Path(diamond.__file__).parent
DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
WORD = re.compile(r"(?<!`)`([A-Za-z_]\w*(?:\.\w+)*)(?:\(.*\))?`(?!`)")
OTHER_PACKAGES = {"asyncio", "jax", "module", "pandas", "torch"}
FILE_ENDINGS = {"accepted", "json", "jsonl", "log", "py", "pyi", "toml"}
# Names of other things: keys of rows and files, of other packages, of the paper, of the parts that
# `compose` takes by name, fields of results, an extra of the package.
ALLOWED = {"DataLoader", "ModelOutput", "b", "barrier", "cbar_r", "classes", "forward", "inner"}
ALLOWED |= {"__all__", "agent", "lost", "moreau", "net", "null", "regularized", "sent"}


def names_in(tree):
    """All names, attributes, parameters, keywords and keys that the code of `tree` uses."""
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                names.add(name)
            case ast.keyword(arg=name) if name:
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.ClassDef(name=name):
                names.add(name)
            case ast.alias(name=name, asname=other):
                names |= {*name.split("."), other or name}
            case ast.Constant(value=str(text)) if text.isidentifier():
                names.add(text)
    return names


def names_of_file(tree):
    """Names of the file's own level and of its classes, with their attributes."""
    names = set()
    for node in tree.body:
        match node:
            case ast.Assign() | ast.AnnAssign() | ast.Import() | ast.ImportFrom():
                names |= names_in(node)
            case ast.ClassDef():
                names |= names_of_file(node) | {
                    n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)
                }
    return names


def public_names():
    """Parameters and attributes of what a user imports, and columns of histories."""
    names = {*RESERVED_NAMES, *MEASURES, *measures.CHEAP, *dir(builtins), *diamond.__all__}
    for value in [getattr(diamond, name) for name in diamond.__all__]:
        names |= {*dir(value)} if isinstance(value, type) else set()
        names |= {
            n for c in getattr(value, "__mro__", ()) for n in getattr(c, "__annotations__", ())
        }
        if callable(value):
            names |= {*inspect.signature(value).parameters}
    return names


def docstrings(node, scope=()):
    """(line, docstring, nodes around it) of the module, its classes and functions."""
    if isinstance(node, DEFINITIONS | ast.Module):
        scope = () if isinstance(node, ast.Module) else (*scope, node)
        if text := ast.get_docstring(node):
            yield getattr(node, "lineno", 1), text, scope or (node,)
        if not isinstance(node, ast.ClassDef):  # a function sees its own names only
            scope = ()
    for child in ast.iter_child_nodes(node):
        yield from docstrings(child, scope)


def unknown_words():
    files = sorted(PACKAGE.rglob("*.py"))
    trees = {path: ast.parse(path.read_text("utf-8")) for path in files}
    known = {part for path in files for part in path.relative_to(PACKAGE).with_suffix("").parts}
    known |= public_names() | ALLOWED | {"diamond"}
    definitions = [n for t in trees.values() for n in ast.walk(t) if isinstance(n, DEFINITIONS)]
    known |= {node.name for node in definitions}
    classes = [node for node in definitions if isinstance(node, ast.ClassDef)]
    fields = set().union(*map(names_of_file, classes))
    for path, tree in trees.items():
        of_file = names_of_file(tree)
        for line, text, around in docstrings(tree):
            for word in WORD.findall(text):
                first, *_, last = parts = word.split(".") * (1 + ("." not in word))
                if len({*parts}) > 1 and (first in OTHER_PACKAGES or last in FILE_ENDINGS):
                    continue
                missing = {*parts} - known - of_file - (fields if "." in word else set())
                if missing and (missing := missing.difference(*map(names_in, around))):
                    yield f"{path.relative_to(PACKAGE)}:{line}: `{word}`: {missing}"


def test_every_word_in_backticks_exists():
    assert not [*unknown_words()]
    assert WORD.findall("Map `alone` over `a.b(c)`, ``x`` and `not a word`") == ["alone", "a.b"]
