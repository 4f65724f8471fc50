"""Early signs that a run goes wrong: each said once, with cause and remedy."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ESTIMATORS, quad, ring

import diamond
from diamond.gallery import meta_learning
from diamond.metrics.early_warnings import EarlyWarnings, _agent_norms

CALM = {
    "round": 10,
    "metric": 1.0,
    "stationarity": 1.0,
    "consensus": 0.0,
    "lower_error": 0.0,
    "upper_loss": 1.0,
    "solver_error": 0.0,
    "curvature": 1.0,
}
MOMENTUM = diamond.diamond(0.1, 0.2, 0.01, 0.01, 4, ESTIMATORS["neumann"])


def state(p=1.0, v=1.0, u=1.0):
    full = lambda value: jnp.full((4, 3), value)
    return SimpleNamespace(x=full(1.0), p=full(p), v=full(v), u=full(u))


def check_entry(*entries, problem=None, algorithm=MOMENTUM):
    """What is said, entry by entry; an entry is (changes to CALM, state)."""
    signs = EarlyWarnings(problem or quad(), (problem or quad()).start(0))
    return [signs.check_entry(CALM | changes, state_at, algorithm) for changes, state_at in entries]


def test_a_calm_run_gives_no_reason_to_speak():
    quiet = {"stationarity": 3.0}  # ||mean p||^2, as it should be
    assert check_entry((quiet, state()), (quiet | {"round": 20}, state())) == [[], []]


def test_a_direction_that_grows_is_named_with_its_step_once():
    quiet = {"stationarity": 3.0}
    grown = quiet | {"round": 30}
    first, then, again = check_entry(
        (quiet, state()), (grown, state(v=200.0)), (grown, state(v=300.0))
    )
    assert first == [] and again == []
    (message,) = then
    assert message.startswith("v has grown 200-fold between rounds 10 and 30: beta = 0.2 is near")
    assert "halve beta" in message
    _, (message,) = check_entry((quiet, state()), (grown, state(u=500.0)))
    assert message.startswith("u has grown 500-fold") and "halve alpha" in message
    steep = {"curvature": 1.5 / 0.2}  # beta = 0.2 is near 2 / L_g: y takes x along
    chain = diamond.diamond(0.1, 0.2, 0.01, 0.01, 4, diamond.hypergradient.neumann(5, 9.0))
    _, (message,) = check_entry((quiet, state()), (grown | steep, state(u=500.0)), algorithm=chain)
    assert message.startswith("u has grown 500-fold") and "halve beta" in message


def test_momentum_that_gathers_more_than_the_gradient_is_named():
    ((message,),) = check_entry(({"stationarity": 3e-4}, state()))
    assert "the mean of p is 100 times grad l at round 10" in message and "eta = 0.01" in message
    plain = diamond.gt_sgd(0.1, 0.2, 4, ESTIMATORS["neumann"])
    assert check_entry(({"stationarity": 3e-4}, state()), algorithm=plain) == [[]]
    # far from consensus or from y*, p is the gradient of another point
    assert check_entry(({"stationarity": 3e-4, "consensus": 1.0}, state())) == [[]]


def test_a_chain_on_too_small_a_bound_is_named():
    ((message,),) = check_entry(({"stationarity": 3.0, "curvature": 2.0}, state()))
    assert "eigenvalues up to 2 at round 10, above lipschitz = 1.6" in message
    assert "give lipschitz = 3 or more" in message


def test_a_lower_level_that_cannot_be_solved_is_named_every_time():
    bad = {"stationarity": 3.0, "solver_error": 1.0}
    for messages in check_entry((bad, state()), (bad, state())):
        assert "y* is known to 1.0e+00 only at round 10" in messages[0]


def test_a_run_on_its_way_to_diverge_is_left_to_the_divergence():
    assert check_entry(({"metric": np.inf, "curvature": 9.0}, state())) == [[]]


def rows(labels, seed):
    b = np.repeat(np.arange(len(labels)), labels).astype(np.int32)
    return {"a": np.random.default_rng(seed).normal(size=(len(b), 4)), "b": b}


@pytest.fixture(scope="module")
def classes():
    train, valid = ([rows((30, 10), s), rows((10, 10), s + 1)] for s in (0, 5))
    return meta_learning(train, valid, classes=2, widths=(3,))


def test_the_level_of_a_constant_prediction(classes):
    """Agent 1 has as many of both labels: log 2. Agent 0: the bias of g alone, by its root."""
    b = np.linspace(0, 2, 200_001)  # biases (b, -b): d/db of g is 2 (sigma(2b) - 3/4) + 2 b
    root = b[np.argmin(np.abs(1 / (1 + np.exp(-2 * b)) - 0.75 + b))]
    first = np.log1p(np.exp(-2 * root)) * 0.75 + np.log1p(np.exp(2 * root)) * 0.25
    assert classes.constant == pytest.approx((first + np.log(2)) / 2, rel=1e-4)


def test_collapsed_features_are_named(classes):
    level = classes.constant
    begin, still = {"round": 0, "stationarity": 1.0}, {"round": 50, "stationarity": 1e-6}
    state_at = state(p=1e-4, u=1e-4)
    *_, messages = check_entry(
        (begin, state_at), (still | {"upper_loss": 1.001 * level}, state_at), problem=classes
    )
    assert "is that of a prediction that ignores the features" in messages[-1]
    assert "alpha a third as large" in messages[-1]
    *_, messages = check_entry(
        (begin, state_at), (still | {"upper_loss": 0.9 * level}, state_at), problem=classes
    )
    assert messages == []


@pytest.mark.wide
def test_a_run_warns():
    shaky = diamond.diamond(0.05, 0.3, 0.5, 0.5, 4, diamond.hypergradient.neumann(5, 0.9))
    with pytest.warns(RuntimeWarning, match="above lipschitz = 0.9 that eq"):
        diamond.simulate(quad(), ring(4), shaky, 3)


def test_a_direction_may_be_large():
    """Its square is beyond single precision; its length is not."""
    norms = _agent_norms({"a": np.full((2, 3), 1e25, np.float32)})
    np.testing.assert_allclose(norms, 3**0.5 * 1e25, rtol=1e-6)
    assert np.isinf(_agent_norms(np.full((1, 1), 1e200))).all()


STANDING = {"round": 150, "stationarity": 3.0}
BEGUN = STANDING | {"round": 0}


def standing(x, entry=STANDING, alpha=1e-9, rounds=300, first=BEGUN):
    """What is said of a run whose agents are all at `x` after starting at 0."""
    algorithm = diamond.gt_sgd(alpha, 0.2, 4, ESTIMATORS["neumann"])
    signs = EarlyWarnings(quad(), quad().start(0))
    begin = signs.start + jnp.zeros((4, 3))
    state_at = lambda x: SimpleNamespace(x=begin + x)
    assert signs.check_entry(CALM | first, state_at(0.0), algorithm, rounds) == []
    messages = signs.check_entry(CALM | entry, state_at(x), algorithm, rounds)
    assert signs.check_entry(CALM | entry, state_at(x), algorithm, rounds) == []  # once
    return messages


def test_a_run_that_stands_still_is_named():
    (message,) = standing(1e-6)
    assert message.startswith(
        "x stands still: after 150 rounds no agent has moved it by more than 1.7"
    )
    assert "the stationarity is 3 (3 at the start): alpha = 1e-09 is far too small" in message
    (message,) = standing(0.0, alpha=0.0)
    assert message.endswith("alpha = 0 does not move x; give an alpha above 0, or leave it out")
    unit = jnp.zeros((4, 3)).at[2].set(1.0)
    assert standing(unit) == []  # one agent has moved


@pytest.mark.parametrize(
    "calm",
    [
        dict(x=1e-6, entry=STANDING | {"stationarity": 1e-4}),  # it has converged nearby
        dict(x=0.0, entry=STANDING | {"stationarity": 1e-9}, first=BEGUN | {"stationarity": 1e-9}),
        dict(x=0.0, entry=STANDING | {"stationarity": 0.0}, first=BEGUN | {"stationarity": 0.0}),
        dict(x=1.0),  # it has moved, and is not there yet
        dict(x=1e-6, alpha=lambda t: jnp.where(t < 20, 1e-5, 0.0)),  # its steps have ended
        dict(x=1e-6, rounds=1000),  # it has hardly begun
        dict(x=1e-6, entry=STANDING | {"round": 99}, rounds=99),
    ],
    ids="converged at-the-optimum exactly moving ended long short".split(),
)
def test_a_run_for_which_standing_is_right_is_not(calm):
    assert standing(**calm) == []


def test_every_kind_of_run_says_that_it_stands_still():
    """One with steps of its own, and several at once; those that converge do not."""
    still = diamond.gt_sgd(1e-9, 0.2, 4, ESTIMATORS["neumann"])
    fine = diamond.gt_sgd(0.05, 0.2, 4, ESTIMATORS["neumann"])
    inputs = quad(), ring(4)
    with pytest.warns(RuntimeWarning, match="^x stands still: after 100 rounds") as messages:
        diamond.simulate(*inputs, still, 110, every=10)
    assert len(messages) == 1
    both = {"fine": fine, "still": still}
    with pytest.warns(RuntimeWarning, match="^seed [01]: x stands still: after 110") as messages:
        comparison = diamond.compare(*inputs, both, 110, seeds=2, every=55, batched=True)
    assert len(messages) == 2 and len(comparison.runs) == 4
    diamond.simulate(*inputs, fine, 110, every=10)
