"""Refusals: what is wrong, whose it is, and what would be right, before anything runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import quad, ring

import diamond
from diamond import hypergradient as hg
from diamond.problem import Problem

pytestmark = pytest.mark.quick


def lower(x, y, rows):
    return jnp.mean(jnp.sum((y - rows["a"] * x) ** 2, -1))


def upper(x, y, rows):
    return jnp.mean(jnp.sum((y - rows["a"]) ** 2, -1)) + x[0] ** 2


def init(key):
    return jnp.zeros(1), jnp.zeros(2)


def rows(count=3, **changes):
    return {"a": np.arange(2.0 * count).reshape(count, 2)} | changes


def make(**changes):
    given = dict(upper=upper, lower=lower, init=init, train=[rows()] * 2, valid=[rows(5)] * 2)
    return Problem(**given | changes)


def test_the_problem_that_the_others_spoil():
    problem = make(test=[rows(4), rows(9)], metrics={"loss": upper})
    assert problem.agents == 2 and problem.measured_part == "test"
    assert problem.counts("test").tolist() == [4, 9]


NAN = rows()["a"].copy()
NAN[1, 0] = np.nan
LARGE = np.ones((20, 2))
LARGE[17, 1] = 1e300


def decides(x, y, rows):
    return lower(x, y, rows) if y[0] > 0 else 2 * lower(x, y, rows)


REFUSED = {
    "rows of one agent, not a list": (
        dict(train=rows()),
        TypeError,
        ["training rows must be a list", "not dict", "wrap the rows of a single agent in a list"],
    ),
    "an array is no list of agents": (
        dict(valid=np.ones((2, 3, 2))),
        TypeError,
        ["validation rows must be a list", "not ndarray"],
    ),
    "no array": (
        dict(train=[rows(), {}]),
        ValueError,
        ["agent 1 has no training rows", "holds no array"],
    ),
    "a number for rows": (
        dict(train=[{"a": 3.0}] * 2),
        ValueError,
        ["agent 0's training rows ['a']", "single number", "first axis must be the rows"],
    ),
    "no rows": (
        dict(valid=[rows(), rows(0)]),
        ValueError,
        ["agent 1 has 0 validation rows", "give it some, or leave it out of"],
    ),
    "leaves of different lengths": (
        dict(train=[rows(3, b=np.ones(3)), rows(3, b=np.ones(4))]),
        ValueError,
        ["agent 1's training rows ['b'] number 4", "another leaf's 3", "one entry a row"],
    ),
    "text": (
        dict(train=[rows(), {"a": np.array(["x", "y"])}]),
        TypeError,
        ["agent 1's training rows ['a'] have dtype <U1", "convert them to numbers"],
    ),
    "a NaN": (
        dict(valid=[rows(), {"a": NAN}]),
        ValueError,
        ["agent 1's validation rows ['a'] are not finite", "row 1 is the first", "remove or"],
    ),
    "lists in place of an array": (
        dict(train=[{"a": [[1.0, 2.0], [3.0, 4.0]]}] * 2),
        ValueError,
        ["agent 0's training rows ['a'] are a list or tuple of numbers", "np.asarray"],
    ),
    "a list of rows": (
        dict(train=[[(np.ones(2), 1.0), (np.ones(2), 0.0)]] * 2),
        ValueError,
        ["agent 0's training rows are a list or tuple of numbers", "one array", "rows first"],
    ),
    "another structure": (
        dict(train=[rows(), {"b": rows()["a"]}]),
        ValueError,
        ["agent 1's training rows have the structure", "agent 0's", "all agents need the same"],
    ),
    "another width": (
        dict(train=[rows(), {"a": np.ones((3, 4))}]),
        ValueError,
        ["agent 1's training rows ['a'] is float64[4], of agent 0's float64[2]", "the same shape"],
    ),
    "another dtype": (
        dict(train=[rows(), {"a": np.ones((3, 2), np.float32)}]),
        ValueError,
        ["agent 1's", "float32[2], of agent 0's float64[2]"],
    ),
    "more agents here than there": (
        dict(valid=[rows()] * 3),
        ValueError,
        ["training rows for 2, validation rows for 3 agents", "give every agent an entry"],
    ),
    "nobody": (dict(train=[], valid=[]), ValueError, ["there is no agent"]),
    "a start that is no pair": (
        dict(init=lambda key: jnp.zeros(2)),
        TypeError,
        ["init(key) must return the tuple (x0, y0)"],
    ),
    "a start in integers": (
        dict(init=lambda key: (jnp.zeros(1, int), jnp.zeros(2))),
        TypeError,
        ["init(key) gives x of dtype int64; it must be floating"],
    ),
    "a start in half precision": (
        dict(init=lambda key: (jnp.zeros(1), jnp.zeros(2, jnp.float16))),
        TypeError,
        ["init(key) gives y of dtype float16; give float32 or float64", "precision='bf16'"],
    ),
    "an x without numbers": (
        dict(init=lambda key: (jnp.zeros((0, 3)), jnp.zeros(2))),
        ValueError,
        ["init(key) gives an x0 of size 0; it needs at least one number"],
    ),
    "names that are not distinct": (
        dict(init=lambda key: (jnp.zeros(3), jnp.zeros(2)), names=["age", "dose", "age"]),
        ValueError,
        ["names has 'age' twice; give every entry of x a name of its own"],
    ),
    "a y of another shape": (
        dict(init=lambda key: (jnp.zeros(1), jnp.zeros(3))),
        ValueError,
        [
            "upper cannot be",
            "x is float64[1], y is float64[3], rows are {'a': float64[8,2]}",
            "init and",
        ],
    ),
    "a y whose shape broadcasts": (
        dict(
            init=lambda key: (jnp.zeros(1), jnp.zeros((2, 1))),
            upper=lambda x, y, rows: jnp.mean(rows["a"] @ y),
            lower=lambda x, y, rows: jnp.mean((rows["a"] @ y - rows["a"][:, 0]) ** 2),
        ),
        ValueError,
        ["lower is not an average over rows:", "y is float64[2,1]", "broadcast to (n, n)"],
    ),
    "a Python if": (
        dict(lower=decides),
        TypeError,
        ["lower asks for the value of an array", "if y[0] > 0", "test_problem.py", "jnp.where"],
    ),
    "numpy in a loss": (
        dict(upper=lambda x, y, rows: upper(x, y, rows) + np.linalg.norm(np.asarray(y))),
        TypeError,
        ["upper asks for the value of an array", "np.asarray(y)", "jax.numpy"],
    ),
    "an empty start": (
        dict(init=lambda key: ({}, jnp.zeros(2))),
        ValueError,
        ["without any array"],
    ),
    "a start whose shape depends on the key": (
        dict(init=lambda key: (jnp.zeros(1 + int(jax.random.key_data(key)[1])), jnp.zeros(2))),
        ValueError,
        ["x0 of shapes ((1,), 'float64') with one key and ((2,), 'float64')", "the same shapes"],
    ),
    "a loss for each row": (
        dict(lower=lambda x, y, rows: jnp.sum((y - rows["a"]) ** 2, -1)),
        ValueError,
        ["lower returned shape (8,)", "must return a scalar: use jnp.mean"],
    ),
    "a sum": (
        dict(upper=lambda x, y, rows: jnp.sum((y - rows["a"]) ** 2)),
        ValueError,
        ["upper is not an average over rows (it looks like a sum: use jnp.mean)", "agent 0"],
    ),
    "rows tied together": (
        dict(lower=lambda x, y, rows: jnp.sum(y**2) + jnp.var(rows["a"]) * y[0] ** 2),
        ValueError,
        ["lower is not an average over rows:", "anything else that ties rows together is not"],
    ),
    "a metric that is a sum": (
        dict(metrics={"hits": lambda x, y, rows: jnp.sum(rows["a"] > 1) * 1.0}),
        ValueError,
        ["metric 'hits' is not an average over rows"],
    ),
    "log(0)": (
        dict(upper=lambda x, y, rows: jnp.mean(jnp.log(rows["a"] * 0)) + x[0]),
        ValueError,
        ["upper is -inf on agent 0's first rows", "check its data and the loss for log(0)"],
    ),
    "a lower level without y": (
        dict(lower=lambda x, y, rows: jnp.mean(rows["a"]) + x[0] ** 2),
        ValueError,
        ["lower: its gradient in y is zero", "must depend on y"],
    ),
    "a lower level without x": (
        dict(lower=jax.jit(lambda x, y, rows: jnp.mean((y - rows["a"]) ** 2) + x[0] ** 2)),
        ValueError,
        ["lower: its gradient in y does not depend on x", "y* is the same for every x"],
    ),
    "an upper level without y": (
        dict(upper=lambda x, y, rows: jnp.mean(rows["a"]) * x[0] ** 2),
        ValueError,
        ["upper: it does not depend on y", "give lower=None"],
    ),
}


@pytest.mark.parametrize("start", [1e-8, 0.0])
def test_x_may_be_in_small_units(start):
    """Losses that are finite near the start only; derivatives may be zero there by coincidence."""
    lower = lambda x, y, rows: jnp.mean((y - rows["a"]) ** 2) + (jnp.exp(x[0] / 1e-8) - 1) * y[0]
    assert make(lower=lower, init=lambda key: (jnp.full(1, start), jnp.zeros(2))).agents == 2


@pytest.mark.parametrize("case", REFUSED)
def test_bad_problems_are_refused(case):
    changes, kind, words = REFUSED[case]
    with pytest.raises(kind) as refused:
        make(**changes)
    for part in words:
        assert part in str(refused.value)


def test_a_value_beyond_single_precision_is_refused_by_agent_and_row():
    """Also beyond the first rows, on which the losses are tried."""
    with jax.enable_x64(False):
        with pytest.raises(ValueError) as refused:
            make(train=[rows(), {"a": LARGE}])
    message = str(refused.value)
    assert "agent 1's training rows ['a'] are too large for float32: row 17" in message
    assert "1e+300" in message and "rescale" in message
    assert make(train=[rows(), {"a": LARGE}]).agents == 2


@pytest.mark.wide
def test_a_batch_of_more_rows_than_there_are_is_warned_of():
    words = "batch = 99, but no agent has more than .* rows.*give batch = .* or less"
    with pytest.warns(RuntimeWarning, match=words):
        diamond.simulate(quad(), ring(4), diamond.dsgd(0.1, 0.1, batch=99), rounds=0)


def test_a_weakly_typed_start_becomes_strong():
    x, y = make(init=lambda key: (jnp.asarray([0.5]) * 1, [1.0, 2.0][0] * jnp.ones(2))).start(0)
    assert not x.weak_type and not y.weak_type
    scalar = Problem(
        lambda x, y, rows: jnp.mean(rows * y) + x, lambda x, y, rows: jnp.mean((y - x * rows) ** 2),
        lambda key: (1.0, 2.0), [np.ones(2)], [np.ones(2)],
    )  # fmt: skip
    assert not scalar.start(0)[0].weak_type and scalar.start(0)[0].dtype == jnp.float64


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: hg.neumann(0), "terms = 0: the series needs a whole number of terms"),
        (lambda: hg.neumann_sum(-2), "terms = -2"),
        (lambda: hg.hessian_free(0), "terms = 0"),
        (lambda: hg.neumann(lipschitz=-1), "lipschitz = -1 must be positive; None estimates it"),
        (lambda: hg.neumann_sum(lipschitz=0.0), "lipschitz = 0.0 must be positive"),
        (lambda: hg.hessian_free(lipschitz=float("nan")), "lipschitz = nan must be positive"),
        (lambda: hg.conjugate_gradient(0), "steps = 0: conjugate gradients need at least one"),
        (lambda: hg.unrolled(0), "steps = 0: unrolling needs at least one gradient step"),
        (lambda: diamond.svr_interact(period=0), "period = 0: the number of rounds"),
    ],
)
def test_bad_parts_are_refused(make, words):
    with pytest.raises(ValueError) as refused:
        make()
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "network, batch, options, words",
    [
        (5, 2, {}, "the problem has 4 agents, the network 5; make a network of 4"),
        (4, 0, {}, "batch = 0: a mini-batch needs at least one row"),
        (4, 2, dict(sampling="columns"), "no sampling 'columns'; there are 'blocks' and 'rows'"),
        (4, 2, dict(rounds=-1), "rounds = -1 must be 0 or more"),
        (4, 2, dict(every=0), "every = 0 at least 1"),
    ],
)
def test_bad_runs_are_refused(network, batch, options, words):
    with pytest.raises(ValueError) as refused:
        diamond.simulate(
            quad(), ring(network), diamond.dsgd(batch=batch), **{"rounds": 3} | options
        )
    assert words in str(refused.value)
