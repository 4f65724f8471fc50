"""Which inverse a run takes, and where runs on badly conditioned lower levels end."""

import math
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import quickly
from hard import first_and_lowest, grouped, ridge, shifted
from helpers import end, quad, same_bits, sample_of

import diamond
from diamond.auto import inverse
from diamond.hypergradient.exact import Dense
from diamond.hypergradient.implicit import Implicit
from diamond.numbers.open_numbers import Setting, agent_numbers, open_numbers, resolve

CONDITION = 1e3


@pytest.fixture(autouse=True)
def compiled_quickly():
    with quickly():
        yield


def gaps(run, first, lowest):
    """(loss - lowest) / (first - lowest)."""
    return (run.history["upper_loss"] - lowest) / (first - lowest)


@pytest.mark.parametrize(
    "make, network", [(shifted, diamond.network.path(5)), (grouped, diamond.network.complete(4))]
)
def test_a_badly_conditioned_ridge_comes_near_its_lowest_and_never_above_its_start(make, network):
    problem = make()
    first, lowest = first_and_lowest(problem)
    run = diamond.simulate(problem, network, diamond.diamond(batch=64), 300, every=50)
    assert run.history["upper_loss"][0] == pytest.approx(first, rel=1e-4)
    found = gaps(run, first, lowest)
    assert (found[1:] < 0.5).all() and found[-1] < 0.02
    numbers = run.resolved
    assert numbers["inverse"] == inverse.FACTORED and numbers["hessian_blocks"] == 0
    assert numbers["chain_bias"] > 0.5 and numbers["beta"] == pytest.approx(1 / 1.5)
    rows = problem.counts("train")[0]
    looks = run.history["samples"][0]
    every = (run.history["samples"][1:] - looks) / run.history["round"][1:]
    assert (every >= rows + 64).all()  # all rows of g and a mini-batch of f, each round
    assert "formed and factored on all rows" in inverse.said(numbers)


def test_the_bias_of_the_chain_is_that_of_its_mean_in_closed_form():
    problem = shifted()
    setting = Setting(problem, None, 64, 0)
    numbers = resolve(diamond.diamond(batch=64), setting).numbers
    each = np.broadcast_to(setting.memory["curvature"].value, 5)
    off, size = [], []
    for train, valid, bend in zip(problem.rows["train"], problem.rows["valid"], each):
        y, half = ridge(train, np.full(10, 1 / CONDITION), np.zeros(10))
        f_y = 2 * valid["a"].T @ (valid["a"] @ y - valid["b"]) / len(valid["a"])
        factor, z = np.eye(10) - 2 * half / (3 * bend), np.zeros(10)
        for k in range(32):
            z += np.linalg.matrix_power(factor, k) @ f_y / (3 * bend)
        h = lambda z: 2 / CONDITION * z  # f_x is 0, g_xy = -2 / condition
        exact = np.linalg.solve(2 * half, f_y)
        off.append(np.linalg.norm(h(z) - h(exact)))
        size.append(np.linalg.norm(h(exact)))
    assert numbers["chain_bias"] == pytest.approx(max(off) / max(size), rel=1e-2)


def test_a_lower_level_that_the_chain_is_right_for_has_the_program_of_the_chain():
    problem, network = quad(noise=0.0).problem, diamond.network.ring(4)
    numbers = resolve(diamond.diamond(batch=12), Setting(problem, network, 12, 0)).numbers
    assert numbers["inverse"] == inverse.CHAIN and numbers["chain_bias"] < 0.1
    chain = diamond.diamond(batch=12, hypergradient=diamond.hypergradient.neumann())
    own, given = (end(problem, network, a, 5) for a in (diamond.diamond(batch=12), chain))
    assert same_bits(own.state, given.state)


def test_what_the_user_wrote_stays():
    chain, cg = diamond.hypergradient.neumann(4), diamond.hypergradient.conjugate_gradient(5)
    assert diamond.diamond(hypergradient=cg).hypergradient == cg
    for given in (dict(alpha=0.1), dict(beta=0.1), dict(steps={"alpha": 0.1})):
        method = diamond.diamond(**given)
        assert "inverse" not in open_numbers(method) and method.newton is False
        assert method.hypergradient == diamond.hypergradient.neumann()
    assert "inverse" in open_numbers(diamond.gt_sgd())
    assert "inverse" not in open_numbers(diamond.gt_sgd(hypergradient=chain))


