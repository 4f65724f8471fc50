"""Suites: who meets whom, equal budgets, other seeds for trials than for runs, going on."""

import json

import numpy as np
import pytest
from fast_compilation import without_optimizations

from diamond import bench, catalogue, gallery, network
from diamond.bench import cases, run_suite, suites, tunable_values

TOML = """
methods = ["dsgd", "diamond", "sparkle"]
settings = 3
seeds = 2
tuning_seeds = 1
[[cases]]
name = "small"
problem = {kind = "quadratic", agents = 3, upper = 2, lower = 2, rows = 6}
network = "ring:3"
rounds = 30
batch = 2
"""


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    (folder / "mine.toml").write_text(TOML)
    suite = bench.load_suite(str(folder / "mine.toml"), methods=("dsgd",))
    with without_optimizations():
        return suite, run_suite.run_suite(suite, folder / "mine"), folder / "mine"


@pytest.mark.wide
def test_every_method_is_tuned_by_as_many_trials_on_seeds_of_their_own(played):
    suite, (pair,), folder = played
    trials = [json.loads(path.read_text()) for path in (folder / "trials").iterdir()]
    seeds = {
        kind: {
            trial_data["about"]["seed"]
            for trial_data in trials
            if ("untuned" in trial_data["about"]["numbers"]) == kind
        }
        for kind in (True, False)
    }
    assert len(trials) == suite.runs == 3 + 1 + 2 + 2
    assert seeds == {True: {0, 1}, False: {0, 1, suites.FIRST_TUNING_SEED}}
    short = [trial_data["short"] for trial_data in pair["tried"]]
    assert len(short) == 3 and short[pair["best"]] == min(short)  # one of them goes on
    assert [i for i, trial_data in enumerate(pair["tried"]) if "upper_loss" in trial_data] == [
        pair["best"]
    ]
    assert pair["numbers"] == pair["tried"][pair["best"]]["numbers"]
    assert (
        [run["seed"] for run in pair["tuned"]] == [run["seed"] for run in pair["untuned"]] == [0, 1]
    )
    history = pair["tuned"][0]["history"]
    assert history["round"][-1] == 30 and history["samples"][-1] > 0
    trial = next(
        trial_data
        for trial_data in trials
        if trial_data["about"]["seed"] == 0 and trial_data["about"]["numbers"] == pair["numbers"]
    )
    calls = sum(trial["history"][name][-1] for name in ("gradients", "hvps", "jvps"))
    assert history["calls"][-1] == pytest.approx(calls, rel=1e-5)


def test_what_was_made_is_not_made_again(played, monkeypatch):
    suite, pairs, folder = played
    monkeypatch.setattr("diamond.tuning.trial_cache.simulate_many", None)  # no run is left to make
    assert run_suite.run_suite(suite, folder) == pairs


def test_settings_begin_with_the_numbers_found_and_are_the_same_for_all():
    draws = tunable_values.draw_factors(24)
    assert draws[0] == dict.fromkeys(tunable_values.FACTOR_RANGES, 1.0)
    assert tunable_values.draw_factors(5) == draws[:5]  # a larger budget only adds
    for name, (low, high) in tunable_values.FACTOR_RANGES.items():
        values = sorted(drawn[name] for drawn in draws)
        assert low <= values[0] < 0.5 < 2 < values[-1] <= high
        steps = np.diff(np.log([low, *values, high]))  # no large gap, for any of the numbers
        assert steps.max() < 0.2 * np.log(high / low)


@pytest.mark.parametrize(
    "case", [cases.common_quadratic, cases.links_one_way], ids=lambda c: c.name
)
def test_a_case_is_what_it_says(case):
    problem, network = case.make()
    assert (problem.lower_level, network.kind) == (case.level, case.kind)
    assert problem.agents == network.agents


def test_methods_meet_the_cases_that_they_solve():
    personal, common, links = (bench.SUITES[name] for name in ("personal", "common", "links"))
    assert len(personal.methods) >= 10 and len(personal.cases) >= 6
    assert len(common.methods) >= 10 and len(common.cases) >= 6
    assert len(personal.pairs) == len(personal.methods) * len(personal.cases)
    left = {(case.name, m) for case in common.cases for m in common.methods} - {
        (case.name, m) for case, m in common.pairs
    }
    cleaning = ("hyper-cleaning", "hyper-cleaning-skewed")
    assert left == {(name, "gossip_dsbo") for name in cleaning}  # g_yy of y as large as there
    met = {case.name: {m for other, m in links.pairs if other is case} for case in links.cases}
    assert "push_diging" in met["links-one-way"] and "k_free" in met["links-perfect"]
    right = set(catalogue.methods_for("personal", "balanced"))
    assert met["links-one-way"] == right & set(links.methods)
    assert all(set(suite.methods) <= set(catalogue.names()) for suite in bench.SUITES.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ("dimond",)}, "no method 'dimond'; did you mean diamond"),
        ({"cases": ("smal",)}, "no case 'smal'; did you mean small"),
    ],
)
def test_what_is_not_there_is_named(tmp_path, change, message):
    (tmp_path / "mine.toml").write_text(TOML)
    with pytest.raises(ValueError, match=message):
        bench.load_suite(str(tmp_path / "mine.toml"), **change)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("settings = 3", "settings = 0", "settings = 0 must be a whole number, at least 1"),
        ("settings = 3", "setings = 3", "no key 'setings' of a suite; did you mean settings"),
        ('methods = ["dsgd", "diamond", "sparkle"]', "", "methods must be a list of at least one"),
        ("batch = 2", "seed = 2", "methods and seeds are the suite's, not a case's"),
        ("rounds = 30", "rounds = = 30", "is not valid TOML"),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path, old, new, message):
    (tmp_path / "mine.toml").write_text(TOML.replace(old, new))
    with pytest.raises(ValueError, match=message):
        bench.load_suite(str(tmp_path / "mine.toml"))


def test_an_unknown_suite_is_refused_with_the_names_of_those_there_are():
    with pytest.raises(ValueError, match="no suite 'quik'; did you mean quick"):
        bench.load_suite("quik")
    with pytest.raises(ValueError, match="no suite 'x'; there are personal, common"):
        bench.load_suite("x")


@pytest.mark.wide
def test_one_agent_alone_is_tuned_too():
    problem = gallery.quadratic(agents=1, upper=2, lower=2, rows=6)
    with without_optimizations():
        tunable = tunable_values.make_tunable(
            "diamond", problem, network.complete(1), 2, seed=suites.FIRST_TUNING_SEED
        )
    chain = tunable.fixed["hypergradient"].solve
    assert chain.terms >= 1 and float(chain.lipschitz) >= 1  # L of this quadratic
    assert tunable.with_factors(tunable_values.draw_factors(1)[0])[1].keys() == {
        "alpha",
        "beta",
        "eta",
        "gamma",
    }


def test_methods_that_keep_a_table_of_batches_meet_rows_that_are_whole_batches():
    every = {case.name: case for suite in suites.SUITES.values() for case in suite.cases}
    met = [case for case in every.values() if "saba" in suites.suitable_methods(case)]
    assert len(met) >= 6 and cases.alone_cleaning not in met
    for case in met:
        problem, _ = case.make()
        rows = problem.objectives(case.batch)
        for kind in (rows.train, rows.valid):
            assert not np.any(np.asarray(kind.count) % case.batch), case.name
