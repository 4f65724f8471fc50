"""Names are plain and unique: every module and public class has its own, riddles are none."""

import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path

import pytest

import diamond

pytestmark = pytest.mark.quick

PACKAGE = Path(diamond.__file__).parent
ROOT = PACKAGE.parent
FOLDERS = [
    folder for name in ("diamond", "tests", "benchmarks") if (folder := ROOT / name).is_dir()
]
RIDDLES = {"said", "told", "there", "kept", "gone", "anew", "at_hand", "looked_at"}
ANY_RIDDLE = re.compile(rf"\b({'|'.join(RIDDLES)})\b")


def repeated(names):
    return sorted(name for name, count in Counter(names).items() if count > 1)


def riddles(path):
    """Return the riddles among the identifiers of a file, also in the fields of its f-strings."""
    source = path.read_text("utf-8")
    if not ANY_RIDDLE.search(source):
        return set()
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    names = {token.string for token in tokens if token.type == tokenize.NAME}
    tree = ast.parse(source)
    fields = [node for node in ast.walk(tree) if isinstance(node, ast.FormattedValue)]
    inside = [node for field in fields for node in ast.walk(field)]
    names |= {node.id for node in inside if isinstance(node, ast.Name)}
    return RIDDLES & (names | {node.attr for node in inside if isinstance(node, ast.Attribute)})


def test_every_module_has_a_name_of_its_own():
    modules = [path.stem for path in PACKAGE.rglob("*.py") if not path.stem.startswith("__")]
    packages = [path.parent.name for path in PACKAGE.rglob("*/__init__.py")]
    assert repeated(modules + packages) == []


def test_every_public_class_has_a_name_of_its_own():
    trees = [ast.parse(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")]
    classes = [node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    assert repeated(name for name in classes if not name.startswith("_")) == []


def test_every_test_file_has_a_name_of_its_own():
    assert repeated(path.stem for path in (ROOT / "tests").rglob("test_*.py")) == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_no_identifier_is_a_riddle(folder):
    used = {path: riddles(path) for path in folder.rglob("*.py")}
    assert {str(path.relative_to(ROOT)): names for path, names in used.items() if names} == {}
