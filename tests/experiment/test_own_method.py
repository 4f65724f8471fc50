"""A method of one's own, from a file: read, checked, run, tuned and advised on as any other."""

from types import SimpleNamespace

import pytest
from fast_compilation import skip_loss_checks, skip_measures, without_optimizations
from tiny_experiment import TINY, TOML, RecordingListener, run_experiment
from typer.testing import CliRunner

import diamond
from diamond import cli, theory
from diamond.advice import recommendation
from diamond.config import federation_file
from diamond.config.experiment_file import load, validate
from diamond.config.validation_errors import BadExperiment
from diamond.experiment.execution import ResumeOverrides, check_unchanged
from diamond.schedules.learned import learned_names
from diamond.tuning.experiment_grid import list_settings

MINE = '''
"""D-SGD whose lower level takes half the step."""
import diamond
from beside import HALF

def make(alpha: float | None = None, beta: float | None = None, batch: int = 2):
    order, found = diamond.algorithms.choose("auto", None, alpha=alpha, beta=beta)
    slower = diamond.schedules.scaled(HALF, found["beta"])
    estimator = diamond.hypergradient.conjugate_gradient(2)
    return diamond.dsgd(found["alpha"], slower, batch, estimator, order)

def no_algorithm():
    return 3

def picky(batch: int):
    raise ValueError("not today")
'''


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    skip_loss_checks(monkeypatch)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "beside.py").write_text("HALF = 0.5\n")
    (tmp_path / "tiny.toml").write_text(TOML)
    with without_optimizations():
        yield tmp_path


def experiment(here, algorithm, **changes):
    return validate(TINY | {"algorithm": algorithm, "rounds": 3} | changes, here, "tiny.toml")


@pytest.mark.wide
def test_it_is_run_by_name_and_its_file_is_remembered(here, monkeypatch):
    skip_measures(monkeypatch)
    one = experiment(here, {"name": "mine.py:make", "alpha": 0.05, "beta": 0.2})
    assert one.algorithm[0].label == "mine"
    manifest = run_experiment(one, here / "runs" / "a")
    assert manifest["status"] == "finished"
    assert manifest["algorithm"]["name"] == "mine.py:make"
    assert set(manifest["problem"]["sources"]) == {"../../mine.py", "../../beside.py"}
    again = load(here / "runs" / "a" / "config.toml")
    assert again.algorithm[0].options == one.algorithm[0].options
    assert run_experiment(again, here / "b", RecordingListener())["digest"] == manifest["digest"]
    built = diamond.dsgd(0.05, diamond.schedules.scaled(0.5, 0.2), 2, None, "paper")
    assert one.algorithm[0].build().schedule_values(3) == built.schedule_values(3)
    at = again.problem.build(), here / "runs" / "a", ResumeOverrides()
    assert check_unchanged(again, *at) == []
    (here / "mine.py").write_text(MINE + "\n# another\n")
    with pytest.raises(BadExperiment, match=r"mine\.py has changed"):
        check_unchanged(load(here / "runs" / "a" / "config.toml"), *at)


@pytest.mark.parametrize("algorithm, message", [
    ("mein.py:make", "there is no file "),
    ("mine.py:mkae", "mine.py has no function 'mkae'; did you mean make?"),
    ("mine.py:no_algorithm", "no_algorithm returned int; return an algorithm, a subclass of"),
    ("mine.py:picky", "is missing: mine.py:picky needs it"),
    ({"name": "mine.py:picky", "batch": 3}, "not today"),
    ({"name": "mine.py:make", "alhpa": 3}, "is no option of mine.py:make; did you mean alpha?"),
    ({"name": "mine.py:make", "batch": "x"}, "must be a whole number, not 'x'"),
    ("daimond", "did you mean diamond?, or your own as"),
])  # fmt: skip
def test_what_is_wrong_with_it_is_said(here, algorithm, message):
    with pytest.raises(BadExperiment) as found:
        experiment(here, algorithm)
    assert message in str(found.value) and "algorithm" in str(found.value)


@pytest.mark.wide
def test_lists_and_grids_work_on_it(here):
    swept = experiment(here, {"name": "mine.py:make", "alpha": [0.1, 0.2], "beta": 0.1})
    assert [part.label for part in swept.algorithm] == [
        "mine.py:make, alpha=0.1",
        "mine.py:make, alpha=0.2",
    ]
    one = experiment(here, "mine.py:make")
    table = {"name": "mine.py:make", "alpha": 0.1, "beta": 0.1}
    tried = list_settings(table, one.problem.build(), one.network[0].build(), 0, here)
    assert len(tried) == 27 and tried[0][0]["name"] == "mine.py:make"


def test_its_steps_can_choose_themselves(here):
    built = experiment(here, "mine.py:make").algorithm[0].build()
    assert learned_names(built) == {"alpha", "beta"}


def test_a_federation_names_what_all_sites_have(here):
    terms = {"rounds": 3, "network": "ring:3", "algorithm": "mine.py:make"}
    sites = {name: f"localhost:{port}" for port, name in enumerate("abc", 5001)}
    with pytest.raises(BadExperiment, match=r"no algorithm 'mine\.py:make'"):
        federation_file.from_terms("f", terms, sites)


def test_advise_takes_it(here, monkeypatch):
    seen = {}

    def spy(problem, network, batch, target, seed, pilot, algorithms):
        seen.update(algorithms)
        raise FileNotFoundError("enough")

    monkeypatch.setattr(recommendation, "advise", spy)
    own = "algorithm = 'mine.py:make'\n"
    (here / "own.toml").write_text(TOML[: TOML.index("[algorithm]")] + own)
    for words, names in (
        (["tiny.toml", "--algorithm", "mine.py:make"], {"mine", "diamond"}),
        (["own.toml"], {*recommendation.methods_to_try("personal", 3, "symmetric"), "mine"}),
        (["own.toml", "--algorithm", "dsgd"], {"dsgd", "mine"}),
    ):
        seen.clear()
        assert CliRunner().invoke(cli.app, ["advise", *words]).exit_code == 2
        assert set(seen) == names
    bad = CliRunner().invoke(cli.app, ["advise", "tiny.toml", "--algorithm", "mine.py:mkae"])
    assert bad.exit_code == 2 and "did you mean make?" in bad.stderr


@pytest.mark.wide
def test_own_methods_are_extrapolated_as_plain_sampling(here, monkeypatch):
    alike = SimpleNamespace(heterogeneity=0.0, condition=1.0)
    monkeypatch.setattr(theory, "estimate", lambda *given, **named: alike)
    one = experiment(here, {"name": "mine.py:make", "alpha": 0.05, "beta": 0.2})
    built, rates = {"mine": one.algorithm[0].build()}, []
    rounds_to = lambda target, run, rate: rates.append(rate) or 1000.0
    monkeypatch.setattr(recommendation, "_rounds_to", rounds_to)
    parts = one.problem.build(), one.network[0].build()
    found = recommendation.advise(*parts, batch=2, pilot=10, algorithms=built)
    (prospect,) = found.prospects
    assert prospect.algorithm == "mine" and found.best.algorithm == "mine"
    assert rates == [1 / 2] and prospect.rounds == 1000.0
