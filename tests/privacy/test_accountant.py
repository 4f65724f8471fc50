"""The accountant against closed forms, and its calibrated noise against its own budget."""

import math

import pytest
from scipy.stats import binom, norm

pytest.importorskip("dp_accounting")

from diamond.privacy.accountant import (
    OVERFLOW_SHARE,
    Mechanism,
    Release,
    Spending,
    calibrate_multiplier,
    epsilon_after,
    padded_size,
    rounds_within,
    spent_epsilon,
)

WHOLE = (Release(1.0, 1),)


def exact_delta(epsilon, mu):
    """Delta of a Gaussian mechanism of sensitivity mu and noise 1 (Balle and Wang, 2018)."""
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


@pytest.mark.quick
@pytest.mark.parametrize("rounds", [1, 30])
@pytest.mark.parametrize("multiplier", [2.0, 20.0])
def test_epsilon_of_gaussian_noise_bounds_the_exact_one_and_is_near(rounds, multiplier):
    epsilon = epsilon_after(Mechanism(multiplier, WHOLE), rounds, 1e-5)
    mu = math.sqrt(rounds) / multiplier
    assert exact_delta(epsilon, mu) <= 1e-5  # the accountant's epsilon holds
    assert exact_delta(0.8 * epsilon, mu) > 1e-5  # and a fifth less would not


@pytest.mark.quick
def test_sampling_of_rows_spends_less_and_all_rows_the_same():
    whole = epsilon_after(Mechanism(2.0, WHOLE), 50, 1e-5)
    sampled = epsilon_after(Mechanism(2.0, (Release(0.1, 1),)), 50, 1e-5)
    assert sampled < 0.3 * whole
    assert epsilon_after(Mechanism(2.0, (Release(1.0, 5),)), 10, 1e-5) == whole
    # Of training and validation rows the worse counts, whichever comes first.
    worse, better = Release(0.3, 1), Release(0.1, 1)
    for parts in ((worse, better), (better, worse)):
        assert epsilon_after(Mechanism(2.0, parts), 50, 1e-5) == pytest.approx(
            epsilon_after(Mechanism(2.0, (worse,)), 50, 1e-5)
        )


def test_spendings_of_different_runs_add_up():
    once, again = Mechanism(3.0, WHOLE), Mechanism(3.0, (Release(1.0, 2),))
    both = spent_epsilon([Spending(once, 10), Spending(again, 5)], 1e-5)
    assert both == pytest.approx(epsilon_after(once, 20, 1e-5))
    assert spent_epsilon([], 1e-5) == 0 == epsilon_after(once, 0, 1e-5)
    assert math.isinf(epsilon_after(Mechanism(0.0, WHOLE), 1, 1e-5))
    # Of two runs the part with the worse sum counts, which is the worst part of neither alone.
    first = Mechanism(2.0, (Release(0.30, 1), Release(0.20, 1), Release(0.28, 1)))
    second = Mechanism(2.0, (Release(0.20, 1), Release(0.30, 1), Release(0.28, 1)))
    both = spent_epsilon([Spending(first, 50), Spending(second, 50)], 1e-5)
    assert both >= epsilon_after(Mechanism(2.0, (Release(0.27, 1),)), 100, 1e-5)


def test_many_sampled_runs_exhaust_delta():
    """Every run takes a share of delta for samples that outgrow their size: it ends."""
    run = Spending(Mechanism(50.0, (Release(0.1, 1),)), 1)
    assert spent_epsilon([run] * 50, 1e-5) < 8
    assert math.isinf(spent_epsilon([run] * round(1 / OVERFLOW_SHARE), 1e-5))


@pytest.mark.quick
@pytest.mark.parametrize("releases", [WHOLE, (Release(0.05, 3), Release(0.2, 1))])
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_calibrated_noise_fits_the_budget_and_one_percent_less_does_not(releases, epsilon):
    multiplier = calibrate_multiplier(epsilon, 1e-5, 40, releases)
    assert epsilon_after(Mechanism(multiplier, releases), 40, 1e-5) <= epsilon
    assert epsilon_after(Mechanism(0.99 * multiplier, releases), 40, 1e-5) > epsilon
    assert rounds_within(Mechanism(multiplier, releases), epsilon, 1e-5) == 40
    assert rounds_within(Mechanism(0.5 * multiplier, releases), epsilon, 1e-5) < 40


@pytest.mark.quick
@pytest.mark.parametrize(("batch", "rows"), [(8, 30), (64, 1600), (64, 70)])
def test_samples_outgrow_their_padding_with_the_probability_that_delta_pays(batch, rows):
    releases, epsilon, delta = 1000, 4.0, 1e-5
    size = padded_size(batch, epsilon, delta, releases)
    tail = binom.sf(size, rows, batch / rows) * releases
    assert tail * (1 + math.exp(epsilon)) <= OVERFLOW_SHARE * delta
    assert size < 4 * batch + 64
