"""SECURITY.md against the package: what it claims exists, and what exists is not denied."""

import re
from importlib import import_module
from pathlib import Path

import pytest
import typer.main

import diamond
from diamond import cli
from diamond.config.federation_file import Federation

pytestmark = pytest.mark.quick
PAGE = (Path(diamond.__file__).parents[1] / "SECURITY.md").read_text()
# Keys of a federation that protect, and the words by which readers look for them.
PROTECTIONS = {
    "privacy": "differential privacy",
    "masked": "secure aggregation",
    "network": "robust mixing",
    "signed": "signed messages",
    "missing": "absent and late sites",
}
ROWS = [line for line in PAGE.splitlines() if line.startswith("| **")]


def commands():
    """All commands of the command line, as in {"net start"}."""
    group = typer.main.get_command(cli.app)
    nested = group.commands["net"].commands
    return {*group.commands} | {f"net {name}" for name in nested}


def test_every_protection_names_something_that_exists():
    known = commands()
    assert len(ROWS) > 8
    for row in ROWS:
        names = re.findall(r"`([^`]+)`", row)
        modules = [name for name in names if re.fullmatch(r"diamond(\.\w+)+", name)]
        for name in modules:
            import_module(name)
        for name in (n.removeprefix("diamond ") for n in names if n.startswith("diamond ")):
            assert name in known, name
        keys = [name for name in names if name in Federation.model_fields]
        assert modules or keys or any(n.startswith("diamond ") for n in names), row


def test_every_protection_of_a_federation_is_in_the_table():
    for key, words in PROTECTIONS.items():
        assert key in Federation.model_fields
        row = next(row for row in ROWS if f"| `{key}` |" in row)
        assert words in row.lower()


def test_no_protection_that_exists_is_denied():
    prose = " ".join(PAGE.split()).lower()
    for words in [*PROTECTIONS.values(), "byzantine", "robust"]:
        denials = re.findall(rf"(?:neither|\bno\b|\bnor\b|is not|there is no)[^.|]*{words}", prose)
        assert not denials, denials
