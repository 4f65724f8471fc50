"""A run that cannot be measured has not succeeded, and labels are classes."""

import json
from contextlib import nullcontext

import jax.numpy as jnp
import numpy as np
import pytest
import tomli_w
from fast_compilation import measure_losses_only, skip_loss_checks, without_optimizations
from helpers import quad, ring
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_experiment import TINY
from typer.testing import CliRunner

import diamond
from diamond import cli
from diamond.engine.many_runs import simulate_many
from diamond.gallery import hyperparameter, meta_learning
from diamond.gallery._labels import check_labels
from diamond.metrics.divergence_error import nonfinite_measures
from diamond.problem import Problem

GIVEN = diamond.dsgd(alpha=0.05, beta=0.2, batch=4, hypergradient=diamond.hypergradient.exact())


@pytest.fixture(autouse=True, scope="module")
def compiled_quickly():
    with without_optimizations():
        yield


def rows(labels, n=12):
    return {"a": np.ones((n, 2)), "b": np.resize(np.asarray(labels), n)}


def spoiled(after):
    """The quadratic problem with a metric that is NaN once x has moved by `after`."""
    plain = quad()
    vanishing_metric = lambda x, y, rows: jnp.where(jnp.sum(x**2) > after, jnp.nan, 1.0)
    with pytest.MonkeyPatch.context() as patch:
        skip_loss_checks(patch)
        fixed = plain.upper, plain.lower, plain.init, plain.rows["train"], plain.rows["valid"]
        return Problem(*fixed, metrics={"gone": vanishing_metric})


def test_a_measure_that_is_not_finite_ends_the_run(monkeypatch):
    measure_losses_only(monkeypatch)
    problem = spoiled(1e-3)
    with pytest.raises(
        diamond.Diverged, match=r"by round 4: gone is nan \(agent 0.*the metric"
    ) as e:
        diamond.simulate(problem, ring(4), GIVEN, 8, every=4)
    assert e.value.round == 4 and e.value.run.history["round"].tolist() == [0, 4]
    (outcome,) = simulate_many(problem, ring(4), [(GIVEN, 0)], 8, every=4, batched=True)
    assert outcome.diverged == 4


def test_one_that_is_not_finite_at_the_start_names_the_rows(monkeypatch):
    measure_losses_only(monkeypatch)
    plain = quad()
    nonfinite = lambda x, y, rows: (
        plain.upper(x, y, rows) + jnp.where(rows["point"][0, 0] > 1e9, jnp.nan, 0)
    )
    broken = [dict(part) for part in plain.rows["valid"]]
    broken[2]["point"] = np.where(np.arange(12)[:, None] == 3, 1e10, broken[2]["point"])
    with pytest.MonkeyPatch.context() as patch:
        skip_loss_checks(patch)
        problem = Problem(nonfinite, plain.lower, plain.init, plain.rows["train"], broken)
    with pytest.raises(diamond.Diverged, match=r"by round 0: .*agent 2\); no round has been made"):
        diamond.simulate(problem, ring(4), GIVEN, 8, every=4)


@pytest.mark.wide
def test_the_command_fails_where_a_measure_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    skip_loss_checks(monkeypatch)
    (tmp_path / "mine.py").write_text(
        "import jax.numpy as jnp\nimport diamond\n\n\n"
        "def make():\n"
        "    q = diamond.gallery.quadratic(agents=3, upper=2, lower=2, rows=6)\n"
        "    gone = lambda x, y, rows: jnp.where(jnp.sum(x**2) > 1e-3, jnp.nan, 1.0)\n"
        "    rows = q.rows['train'], q.rows['valid']\n"
        "    return diamond.Problem(q.upper, q.lower, q.init, *rows, metrics={'gone': gone})\n"
    )
    (tmp_path / "mine.toml").write_text(tomli_w.dumps(TINY | {"problem": "mine.py:make"}))
    result = CliRunner().invoke(cli.app, ["run", "mine.toml", "--quiet"])
    assert result.exit_code == 3 and "gone is nan" in result.stderr
    manifest = json.loads((tmp_path / "runs" / "tiny" / "manifest.json").read_text())
    assert manifest["status"] == "diverged" and "gone is nan" in manifest["message"]


numbers = st.one_of(st.integers(-3, 5), st.floats(allow_nan=True), st.booleans())


@pytest.mark.quick
@settings(max_examples=200, deadline=None)
@given(st.lists(numbers, min_size=1, max_size=8), st.integers(2, 4))
def test_labels_are_the_classes_or_refused(values, classes):
    labels = np.array(values)
    sound = all(value in range(classes) for value in values)
    part = [{"a": np.ones((len(values), 1)), "b": labels}]
    if sound:
        ((result,), _, none) = check_labels(part, part, None, classes=classes)
        assert (
            result["b"].dtype.kind in "iu" and result["b"].tolist() == list(values) and none is None
        )
    else:
        with pytest.raises(ValueError, match=r"agent 0's training labels have .* row"):
            check_labels(part, part, None, classes=classes)


