"""Files that hosts, indexes and hooks read: they agree with the package and with `make lint`."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from diamond._version import __version__

yaml = pytest.importorskip("yaml", reason="the extra docs is not installed")

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HOOKS = [
    hook
    for repository in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    for hook in repository["hooks"]
]
PINNED = dict(text.split("==") for text in PROJECT["optional-dependencies"]["dev"] if "==" in text)


def test_hooks_run_the_commands_of_make_lint():
    target = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)[1]
    lint = [line.removeprefix("\t$(BIN)/").removesuffix(" .") for line in target.splitlines()]
    hooks = [hook["entry"].removeprefix(".venv/bin/") for hook in HOOKS]
    assert [entry.removesuffix(" --force-exclude") for entry in hooks] == lint


def test_hooks_have_the_versions_of_pyproject():
    tools = {hook["entry"].split()[0] for hook in HOOKS}
    assert tools == {f".venv/bin/{name}" for name in PINNED} == {".venv/bin/ruff", ".venv/bin/mypy"}
    assert all(hook["language"] == "system" for hook in HOOKS)
    assert {name: version(name) for name in PINNED} == PINNED


def test_the_citation_has_the_version_and_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == __version__
    assert citation["license"] == PROJECT["license"]
    assert citation["repository-code"] == PROJECT["urls"]["Source"]
    paper = citation["preferred-citation"]
    assert paper["type"] == "conference-paper" and paper["title"].startswith("DIAMOND: ")
    assert paper["authors"][0]["family-names"] == "Qiu"
    assert paper["title"] in " ".join((ROOT / "README.md").read_text().split())


def test_the_changelog_dates_the_version_that_is_cited():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert f"\n## {__version__} - {citation['date-released']}\n" in changes


def test_the_metadata_say_that_the_package_is_typed_and_where_it_lives():
    assert "Typing :: Typed" in PROJECT["classifiers"]
    assert (ROOT / "diamond" / "py.typed").is_file()
    assert {"Documentation", "Source", "Changelog"} <= set(PROJECT["urls"])


def test_links_of_the_project_files_exist():
    pages = [path.name for path in ROOT.glob("*.md")] + ["examples/README.md"]
    for page in pages:
        links = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / page).read_text())
        inside = [link for link in links if "://" not in link]
        missing = [link for link in inside if not ((ROOT / page).parent / link).exists()]
        assert not missing, f"{page}: {missing}"
