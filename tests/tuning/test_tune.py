"""`diamond tune FILE.toml` on a problem whose best steps are known."""

import itertools
import json
import tomllib

import numpy as np
import pytest
from fast_compilation import skip_divergence_diagnosis, skip_loss_checks, without_optimizations
from typer.testing import CliRunner

from diamond import cli
from diamond.config import sweeps
from diamond.config.experiment_file import load, validate
from diamond.config.validation_errors import BadExperiment
from diamond.engine.pilot_run import learned_numbers
from diamond.gallery import quadratic
from diamond.hardware import compilation_cache
from diamond.network import ring
from diamond.tuning import trial_cache
from diamond.tuning.experiment_grid import FACTORS, FINE_ALPHA_FACTORS, list_settings

TOML = """
rounds = 40
every = 4
seed = 100
network = "ring:3"
problem = {kind = "quadratic", agents = 3, upper = 2, lower = 2, rows = 6, noise = 0.0}

[[algorithm]]
name = "dsgd"
batch = 2
beta = 0.5
alpha = [1e-9, 0.2, 1e20]
hypergradient = {name = "neumann", terms = 3, lipschitz = 2.0}

[[algorithm]]
name = "dsgd"
label = "other"
batch = 2
steps = {alpha = 0.1, beta = [1e-9, 0.5, 1e20]}
hypergradient = {name = "neumann", terms = 3, lipschitz = 2.0}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """In an empty folder, nothing kept in the user's cache, little to compile."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compilation_cache, "enable_compile_cache", lambda: None)
    skip_loss_checks(monkeypatch)
    skip_divergence_diagnosis(monkeypatch)
    (tmp_path / "own.toml").write_text(TOML)
    with without_optimizations():
        yield tmp_path


@pytest.fixture
def calls(monkeypatch):
    """The seeds of the trials that were run, not remembered."""
    seen, real = [], trial_cache.simulate_many

    def counted(*inputs, **options):
        seen.extend(seed for _, seed in inputs[2])
        return real(*inputs, **options)

    monkeypatch.setattr(trial_cache, "simulate_many", counted)
    return seen


def command(*words, code=0):
    env = {"NO_COLOR": "1", "COLUMNS": "150", "TERM": "dumb"}
    result = CliRunner().invoke(cli.app, [str(word) for word in words], env=env)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.mark.wide
def test_the_best_wins_what_diverges_is_out_and_the_tuned_file_runs(folder, calls):
    """A step of 1e-9 stands still, one of 1e20 leaves for infinity: only the middle one learns."""
    output = command("tune", "own.toml", "--json")
    answer = json.loads(output.stdout)
    assert answer["seeds"] == [101, 102] and set(calls) == {101, 102}  # 100 is the experiment's
    assert answer["trials"] == len(calls) == 12 and "12 trials" in output.stderr
    first, other = answer["algorithms"]["dsgd"], answer["algorithms"]["other"]
    assert first["best"]["options"] == {"alpha": 0.2}
    assert other["best"]["options"] == {"beta": 0.5}
    for algorithm_results in (first, other):
        still, best, wild = algorithm_results["settings"]
        assert best["upper_loss"] < still["upper_loss"] and wild["upper_loss"] is None
        assert set(wild["diverged"]) == {"seed 101", "seed 102"} and not best["diverged"]
    tuned = load(folder / answer["tuned"])
    assert tuned.name == "own-tuned" and [p.label for p in tuned.algorithm] == ["dsgd", "other"]
    assert tuned.algorithm[0].options["alpha"] == 0.2 and tuned.seed == [100]
    assert tuned.algorithm[1].options["steps"] == {"alpha": 0.1, "beta": 0.5}
    runs = json.loads(command("compare", answer["tuned"], "--quiet", "--json").stdout)["runs"]
    assert [row["status"] for row in runs] == ["finished"] * 2
    assert np.isfinite([row["upper_loss"] for row in runs]).all()


