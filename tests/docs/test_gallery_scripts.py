"""The cards of the gallery: every problem has a picture and a script, and the scripts run."""

import re
import runpy

import pytest
from fast_compilation import without_optimizations
from pages import DOCS

import diamond
from diamond.templates.problem_templates import TEMPLATE_SETTINGS

SCRIPTS = sorted((DOCS / "reference" / "gallery").glob("*.py"))


@pytest.mark.quick
def test_every_problem_has_a_card_with_files_that_exist():
    page = DOCS / "reference" / "gallery.md"
    cards = re.findall(
        r"^\|\[!\[(\w+)\]\((.*?)\)\].*\[script\]\((.*?)\)\|$", page.read_text(), re.M
    )
    assert {name for name, *_ in cards} == {*TEMPLATE_SETTINGS}
    assert {script.stem for script in SCRIPTS} == {*TEMPLATE_SETTINGS}
    assert all((page.parent / file).is_file() for _, *files in cards for file in files)


@pytest.mark.wide(keep=["regression"])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_the_script_of_a_problem_runs(script, monkeypatch, capsys, float32):
    """Two rounds take the place of all."""
    solve = diamond.solve
    short = lambda problem, network, rounds=None: solve(problem, network, rounds=2)
    monkeypatch.setattr(diamond, "solve", short)
    with without_optimizations():
        names = runpy.run_path(str(script))
    assert names["run"].rounds <= 2 and names["problem"].agents > 1
    assert "rounds of" in capsys.readouterr().out
