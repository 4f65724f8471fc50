"""The rule for step sizes, number by number: each against its formula, with all else given."""

import math
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from diamond.auto import inverse, step_sizes, upper_curvature
from diamond.core.cost import Cost
from diamond.core.sampling import key
from diamond.numbers.open_numbers import AllHere
from diamond.problem import Problem

pytestmark = pytest.mark.quick
LARGEST, MEAN, RATIO, SHAKY = 8.0, 4.0, 3.0, 0.5


class Setting(SimpleNamespace):
    """A setting whose numbers are found at once."""

    def once(self, name, compute):
        return compute(self).value

    def before(self, name, default):
        return self.past.get(name, default)


@pytest.fixture
def alpha(monkeypatch):
    """alpha where beta mu is `rate`, and L_l, r and sigma_L are as above."""

    def found(
        rate=1.0,
        noise="none",
        order="atc",
        lags=1,
        past=math.inf,
        upper=None,
        move="gt",
        network=None,
        level="personal",
        newton=False,
    ):
        given = np.array([*(upper or [LARGEST, MEAN, RATIO, SHAKY]), 1.0])
        monkeypatch.setattr(step_sizes, "_upper", lambda setting: given)
        monkeypatch.setattr(step_sizes, "_rate", lambda setting, inner, move: rate)
        before = {"alpha": past}
        about = SimpleNamespace(lower_level=level)
        setting = Setting(past=before, network=network, memory={}, round=0, problem=about)
        return step_sizes._alpha(setting, order, lags, noise, 1, move, "local", newton).value

    return found


def test_without_noise_alpha_is_what_curvature_and_the_lag_of_y_allow(alpha):
    assert alpha() == pytest.approx(1.5 / MEAN)
    assert alpha(rate=0.16) == pytest.approx(1.5 * 2 * 0.4 / MEAN)  # phi = 2 sqrt(beta mu)
    assert alpha(rate=0.14) == pytest.approx(1.5 * 2 * math.sqrt(0.14) / LARGEST)  # y lags
    assert alpha(order="paper") == pytest.approx(0.5 * 1.5 / MEAN)
    assert alpha(rate=0.3, lags=2) == pytest.approx(0.3 / MEAN)


def test_where_links_go_one_way_alpha_is_half_of_what_tracking_takes(alpha):
    network = SimpleNamespace(pull=1.0, tracking={"atc": 0.2, "paper": math.inf})
    network.damped = lambda *rounds: network
    assert alpha(network=network) == pytest.approx(0.5 * 0.2 / LARGEST)
    assert alpha(network=network, order="paper") == alpha(order="paper")
    assert alpha(network=network, move="gossip") == alpha(move="gossip")


def test_plain_samples_pay_for_their_noise(alpha):
    expected = RATIO / (1 + RATIO) / (MEAN / 1.5 + SHAKY**2 / MEAN)
    assert alpha(noise="plain") == pytest.approx(expected)


def test_momentum_pays_for_what_it_gathers(alpha):
    eta = 0.2 * RATIO
    left = 2 * RATIO / eta
    share = left / (1 + left)
    assert alpha(noise="momentum") == pytest.approx(share * 1.5 / MEAN)
    shaky = 1e3
    many = [LARGEST, MEAN, RATIO, shaky]
    assert alpha(noise="momentum", upper=many) == pytest.approx(
        share * 1.25 * math.sqrt(eta) / shaky
    )
    assert alpha(noise="momentum", upper=many, rate=0.1) == pytest.approx(
        share * 0.6 * math.sqrt(eta) / shaky
    )
    assert alpha(noise="average") == pytest.approx(share * 0.5 * eta / MEAN)


def test_alpha_grows_fourfold_where_y_follows_and_never_where_it_lags(alpha):
    assert alpha(past=1e-3) == pytest.approx(4e-3)
    assert alpha(past=1e-3, rate=0.1) == pytest.approx(1e-3)
    assert alpha(past=1e3, rate=0.1) == alpha(rate=0.1)


@pytest.mark.parametrize("ratio, eta", [(0.1, 0.1), (2.0, 0.4), (50.0, 1.0)])
def test_eta_is_a_fifth_of_the_ratio_within_its_limits(monkeypatch, ratio, eta):
    monkeypatch.setattr(step_sizes, "_upper", lambda setting: np.array([1.0, 1.0, ratio, 1.0]))
    assert step_sizes._eta(Setting(past={})).value == pytest.approx(eta)


@pytest.mark.parametrize("steep, counted", [(6, 6), (1e5, 300), (1e12, 1e12)])
def test_the_worst_agent_counts_and_noise_is_that_of_a_mean_over_all(monkeypatch, steep, counted):
    """The steepest counts for 100 times the next at most, unless the others are flat beside it."""
    m = 4
    bends, ratios, shaky = (
        np.array([1.0, 2, 3, steep]),
        np.array([5.0, 2, 9, 4]),
        np.array([1, 7, 3, 2.0]),
    )
    spent = Cost(*(np.full(m, 3) for _ in Cost._fields))
    losses = np.array([4.0, -1, 2, 3])
    look = lambda *given: (bends, ratios, shaky, spent, losses)
    monkeypatch.setattr(step_sizes.upper_curvature, "look", look)
    monkeypatch.setattr(step_sizes, "block", lambda rows: rows)
    each = lambda look, point: look(lambda batch: None, point, np.arange(m))
    problem = SimpleNamespace(lower_level="personal")
    about = dict(problem=problem, estimator=None, agents=m, seed=0, batch=2, point=(0, 0))
    found = step_sizes._upper(Setting(**about, each=each, talk=AllHere(), past={}))
    mean = (1 + 2 + 3 + counted) / m
    np.testing.assert_allclose(found, [counted, mean, m * 2, 7 / math.sqrt(m), 2])