@pytest.mark.wide
def test_the_late_loss_is_that_of_the_runs_themselves(folder):
    """The mean over the last fifth of the evaluations and over the seeds, by ordinary runs."""
    answer = json.loads(command("tune", "own.toml", "--json").stdout)
    losses = []
    for seed in answer["seeds"]:
        sets = ["--set", f"seed={seed}", "--set", 'algorithm={name="dsgd", batch=2, beta=0.5, '
                'alpha=0.2, hypergradient={name="neumann", terms=3, lipschitz=2.0}}']  # fmt: skip
        path = json.loads(command("run", "own.toml", *sets, "--quiet", "--json").stdout)["folder"]
        text = (folder / path / "metrics.jsonl").read_text()
        lines = [json.loads(line) for line in text.splitlines()]
        losses += [line["upper_loss"] for line in lines[-2:]]  # of 11
    assert answer["algorithms"]["dsgd"]["best"]["upper_loss"] == pytest.approx(
        np.mean(losses), 1e-6
    )


def test_an_interrupted_tuning_goes_on(folder, calls, monkeypatch):
    counted = trial_cache.simulate_many

    def interrupted(*inputs, **options):
        if len(calls) == 5:
            raise KeyboardInterrupt
        return counted(*inputs, **options)

    with monkeypatch.context() as patch:
        patch.setattr(trial_cache, "simulate_many", interrupted)
        output = command("tune", "own.toml", code=130)
    assert "run the same command again" in output.stderr and len(calls) == 5
    assert len(list((folder / "runs/own-tune/trials").glob("*.json"))) == 5
    shown = command("tune", "own.toml").stdout
    assert len(calls) == 12
    assert "dsgd: 3 settings, 1 failed" in shown and "diverged (seed 101: round" in shown
    assert "try it:  diamond compare runs/own-tune/tuned.toml" in shown
    command("tune", "own.toml", "--set", "rounds=36")
    assert len(calls) == 24  # another experiment


def test_if_all_diverge_nothing_is_written(folder):
    sets = ["--set", 'algorithm={name="dsgd", batch=2, beta=0.5, alpha=[1e20, 1e21]}']
    output = command("tune", "own.toml", *sets, "--json", code=3)
    assert "dsgd: every setting diverged; try smaller steps" in output.stderr
    assert json.loads(output.stdout)["tuned"] is None
    assert not (folder / "runs/own-tune/tuned.toml").exists()


def test_every_algorithm_is_tried_as_often(folder):
    text = TOML.replace("beta = [1e-9, 0.5, 1e20]", "beta = [1e-9, 0.5]")
    (folder / "own.toml").write_text(text)
    output = command("tune", "own.toml", code=2).stderr
    assert "algorithm[1]: has 2 settings to try, another has 3; give every algorithm" in output
    assert "one experiment at a time" in command("tune", "own.toml", "all", code=2).output


@pytest.mark.wide(keep=["diamond-True"])
@pytest.mark.parametrize("name, momentum", [("diamond", True), ("gt_sgd", False)])
def test_without_lists_27_settings_lie_around_the_algorithms_own_steps(name, momentum):
    table = {"name": name, "batch": 2, "steps": "paper(0.3, 2, 5, 6)", "label": "mine"}
    if not momentum:
        table["steps"] = {"alpha": "power(0.3)", "beta": "scaled(2, power(0.3))"}
    problem = quadratic(agents=3, upper=2, lower=2, rows=6)
    settings = list_settings(table, problem, ring(3), 0)
    numbers = [sweeps.read_algorithms(table)[0].build().schedule_values(8) for table, _ in settings]
    s = 10 ** (-1 / 3)
    alphas = [0.3 * s * f for f in (FACTORS if momentum else FINE_ALPHA_FACTORS)]
    betas = [0.6 * s * f for f in FACTORS]
    expected = itertools.product(alphas, betas)
    if momentum:
        t = 9 ** (-1 / 3) * 0.3
        weights = [(5 * t**2 * f, 6 * t**2 * f) for f in FACTORS]
        expected = [(a, b, *(min(w, 1) for w in e)) for a, b in expected for e in weights]
    shown = [tuple(float(n[k]) for k in n if k != "period") for n in numbers]
    np.testing.assert_allclose(shown, list(expected), rtol=1e-5)
    assert len(settings) == 27 and all(table["label"] == "mine" for table, _ in settings)


