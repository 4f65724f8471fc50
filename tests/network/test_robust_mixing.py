"""Robust mixing and liars: formulas, bounds, graphs that can be defended, and whole runs."""

import itertools

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from fast_compilation import without_optimizations
from helpers import quad
from scipy.sparse import csr_array

import diamond
from diamond.core.sampling import ExchangeId, key
from diamond.interface.round_interface import Message
from diamond.network.liars import LIE_FUNCTIONS
from diamond.network.mixing.lossy_mixer import make_mixer
from diamond.network.mixing.robust_mixer import FAR, most_weight_of_liars

EXCHANGE = ExchangeId(key(0), jnp.int32(3))
GRAPH = diamond.network.from_graph(nx.circulant_graph(9, [1, 2, 3]))  # six neighbours each


def change(network, message, exchange=EXCHANGE):
    return make_mixer(network).exchange(message, exchange, None)[0]


def uneven(seed=0, agents=9):
    """A connected graph whose agents have different numbers of neighbours and weights."""
    return diamond.network.erdos_renyi(agents, 0.8, seed=seed)


def complete():
    return diamond.network.complete(8)


def clipped_by_formula(matrix, x, liars):
    """The sum of the module's text, agent by agent, in float64."""
    result = np.zeros_like(x)
    for i, row in enumerate(matrix):
        others = [k for k in np.flatnonzero(row) if k != i]
        d = {k: np.linalg.norm(x[k] - x[i]) for k in others}
        closest = sorted(others, key=d.get)[: len(others) - liars]
        most = sum(sorted((row[k] for k in others), reverse=True)[:liars])
        tau = np.sqrt(sum(row[k] * d[k] ** 2 for k in closest) / most)
        for k in others:
            share = 1 if d[k] <= tau else tau / d[k] if d[k] <= FAR * tau else 0
            result[i] += row[k] * share * (x[k] - x[i])
    return result