def test_the_step_of_y_is_that_of_newton_on_the_rows_drawn():
    problem, blocks = shifted(), 2
    method = replace(
        diamond.gt_sgd(0.0, 0.5, batch=32, hypergradient=Implicit(Dense(blocks))), newton=True
    )
    found = end(problem, diamond.network.path(5), method, 1).state.y
    objectives = problem.objectives(32)
    for i in range(5):
        sample = sample_of(problem, i, blocks, 32)
        rows = lambda where: jax.tree.map(
            lambda a: np.asarray(a[i, where : where + 32], float), objectives.train.data
        )
        v = -2 * rows(sample.lower)["a"].T @ rows(sample.lower)["b"] / 32  # g_y at 0
        pooled = [rows(where)["a"] for where in sample.chain]
        hessian = 2 * sum(a.T @ a / 32 for a in pooled) / blocks + 2 * np.eye(10) / CONDITION
        np.testing.assert_allclose(found[i], -0.5 * np.linalg.solve(hessian, v), rtol=2e-2)


def test_a_solver_takes_no_more_rows_than_the_chain_would_draw_or_all_of_few():
    chosen = diamond.diamond().hypergradient  # what alpha is comes later
    find = lambda problem, batch: resolve(chosen, Setting(problem, None, batch, 0)).numbers
    many = find(shifted(rows=400), 16)
    assert many["inverse"] == inverse.FACTORED and many["hessian_blocks"] == 7
    noisy = find(shifted(rows=400), 2)
    assert noisy["inverse"] == inverse.ACCELERATED and noisy["chain_bias"] > 0.1
    assert "Nesterov's chain of 20 terms: at a condition of" in inverse.said(noisy)
    few = find(shifted(), 2)  # 100 rows
    assert few["inverse"] == inverse.FACTORED and few["hessian_blocks"] == 0


def test_where_two_inverses_would_do_time_decides(monkeypatch):
    """A round of the chain: 31 products; CG: 3 solves of sqrt(30) / 2 log(2 / 0.1) steps each."""
    given = dict(size=100, _most=80, _bias=0.3, condition=30.0)
    for name, value in given.items():
        monkeypatch.setattr(inverse, name, lambda setting, value=value: value)

    def kind(batch, rows=80, bend=30.0):
        monkeypatch.setattr(inverse, "_most", lambda setting: rows)
        monkeypatch.setattr(inverse, "condition", lambda setting: bend)
        problem = SimpleNamespace(lower_level="personal")
        return inverse.inverse(Setting(problem, None, batch, 0))

    steps, chain = math.ceil(math.sqrt(30) / 2 * math.log(20)), 31 * (16 + 64)
    most = int(1.3 * chain / (3 * steps)) - 64  # rows on which a solver is as fast as it must be
    assert kind(16, most) == inverse.ITERATED and kind(16, most + 1) == inverse.ACCELERATED
    assert kind(64, most + 1) == inverse.ITERATED
    assert kind(16, most + 1, 40.0) == inverse.ITERATED  # out of reach of 20 terms
    assert kind(1, 255, 1e4) == inverse.ITERATED and kind(1, 257, 1e4) == inverse.ACCELERATED


def test_depths_of_ones_own_are_spread_over_the_agents():
    """Agent i of 4 has (k + 2 i) mod 8, k that of all; products tell how deep it went."""
    problem, terms = quad().problem, 8
    estimator = diamond.hypergradient.neumann(terms, 1.6, depth="own")
    found = resolve(estimator, Setting(problem, None, 1, 0)).algorithm
    x, y = problem.start(0)
    products = jax.jit(lambda own, rows, sample: own(rows, [(x, y)], sample)[1].hvps)
    deep = []
    for i in range(4):
        sample = sample_of(problem, i, terms)._replace(bits=jnp.uint32(8 * 5 + 3))
        deep.append(int(products(agent_numbers(found, i), problem.objectives(1).of(i), sample)))
    assert deep == [3, 5, 7, 1]
    with pytest.raises(ValueError, match="depth = 'mine'; there are 'common' and 'own'"):
        diamond.hypergradient.neumann(depth="mine")


def test_the_chain_warns_where_no_depth_it_may_take_is_enough():
    chain = diamond.hypergradient.neumann()
    with pytest.warns(RuntimeWarning, match=r"K = 32 terms leaves out up to .* = 0.99 .* chosen"):
        resolve(chain, Setting(shifted(), None, 64, 0))
