"""Advice: constants, prospects from a pilot, and a choice that has a reason."""

import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import quad, ring
from typer.testing import CliRunner

from diamond import theory
from diamond.advice import network_pilots
from diamond.advice import recommendation as module
from diamond.advice.recommendation import MAX_ALIKE_HETEROGENEITY, Advice, Prospect, advise
from diamond.advice.topologies import alternative_networks
from diamond.auto.step_learning import StepScalars
from diamond.catalogue import methods_for
from diamond.cli import app
from diamond.cli.advise_command import _print_advice
from diamond.core.sampling import key
from diamond.gallery import hyperparameter
from diamond.hypergradient import neumann
from diamond.network import complete
from diamond.theory.constants import estimate_sigmas

COMMON = dict(mu_g=1.0, C_gxy=1.0, C_fy=1.0, L_fx=1.0, L_fy=1.0, L_gxy=0.0, L_gyy=0.0)


def advice(heterogeneity, samples, L_g=2.0):
    constants = theory.Constants(4, 0.5, L_g=L_g, heterogeneity=heterogeneity, **COMMON)
    prospects = [Prospect(name, {}, 1.0, 10.0, cost, 1.0) for name, cost in samples.items()]
    return Advice(constants, 2, 10, 0.1, prospects)


def test_untracked_methods_are_not_preferred_where_agents_differ():
    costs = {"diamond": 200.0, "dsgd": 100.0}
    differ, alike = (
        advice(2 * MAX_ALIKE_HETEROGENEITY, costs),
        advice(MAX_ALIKE_HETEROGENEITY / 2, costs),
    )
    assert (differ.best.algorithm, alike.best.algorithm) == ("diamond", "dsgd")
    assert "agents differ (heterogeneity 0.2)" in differ.why and "differ" not in alike.why
    assert "(dsgd) would stop short and are not preferred" in differ.why


def test_the_reason_names_the_conditioning():
    assert "three mini-batches" in advice(1.0, {"k_free": 1.0, "diamond": 2.0}).why
    ill = advice(1.0, {"k_free": 2.0, "diamond": 1.0}, L_g=50.0).why
    assert "condition 50 makes k_free take small steps" in ill


@pytest.fixture(scope="module")
def pilot():
    return advise(quad(), ring(4), batch=4, pilot=20, algorithms=("gt_sgd",))


@pytest.mark.wide
def test_costs_are_extrapolated_to_a_tenth_of_the_end(pilot):
    (prospect,) = pilot.prospects
    assert pilot.target == pytest.approx(prospect.metric / 10)
    assert 20 < prospect.rounds <= 20 * 10**2  # T^(-1/2) at the slowest: a hundred times
    assert prospect.numbers["alpha"] > 0 and prospect.samples > 0
    scalars = len(StepScalars._fields)  # of the learned step
    sent = 2 * 4 * (2 * 3 + scalars) * 8  # both ways, four edges, x and u
    assert prospect.bytes == pytest.approx(prospect.rounds * sent, rel=0.05)
    assert np.isclose(pilot.constants.mu_g, 0.5, rtol=1e-3) and pilot.diameter == 2


@pytest.mark.parametrize("power, rate", [(0.25, 0.5), (2.0, 2.0)])
def test_rounds_are_those_until_the_metric_is_at_the_target(power, rate):
    """A metric of T^-power: seen within the pilot, beyond it at its own rate or the guaranteed."""
    rounds = np.arange(0, 101, 10)
    metric = np.maximum(rounds, 1.0) ** -power
    run = SimpleNamespace(history={"round": rounds, "metric": metric}, rounds=100)
    assert module._rounds_to(50.0**-power, run, 0.5) == 50  # its average is there far later
    end = metric[-2:].mean()
    assert module._rounds_to(end / 8, run, 0.5) == pytest.approx(100 * 8 ** (1 / rate))


def test_a_pilot_without_a_metric_is_no_prospect():
    history = {"round": np.array([0, 10]), "metric": np.full(2, np.nan)}
    run = SimpleNamespace(history=history, rounds=10)
    assert module._make_prospect("gt_sgd", run, 1.0).rounds == np.inf


def test_a_cost_beyond_what_a_pilot_can_predict_is_said_in_words(capsys):
    """A metric that hardly falls: T^(-1/2) from 1 to 1e-4 would take 1e8 times the pilot."""
    rows = [module._make_prospect(name, ended(1.0, "there"), 1e-4) for name in ("gt_sgd", "dsgd")]
    assert {(p.metric, p.rounds, p.samples, p.bytes) for p in rows} == {(1.0, *[np.inf] * 3)}
    diverged = module._make_prospect("solve", None, 1e-4)
    advised = Advice(None, 2, 10, 1e-4, [*rows, diverged], horizon=2000)
    assert advised.failures == [
        "gt_sgd does not reach a metric of 0.0001 in 2,000 rounds",
        "dsgd does not reach a metric of 0.0001 in 2,000 rounds",
        "solve diverged in its pilot",
    ]
    assert advised.best.algorithm == "gt_sgd" and "no method that could be" in advised.why
    _print_advice(advised)
    assert "inf" not in capsys.readouterr().out


