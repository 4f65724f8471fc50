"""What new users tripped over: names with spaces, -h, --version, the edge of a grid, a problem."""

import tomllib
from pathlib import Path

import pytest
from commands import command
from helpers import logistic, quad
from tiny_experiment import TOML

import diamond
from diamond.config.experiment_file import experiment_name, load
from diamond.tuning.experiment_grid import TableSetting
from diamond.tuning.experiment_tuning import edge_options
from diamond.tuning.successive_halving import Result


@pytest.mark.parametrize("stem, name", [
    ("my éxp", "my-éxp"), ("my e\u0301xp", "my-éxp"), ("a (2)", "a-2"), ("...", "experiment"),
    ("../up", "up"), ("plain-1.5+b_c", "plain-1.5+b_c"), ("日本", "日本"), ("a\nb", "a-b"),
])  # fmt: skip
def test_any_file_name_makes_a_name(tmp_path, stem, name):
    assert experiment_name(stem) == name
    if "/" not in stem:
        (tmp_path / f"{stem}.toml").write_text(TOML, encoding="utf-8")
        assert load(tmp_path / f"{stem}.toml").name == name


def test_the_command_says_its_version_and_how_to_use_it():
    assert command("--version").stdout == f"diamond {diamond.__version__}\n"
    assert command("-h").stdout == command("--help").stdout
    assert "Usage" in command("run", "-h").stdout


def tried(loss, **options):
    return Result(TableSetting({}, options), [loss])


def test_the_edge_of_a_grid_is_told():
    values = (0.1, 0.2, 0.4)
    grid = [
        tried(abs(a - 0.4) + abs(b - 0.2), a=a, b=b, c=1, d="x") for a in values for b in values
    ]
    assert edge_options(grid) == ["a = 0.4 is the largest that was tried"]
    smallest = edge_options([tried(a, a=a) for a in values])
    assert smallest == ["a = 0.1 is the smallest that was tried"]
    assert edge_options([tried(float("inf"), a=1.0), tried(1.0, a=0.5), tried(2.0, a=0.1)]) == []


def test_a_problem_says_what_it_is():
    assert repr(quad()) == (
        "<Problem: 4 agents, x of 3 numbers, y of 4; rows: train 12 each, valid 12 each>"
    )
    description = repr(logistic(rows=(4, 5, 6), test=True))
    assert "train 4 + 5 + 6" in description and description.endswith("; metrics accuracy>")


def test_all_that_is_optional_is_one_extra():
    about = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = about["optional-dependencies"]
    (inside,) = extras["all"]
    named = set(inside.removeprefix("diamond-bilevel[").removesuffix("]").split(","))
    assert named == set(extras) - {"all", "dev", "docs", "torch"}  # torch is large