def test_liars_are_assumed_at_the_largest_weights():
    row = np.array([[0.3, 0.1, 0.4, 0.2], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    weights = csr_array(row)
    most = [most_weight_of_liars(weights, 0, liars) for liars in (1, 2, 3)]
    np.testing.assert_allclose(most, [0.4, 0.6, 0.7])


def trimmed_by_formula(matrix, x, liars):
    result = np.zeros_like(x)
    for i, row in enumerate(matrix):
        others = [k for k in np.flatnonzero(row) if k != i]
        for c in range(x.shape[1]):
            used = sorted(others, key=lambda k: x[k, c])[liars:-liars]
            scale = sum(row[k] for k in others) / sum(row[k] for k in used)
            result[i, c] = sum(scale * row[k] * (x[k, c] - x[i, c]) for k in used)
    return result


FORMULAS = {"clipped": clipped_by_formula, "trimmed": trimmed_by_formula}


@pytest.mark.wide(keep=["clipped"])
@pytest.mark.parametrize("rule", FORMULAS)
@pytest.mark.filterwarnings("ignore:.*is known to withstand")
def test_the_change_follows_the_formula_also_with_unequal_neighbours(rule):
    with jax.enable_x64(True):
        for seed, liars in itertools.product(range(3), (1, 2)):
            network = uneven(seed)
            if network.degrees.min() <= 2 * liars:
                continue
            x = np.random.default_rng(seed).normal(size=(9, 5)) * np.logspace(-1, 1, 9)[:, None]
            network = network.robust(rule, liars)
            found = change(network, Message({"x": jnp.asarray(x), "alpha": jnp.asarray(x[:, 0])}))
            wanted = FORMULAS[rule](network.matrix, x, liars)
            np.testing.assert_allclose(found.average["x"], wanted, rtol=1e-10, atol=1e-12)
            # A number by itself is an array of its own.
            wanted = FORMULAS[rule](network.matrix, x[:, :1], liars)[:, 0]
            np.testing.assert_allclose(found.average["alpha"], wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.wide
def test_messages_that_are_alike_are_mixed_with_the_same_bits():
    x = 1 + 0.1 * np.random.default_rng(0).uniform(size=(8, 300)).astype(np.float32)
    plain = diamond.network.complete(8)
    wanted = change(plain, Message(jnp.asarray(x))).average
    np.testing.assert_array_equal(change(plain.robust(), Message(jnp.asarray(x))).average, wanted)


@pytest.mark.wide
@pytest.mark.parametrize("rule", FORMULAS)
@pytest.mark.parametrize("lie", [np.nan, np.inf, -np.inf, 3e38, -1e4])
def test_one_false_message_moves_nobody_beyond_the_honest_spread(rule, lie):
    x = np.random.default_rng(1).normal(size=(9, 4)).astype(np.float32)
    falsify = lambda message, receiver, key: jax.tree.map(lambda a: 0 * a + lie, message)
    network = GRAPH.robust(rule).with_liar(4, falsify)
    moved = x + np.asarray(change(network, Message(jnp.asarray(x))).average)
    honest = np.delete(np.arange(9), 4)
    assert np.isfinite(moved[honest]).all()
    spread = np.abs(x[honest][:, None] - x[honest]).max()
    assert np.abs(moved[honest] - x[honest]).max() <= spread


def test_lies_reach_the_receivers_and_the_liar_itself_stays_honest():
    network, x = diamond.network.complete(4), np.arange(8.0, dtype=np.float32).reshape(4, 2)
    average, row = {"method": jnp.asarray(x), "step": jnp.asarray(x[:, 1])}, network.matrix
    false = {
        "constant": (np.ones((4, 2)), 1.0),
        "bias": (x[3] + 0.3, x[3, 1] + 0.3),
        "flipped": (-x[3], -x[3, 1]),
        "scaled": (1000 * x[3], 1000 * x[3, 1]),
        "two-faced": (x[3] + [[1], [-1], [1], [-1]], x[3, 1] + np.array([1, -1, 1, -1])),
        "inflated": (x[3], 1000 * x[3, 1]),
    }
    for lie, (vector, number) in false.items():
        found = change(network.with_liar(3, lie), Message(average)).average
        vectors, numbers = np.broadcast_to(vector, (4, 2)), np.broadcast_to(number, 4)
        for i in range(4):
            table, scalars = x.copy(), x[:, 1].copy()
            if i != 3:
                table[3], scalars[3] = vectors[i], numbers[i]
            np.testing.assert_allclose(found["method"][i], row[i] @ (table - x[i]), 1e-5, 1e-6)
            np.testing.assert_allclose(found["step"][i], row[i] @ (scalars - x[i, 1]), 1e-5, 1e-6)
    assert set(false) | {"noise"} == set(LIE_FUNCTIONS)


@pytest.mark.wide
def test_noise_is_new_in_every_round_and_equal_for_all_receivers():
    network, x = diamond.network.complete(4).with_liar(0, "noise"), jnp.zeros((4, 1000))
    first = change(network, Message(x)).average
    second = change(network, Message(x), EXCHANGE._replace(t=jnp.int32(4))).average
    np.testing.assert_array_equal(first[1], first[2])
    assert np.abs(first[1] - second[1]).max() > 0.1
    np.testing.assert_allclose(np.std(first[1]) / network.matrix[1, 0], 1.0, atol=0.1)
    np.testing.assert_array_equal(first[0], 0)


def withstands(graph, liars):
    """Whether no group can be held apart, by all pairs of groups (Vaidya, Tseng, Liang 2012)."""
    nodes = list(graph)
    for removed in itertools.combinations(nodes, liars):
        rest = [node for node in nodes if node not in removed]
        stuck = []  # groups in which nobody has more than `liars` neighbours outside
        for size in range(1, len(rest)):
            for group in map(set, itertools.combinations(rest, size)):
                outside = [len(set(graph[i]) - group - set(removed)) for i in group]
                if max(outside) <= liars:
                    stuck.append(group)
        if any(not (a & b) for a, b in itertools.combinations(stuck, 2)):
            return False
    return True


def test_the_number_of_tolerated_liars_is_safe_and_exact_on_complete_graphs():
    for agents in range(4, 9):
        assert diamond.network.complete(agents).tolerated_liars == (agents - 1) // 3
    assert diamond.network.ring(8).tolerated_liars == 0
    assert diamond.network.star(8).tolerated_liars == 0
    assert diamond.network.one_way_ring(8).tolerated_liars == 0
    tolerant = 0
    for seed in range(6):
        network = diamond.network.erdos_renyi(7, 0.8, seed=seed)
        tolerant += network.tolerated_liars
        assert not network.tolerated_liars or withstands(network.graph, network.tolerated_liars)
    assert tolerant >= 2
    assert not withstands(diamond.network.ring(6).graph, 1)
    assert not withstands(diamond.network.complete(6).graph, 2)


def test_graphs_and_methods_that_cannot_be_defended_are_refused():
    with pytest.raises(ValueError, match="cannot be defended against 1 liar: an agent has 2 neigh"):
        diamond.network.ring(8).robust()
    with pytest.raises(ValueError, match="against 3 liars: of 8 agents fewer than a third"):
        diamond.network.complete(8).robust(liars=3)
    with pytest.warns(RuntimeWarning, match="known to withstand 0 liars, not 1"):
        diamond.network.torus(4, 4).robust()
    with pytest.raises(ValueError, match="no robust mixing 'median'"):
        diamond.network.complete(8).robust("median")
    with pytest.raises(ValueError, match="no lie 'white'; there are constant, bias"):
        diamond.network.complete(8).with_liar(0, "white")
    problem, network = quad(agents=4), diamond.network.complete(4).robust()
    for method in (diamond.gt_sgd(), diamond.extra(), diamond.exact_diffusion()):
        with pytest.raises(ValueError, match="in which the error of robust mixing would accum"):
            diamond.simulate(problem, network, method, 1)


METHODS = {
    "given": diamond.dsgd(3.0, 0.1, 16, diamond.hypergradient.conjugate_gradient(5)),
    "learned": diamond.dsgd(batch=16),  # measurements travel too
}
CASES = [
    ("given", ("scaled", "two-faced")),
    pytest.param("learned", ("scaled", "inflated"), marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("steps", "lies"), CASES)
def test_a_run_with_a_liar_ends_where_the_honest_run_ends(steps, lies):
    loss = lambda x, y, rows: jnp.mean((rows["a"] @ y - rows["b"]) ** 2) + 0.05 * jnp.mean(x**2)
    lower = lambda x, y, rows: loss(x, y, rows) + jnp.sum(jnp.exp(x) * y**2)
    a = np.random.default_rng(0).normal(size=(16, 32, 3)).astype(np.float32)
    rows = [{"a": one, "b": one[:, 0] - one[:, 1]} for one in a]
    start = lambda key: (jnp.zeros(3), jnp.zeros(3))
    problem, network = diamond.Problem(loss, lower, start, rows[:8], rows[8:]), complete()
    method = METHODS[steps]

    def objective(x):
        """Mean of f_i(x, y_i*(x)) over the honest, with y_i* from the normal equations."""
        values = []
        for train, valid in zip(rows[:7], rows[8:15]):
            gram = train["a"].T @ train["a"] / 32 + np.diag(np.exp(x))
            y = np.linalg.solve(gram, train["a"].T @ train["b"] / 32)
            values.append(loss(x, y, valid))
        return float(np.mean(values))

    with without_optimizations():
        options = dict(rounds=60, every=60, measure="cheap")
        run = lambda network: diamond.simulate(problem, network, method, **options)
        end = lambda network: objective(np.asarray(run(network).x[:7]).mean(0))
        honest = end(network)
        assert honest < 0.7 * objective(np.zeros(3))
        for lie in lies:
            assert end(network.robust().with_liar(7, lie)) < 1.1 * honest
        assert end(network.with_liar(7, "constant")) > 1.1 * honest