@pytest.mark.wide
def test_noise_is_measured_where_the_run_is(monkeypatch):
    """With penalties exp(x) y^2, h = 0 at y = 0 whatever is drawn; a pilot has left that."""
    random = np.random.default_rng(0)
    rows = lambda: {"a": random.normal(size=(12, 3)), "b": random.integers(0, 2, 12)}
    problem = hyperparameter([rows(), rows()], [rows(), rows()])
    chain, objectives, start = neumann(3, 4.0), problem.objectives(2), problem.start(0)
    both = jax.tree.map(lambda a: jnp.stack([a, a]), start)
    away = jnp.array([0.0, 0.5])[:, None, None] * jnp.array([1.0, 0.0])
    moved_points = both[0], both[1] + away  # the second agent has moved
    fixed = key(0), 8, 2, "blocks"
    (still, _), (moved, _) = (
        estimate_sigmas(chain, objectives, point, *fixed) for point in (both, moved_points)
    )
    assert (np.asarray(still["sigma_f"][0]) == 0).all()
    assert moved["sigma_f"][0][0] == 0 and moved["sigma_f"][0][1] > 1e-3

    seen = {}
    monkeypatch.setattr(theory, "estimate", lambda *inputs, **named: seen.update(named))
    runs = {"slow": ended(2.0, "far"), "quick": ended(1.0, "near")}
    monkeypatch.setattr(module, "_run_pilot", lambda algorithm, *_, **__: runs[algorithm])
    network = ring(4)
    advise(quad(), network, algorithms={name: name for name in runs})
    assert seen["at"] == ("near", "near")


def ended(metric, where):
    """A pilot, as far as advice asks."""
    counts = {name: np.array([1.0, 2.0]) for name in ("samples", "bytes")}
    history = {"round": np.array([0, 10]), "metric": np.full(2, metric), **counts}
    return SimpleNamespace(x=where, y=where, history=history, rounds=10, resolved={})