@pytest.mark.parametrize("make", [hyperparameter, meta_learning])
def test_a_label_that_is_no_class_is_refused_with_its_place(make):
    fine = [rows([0, 1]), rows([0, 1])]
    with pytest.raises(ValueError, match=r"agent 1's validation labels have 2 in row 2.*classes=3"):
        make(fine, [rows([0, 1]), rows([0, 1, 2])], classes=2)
    with pytest.raises(ValueError, match=r"give \(b \+ 1\) // 2"):
        make([rows([-1, 1])], [rows([-1, 1])], classes=2)
    for value in (0.5, np.inf, np.nan):
        with pytest.raises(ValueError, match=rf"{value} in row 0.*whole numbers"):
            make([rows([value])], [rows([0, 1])], classes=2)


def test_labels_of_files_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [f"{i % 7},{i % 3},{i % 2 if i != 40 else 2}" for i in range(90)]
    (tmp_path / "rows.csv").write_text("\n".join(["u,v,label", *lines]))
    problem_settings = {"kind": "hyperparameter", "dataset": "rows.csv", "agents": 3, "classes": 2}
    (tmp_path / "mine.toml").write_text(tomli_w.dumps(TINY | {"problem": problem_settings}))
    result = CliRunner().invoke(cli.app, ["check", "mine.toml"])
    assert result.exit_code == 2 and "none of the classes 0 to 1" in result.stderr


@pytest.mark.quick
def test_only_the_error_of_the_solver_and_what_needs_y_may_be_infinite():
    assert nonfinite_measures({"metric": 1.0, "solver_error": np.inf}) == []
    assert nonfinite_measures({"metric": np.nan, "upper_loss": -np.inf}) == ["metric", "upper_loss"]
    for error in (np.inf, np.nan):
        nonfinite = {"metric": np.nan, "metric_se": np.nan, "solver_error": error}
        assert nonfinite_measures(nonfinite) == [] and nonfinite_measures(
            nonfinite | {"local_loss": np.nan}
        ) == ["local_loss"]
    assert nonfinite_measures({"metric": np.nan, "solver_error": 1e-9}) == ["metric"]


UNKNOWN = "y. is not known at round 0: g_yy is not positive definite"


def fit(x, y, rows):
    return jnp.mean((rows["a"] @ y - rows["b"]) ** 2)


def bent_fit(x, y, rows):
    return fit(x, y, rows) + jnp.mean(rows["bend"]) * jnp.sum(y**2) + 0.1 * jnp.sum(x * y)


@pytest.mark.wide
@pytest.mark.parametrize("bend, warning", [(-5.0, True), (0.0, True), (0.5, False)])
def test_measures_that_need_a_y_that_does_not_exist_are_no_numbers_and_stop_nothing(bend, warning):
    """Four rows for eight numbers in y: singular, unless a quadratic term is added."""
    random = np.random.default_rng(0)
    part = lambda: {
        "a": random.normal(size=(4, 8)),
        "b": random.normal(size=4),
        "bend": np.full(4, bend),
    }
    start = lambda key: (jnp.zeros(8), jnp.zeros(8))
    with pytest.MonkeyPatch.context() as patch:
        skip_loss_checks(patch)
        problem = Problem(fit, bent_fit, start, [part(), part()], [part(), part()])
    method = diamond.dsgd(0.01, 0.01, 4, diamond.hypergradient.conjugate_gradient(2))
    inputs = problem, diamond.network.complete(2), method, 4
    needing = ["metric", "stationarity", "lower_error", "definition1", "upper_loss"]
    with pytest.warns(RuntimeWarning, match=UNKNOWN) if warning else nullcontext():
        run = diamond.simulate(*inputs, every=2, stop={"metric": 1e-3, "upper_loss": 1e9})
    if not warning:  # the same program finds what there is to be found
        assert run.rounds == 0 and all(np.isfinite(run.history[name]).all() for name in needing)
        return
    assert run.rounds == 4 and run.best is None and run.x is run.last_x
    assert run.message == "the upper loss was never a number, so x and y are of the last round"
    assert all(np.isnan(run.history[name]).all() for name in needing)
    assert np.isinf(run.history["solver_error"]).all()
    assert np.isfinite(run.history["local_loss"]).all()
    if bend < 0:
        (outcome,) = simulate_many(*inputs[:2], [(method, 0)], 4, every=2, batched=True)
        assert outcome.diverged is None and np.isnan(outcome.history["metric"]).all()