def of_rows(x, rows):
    """(1 + row) x^2 / 2: hypergradients (1 + row) x."""
    return jnp.mean((1 + rows) * jnp.sum(x**2) / 2)


def test_noise_in_the_change_of_h_is_counted_by_distance():
    """h = (1 + row) x: r is that of 1 + row, sigma_L its standard deviation, wherever x' is."""
    rows = np.random.default_rng(0).normal(size=64)
    problem = Problem(of_rows, None, lambda key: jnp.ones(3), [rows])
    batches = problem.objectives(1).of(0)
    x, noise = jnp.array([1.0, 2.0, 3.0]), upper_curvature._noise
    estimator, found = upper_curvature.Fixed(None), []
    for far in (0.1, 1.0, 10.0):
        ratio, shaky, _ = noise(estimator, batches, [(x, None), (x + far, None)], key(0))
        found.append([float(ratio), float(shaky)])
    np.testing.assert_allclose(found, [found[0]] * 3, rtol=1e-6)
    assert found[0][1] == pytest.approx(rows.std(), rel=0.4)  # of sixteen draws
    assert found[0][0] == pytest.approx((1 + rows.mean()) ** 2 / rows.var(), rel=1.5)


def bent(x, rows):
    """Slope x above 1/2 and ten times as steep below; at x = 1 the bend lies downhill."""
    below = jnp.minimum(x - 0.5, 0.0)
    return jnp.sum(x**2 / 2 + 4.5 * below**2) + 0 * jnp.mean(rows)


def test_the_last_probe_looks_where_a_step_would_lead():
    problem = Problem(bent, None, lambda key: jnp.ones(1), [np.zeros(4)])
    few = problem.objectives(1)
    found, *_ = upper_curvature.look(None, few, few, jnp.ones((1, 1)), None, key(0), jnp.arange(1))
    assert found[0] == pytest.approx(1 - (0 - 4.5), rel=1e-5)  # from slope 1 to -4.5, one away


def walled(x, rows):
    """As x^2 / 2, but for a wall below 0.3."""
    return jnp.sum(x**2 / 2 + 5e5 * jnp.minimum(x - 0.3, 0.0) ** 2) + 0 * jnp.mean(rows)


def rippled(x, rows):
    """As x^2 / 2, but for ripples below 0.3 that are steep and hardly change the loss."""
    ripples = jnp.where(x < 0.3, 1e-4 * jnp.sin(1e7 * x), 0.0)
    return jnp.sum(x**2 / 2 + ripples) + 0 * jnp.mean(rows)


@pytest.mark.parametrize("loss", [walled, rippled])
def test_the_last_probe_backtracks_from_where_no_step_leads(loss):
    problem = Problem(loss, None, lambda key: jnp.ones(1), [np.zeros(4)])
    few = problem.objectives(1)
    found, *_ = upper_curvature.look(None, few, few, jnp.ones((1, 1)), None, key(0), jnp.arange(1))
    assert found[0] == pytest.approx(4)  # a step of 1 / 1 led too far, one of 1 / 4 did not


def test_where_y_is_solved_for_it_is_one_round_behind_and_alpha_never_grows(alpha, monkeypatch):
    """x_{t+1} = x_t - alpha L_l x_{t-1} has roots below 1 up to alpha L_l = 1: half of that."""
    roots = lambda step: np.abs(np.roots([1, -1, step])).max()
    assert roots(0.99) < 1 < roots(1.01) and roots(0.5) < 0.8
    monkeypatch.setattr(inverse, "inverse", lambda setting: inverse.FACTORED)
    monkeypatch.setattr(step_sizes, "_newton", lambda setting: 1 / 1.5)
    assert alpha(newton=True) == pytest.approx(0.5 / MEAN)
    assert alpha(newton=True, past=1e-3) == pytest.approx(1e-3)
    eta, shaky = 0.2 * RATIO, 1e3
    share = 2 * RATIO / eta / (1 + 2 * RATIO / eta)
    noisy = alpha(newton=True, noise="momentum", upper=[LARGEST, MEAN, RATIO, shaky])
    assert noisy == pytest.approx(share * 1.25 * math.sqrt(eta) / shaky)
    monkeypatch.setattr(inverse, "inverse", lambda setting: inverse.ACCELERATED)  # y as ever
    assert alpha(newton=True) == alpha()


@pytest.mark.parametrize(
    "batch, blocks, step", [(64, 0, 1), (64, 3, 0.5), (4, 0, 0.8), (1, 3, 0.2)]
)
def test_y_that_is_solved_for_moves_by_less_on_few_rows(monkeypatch, batch, blocks, step):
    """d = 10 numbers: at most 2 n / d of Newton's step, half of one where g_yy is sampled."""
    monkeypatch.setattr(step_sizes, "size", lambda setting: 10)
    setting = SimpleNamespace(batch=batch, once=lambda name, compute: blocks)
    assert step_sizes._newton(setting) == pytest.approx(step / 1.5)