@pytest.mark.wide
def test_steps_that_choose_themselves_are_the_middle_of_the_grid():
    problem = quadratic(agents=3, upper=2, lower=2, rows=6)
    chain = {"name": "neumann", "terms": 3, "lipschitz": 2.0}
    table = {"name": "diamond", "batch": 2, "hypergradient": chain}
    (middle, options) = list_settings(table, problem, ring(3), 0)[13]
    assert list(options) == ["alpha_0", "beta_0", "eta_0"] and middle["order"] == "atc"
    spelled = sweeps.read_algorithms(middle)[0].build()
    assert options["alpha_0"] == pytest.approx(
        25 * float(spelled.schedule_values(0)["alpha"])
    )  # a ramp
    learned = learned_numbers(problem, ring(3), sweeps.read_algorithms(table)[0].build(), 0)
    for name in ("alpha", "beta"):
        assert options[f"{name}_0"] == pytest.approx(learned[name], rel=1e-5)


def test_lists_are_sweeps_for_comparisons_too(folder):
    raw = tomllib.loads(TOML) | {"name": "own"}
    raw["algorithm"][0]["hypergradient"]["terms"] = [2, 3]
    algorithms = validate(raw, folder, "own.toml").algorithm
    labels = [part.label for part in algorithms]
    assert len(labels) == len(set(labels)) == 9
    assert labels[0] == "dsgd, alpha=1e-09, terms=2" and labels[-1] == "other, beta=1e+20"
    assert [p.options["hypergradient"]["terms"] for p in algorithms[:4]] == [2, 3, 2, 3]
    again = validate(tomllib.loads(validate(raw, folder, "x").to_toml(folder)), folder, "x")
    assert [part.label for part in again.algorithm] == labels


def test_a_mistake_in_a_list_is_named_once_at_its_key(folder):
    raw = tomllib.loads(TOML) | {"name": "own"}
    raw["algorithm"][1]["steps"]["beta"] = [0.5, "fast"]
    raw["algorithm"][1]["alhpa"] = [1, 2]
    raw["algorithm"][0]["alpha"] = []
    with pytest.raises(BadExperiment) as error:
        validate(raw, folder, "own.toml")
    mistakes = sorted(map(str, error.value.mistakes))
    assert len(mistakes) == 3 and mistakes[0].startswith("algorithm[0].alpha: is an empty list")
    assert mistakes[1].startswith("algorithm[1].alhpa: is no option of dsgd; did you mean alpha?")
    assert mistakes[2].startswith("algorithm[1].steps") and "fast" in mistakes[2]


def test_settings_are_tried_on_every_network(folder, calls):
    sets = ["--set", 'network=["ring:3", "star:3"]', "--set", "rounds=8"]
    answer = json.loads(command("tune", "own.toml", *sets, "--seeds", "1", "--json").stdout)
    assert answer["trials"] == len(calls) == 12
    wild = answer["algorithms"]["dsgd"]["settings"][2]["diverged"]
    assert set(wild) <= {"seed 101 on ring:3", "seed 101 on star:3"}


@pytest.mark.filterwarnings("default::RuntimeWarning")
def test_warnings_of_trials_are_plain_sentences(folder):
    text = TOML.split('[[algorithm]]\nname = "dsgd"\nlabel')[0]
    text = text.replace("[1e-9, 0.2, 1e20]", "[0.1, 0.2]").replace("2.0}", "0.2}")
    (folder / "small.toml").write_text(text.replace("rounds = 40", "rounds = 8"))
    result = CliRunner().invoke(cli.app, ["tune", "small.toml", "--seeds", "1"])
    warnings = [line for line in result.stderr.splitlines() if "mini-batch Hessians" in line]
    assert (
        result.exit_code == 0
        and warnings
        and warnings[0].startswith("mini-batch Hessians g_yy have")
    )
    assert "RuntimeWarning" not in result.stderr and ".py:" not in result.stderr