@pytest.mark.wide
def test_from_the_command_line(tmp_path, monkeypatch):
    constants = lambda problem, network, *words, **named: theory.Constants(
        problem.agents, network.lam, L_g=2.0, heterogeneity=0.0, **COMMON
    )
    monkeypatch.setattr(theory, "estimate", constants)
    file = tmp_path / "mine.toml"
    file.write_text(
        'name = "mine"\nrounds = 5\nproblem = {kind = "quadratic", agents = 3}\n'
        'network = "ring:3"\nalgorithm = {name = "gt_sgd", batch = 4}\n'
    )
    words = ["advise", str(file), "--pilot", "10", "--algorithm", "gt_sgd", "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["prefer"] == "gt_sgd" and answer["constants"]["agents"] == 3
    assert {*answer["omitted"]} == {*methods_for("personal")} - {"gt_sgd"}
    assert {*answer["omitted"].values()} == {"not named by --algorithm"}


def test_a_method_that_does_not_exist_is_refused(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        'rounds = 5\nproblem = {kind = "quadratic", agents = 3}\nnetwork = "ring:3"\n'
        'algorithm = "gt_sgd"\n'
    )
    wrong = CliRunner().invoke(app, ["advise", str(file), "--algorithm", "gtsgd"])
    output = " ".join(wrong.output.replace("│", " ").split())
    assert wrong.exit_code == 2 and "gt_sgd" in output and "or your own as mine.py:make" in output


def test_the_method_of_the_file_is_a_row_and_the_others_are_omitted_for_a_reason(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "_run_pilot", lambda *_, **__: ended(1.0, "there"))
    monkeypatch.setattr(theory, "estimate", lambda *_, **__: None)
    file = tmp_path / "mine.toml"
    text = 'rounds = 5\nproblem = {kind = "quadratic", agents = 3}\nnetwork = "ring:3"\n'
    tried = module.methods_to_try("personal", 3, "symmetric")
    other = next(name for name in methods_for("personal") if name not in (*tried, "solve"))
    for name, options, label in [
        (tried[0], "alpha = 0.1", f"{tried[0]} (this file)"),
        (tried[0], "batch = 4", tried[0]),
        (other, "alpha = 0.1", other),
    ]:
        file.write_text(f'{text}algorithm = {{name = "{name}", {options}}}\n')
        answer = json.loads(CliRunner().invoke(app, ["advise", str(file), "--json"]).stdout)
        shown = [prospect["algorithm"] for prospect in answer["prospects"]]
        assert shown == [*tried, *[label] * (label not in tried)]
        assert {*answer["omitted"]} == {*methods_for("personal")} - {*shown}
        assert all("in the benchmark" in reason for reason in answer["omitted"].values())
    printed = CliRunner().invoke(app, ["advise", str(file)]).stdout
    assert f"such problems: {next(iter(answer['omitted']))}, " in printed
    omitted = module.omitted_methods([], "personal", "directed", False, is_selection=False)
    unsuitable = {name for name, reason in omitted.items() if "on a directed network" in reason}
    assert unsuitable == {*methods_for("personal")} - {*methods_for("personal", "directed")}


def test_on_links_seconds_decide_and_other_topologies_are_tried(monkeypatch):
    """Ten rounds of each pilot take so many seconds on the links, after one of finding numbers."""
    took = {"quick": 20.0, "slow": 15.0}  # the slow one needs more rounds, of less time
    metric = {"quick": 1.0, "slow": 1.3}
    times = {"ring(4)": 1.0, "star(4)": 3.0, "complete(4)": 0.5}

    def pilot(algorithm, problem, network, *_, **__):
        run = ended(metric[algorithm], "there")
        run.history["network_seconds"] = np.array([1.0, 1 + took[algorithm] * times[network.name]])
        return run

    monkeypatch.setattr(module, "_run_pilot", pilot)
    alike = SimpleNamespace(heterogeneity=0.0, condition=1.0)
    monkeypatch.setattr(theory, "estimate", lambda *inputs, **named: alike)
    network = ring(4).with_links(rate=1e5)
    advised = advise(quad(), network, algorithms={"slow": "slow", "quick": "quick"})
    assert [(p.algorithm, p.rounds, p.network_seconds) for p in advised.prospects] == [
        ("quick", pytest.approx(1e3), pytest.approx(1 + 2e3)),  # T^(-1/2), to a tenth of 1
        ("slow", pytest.approx(1690), pytest.approx(1 + 2535)),
    ]
    assert "quick takes the fewest seconds on these links" in advised.why
    assert advised.why.endswith("; complete(4) would be 2 times as fast as ring(4)")
    assert [(t.name, t.network_seconds) for t in advised.topologies] == [
        ("ring(4)", pytest.approx(1 + 2e3)),
        ("complete(4)", pytest.approx(1 + 1e3)),
        ("star(4)", pytest.approx(1 + 6e3)),
    ]
    plain = advise(quad(), ring(4), algorithms={"slow": "slow"})
    assert plain.topologies == []


def test_topologies_of_links_that_differ_are_parts_of_the_network():
    network = complete(5)
    rates = {edge: 1e3 * (1 + 10 * e) for e, edge in enumerate(network.edges)}
    alternatives = alternative_networks(network.with_links(rates, 0.1, compute=[1, 2, 3, 4, 5]))
    tree, half = alternatives["tree of the fastest links"], alternatives["faster half of the links"]
    assert len(tree.edges) == 4 and len(half.edges) == 4 + 3
    assert tree.edges == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert set(tree.edges) < set(half.edges) < set(network.edges)
    for part in (tree, half):
        assert part.links.rate.tolist() == [rates[edge] for edge in part.edges]
        assert part.links.compute.tolist() == [1, 2, 3, 4, 5]
    assert alternative_networks(network) == {} and "ring(5)" in alternative_networks(
        network.with_links(1.0)
    )


def test_a_network_is_advised_without_curvature(monkeypatch, capsys):
    """No y*(x), no constants: first-order methods, compared by the upper loss of their pilots."""
    from tests.problem.test_networks_below import network_problem

    fail = lambda *_, **__: pytest.fail("curvature of a network")
    monkeypatch.setattr(theory, "estimate", fail)
    assert module.methods_to_try("personal", 2, "symmetric", True) == [*network_pilots.METHODS]
    monkeypatch.setattr(network_pilots, "METHODS", ("solve", "bome"))
    problem = network_problem(convex=False)
    advice = advise(problem, complete(2), batch=4, pilot=40)
    assert advice.constants is None and {p.algorithm for p in advice.prospects} == {"solve", "bome"}
    best = advice.best
    assert 0 < best.rounds <= 40 and 0 < best.samples < np.inf and best.metric < 1e3
    _, y = problem.start(0)
    least = sum(leaf.nbytes for leaf in jax.tree.leaves(y))
    assert all(4 * least < size < 40 * least for size in advice.network_facts.memory.values())
    assert "is not strongly convex (40 numbers)" in advice.why and "Adam with rate" in advice.why
    assert "per agent, activations not counted" in advice.why and "cheap" in advice.why
    _print_advice(advice)
    shown = capsys.readouterr().out
    assert "cost to reach an upper loss of" in shown and f"prefer {best.algorithm}" in shown
