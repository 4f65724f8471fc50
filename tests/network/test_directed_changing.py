"""Networks whose links go one way or change: weights, connectivity, spectra, mixing, counts."""

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from helpers import build, final_progress, quad, ring

import diamond
from diamond import hypergradient as hg
from diamond import network
from diamond.core.sampling import ExchangeId, key
from diamond.interface.round_interface import Message
from diamond.network.mixing.link_mixer import link_mixer

ONE_WAY = {
    "ring": network.one_way_ring(6),
    "digraph": network.random_digraph(6, 0.3, seed=1),
    "one_peer": network.one_peer(6),
    "matchings": network.matchings(6, period=8),
    "digraphs": network.changing([network.random_digraph(6, 0.3, seed=s) for s in range(3)]),
    "graphs": network.changing([nx.path_graph(6), nx.star_graph(5)]),
    "both": network.changing([network.random_digraph(6, 0.4, seed=2), nx.path_graph(6)]),
}


def matrices(net, t):
    """R and C of round t."""
    one = net.phases[t % len(net.phases)]
    shares = one.weights if one.shares is None else one.shares
    return one.weights.toarray(), shares.toarray()


@pytest.mark.wide
@pytest.mark.parametrize("name", ONE_WAY)
def test_rows_average_and_columns_keep_totals_in_both_forms(name):
    net = ONE_WAY[name]
    random = np.random.default_rng(0)
    message = Message({"x": random.normal(size=(6, 3))}, {"u": random.normal(size=(6, 2, 2))})
    forms = [jax.jit(link_mixer(net, dense).__call__) for dense in (True, False)]
    for t in range(len(net.phases) + 1):
        rows, columns = matrices(net, t)
        np.testing.assert_allclose(rows.sum(1), 1)
        np.testing.assert_allclose(columns.sum(0), 1)
        for form in forms:
            change = form(message, jnp.int32(t))
            x = message.average["x"]
            np.testing.assert_allclose(change.average["x"], rows @ x - x, atol=1e-14)
            u, found = message.total["u"], change.total["u"]
            np.testing.assert_allclose(found, np.einsum("ij,jkl->ikl", columns, u) - u, atol=1e-14)
            np.testing.assert_allclose(np.asarray(found).sum(0), 0, atol=1e-14)


@pytest.mark.wide
def test_what_all_have_in_common_is_not_rounded(float32):
    net = ONE_WAY["digraphs"]
    leaf = jnp.full((6, 4), 1e6 / 3, jnp.float32)
    for dense in (True, False):
        change = link_mixer(net, dense)(Message(leaf, None), 1)
        assert not np.any(change.average)


@pytest.mark.parametrize("name", ONE_WAY)
def test_spectra_say_how_averages_end(name):
    """pi is where averages go, c where totals go; lam how fast, over whole periods."""
    net, period = ONE_WAY[name], len(ONE_WAY[name].phases)
    rows = columns = np.eye(6)
    for t in range(150 * period):
        r, c = matrices(net, t)
        rows, columns = r @ rows, c @ columns
    np.testing.assert_allclose(rows, np.tile(net.perron, (6, 1)), atol=1e-6)
    np.testing.assert_allclose(
        columns, np.tile(net.column_perron_vector[:, None], (1, 6)), atol=1e-6
    )
    assert net.step_inflation == pytest.approx(6 * net.perron @ net.column_perron_vector)
    once = [np.linalg.multi_dot([np.eye(6), *m]) for m in zip(*_period(net))]
    second = [sorted(np.abs(np.linalg.eigvals(m)))[-2] for m in once]
    assert net.lam == pytest.approx(max(second) ** (1 / period), abs=1e-6)


def _period(net):
    """R_B .. R_1 and C_B .. C_1, newest first, pair by pair."""
    return [matrices(net, t) for t in reversed(range(len(net.phases)))]


def test_large_ones_are_measured_without_writing_the_product_out():
    from diamond.network.spectrum import perron_vector, product_contraction

    rounds = [one.weights for one in ONE_WAY["digraphs"].phases]
    np.testing.assert_allclose(perron_vector(rounds, 0), perron_vector(rounds), atol=1e-9)
    assert product_contraction(rounds, 0) == pytest.approx(product_contraction(rounds), rel=0.02)


def test_one_peer_is_exact_after_log_m_rounds():
    net = network.one_peer(8)
    product = np.eye(8)
    for one in net.phases:
        product = one.matrix @ product
    np.testing.assert_allclose(product, 1 / 8)
    assert net.lam < 1e-4 and net.kind == "balanced" and net.diameter == 3
    assert {int(d) for one in net.phases for d in one.degrees} == {1}


def test_kinds_counts_and_words():
    assert {name: net.kind for name, net in ONE_WAY.items()} == {
        "ring": "balanced", "digraph": "directed", "one_peer": "balanced",
        "matchings": "balanced", "digraphs": "directed", "graphs": "balanced", "both": "directed",
    }  # fmt: skip
    for net in (*ONE_WAY.values(), ring(6)):
        counted = sum(one.weights.nnz - 6 for one in (net.phases * 8)[:7])
        assert net.count_messages(7) == sum(net.count_messages_by_edge(7).values()) == counted
        assert set(net.count_messages_by_edge(7)) == set(net.edges)
    assert str(ONE_WAY["ring"]) == "one_way_ring(6): 6 agents, 6 arcs, even mixing, lam = 0.866"
    assert ONE_WAY["ring"].diameter == 5 and ONE_WAY["graphs"].diameter <= 6
    mine = np.array([[0.5, 0, 0.5], [0.2, 0.8, 0], [0, 0.7, 0.3]])
    own = network.directed(
        nx.DiGraph([(0, 1), (1, 2), (2, 0)]), rows=mine, columns=network.one_way_ring(3).matrix
    )
    assert own.mixing == "custom"


GIVEN = dict(alpha=0.04, beta=0.2, delta=0.2, eta=0.5, gamma=0.5, theta=0.5, inner=2)
METHODS = ["diamond", "push_diging", "diamond_common"]
MORE = ["k_free", "adasdbo", "ma_dsbo", "gt_sgd", "lopa", "sldbo"]


@pytest.mark.wide
@pytest.mark.parametrize(
    "name", [*METHODS, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE)]
)
def test_tracking_is_exact_on_digraphs_that_change(name):
    """One program for every such network: matrices are arguments."""
    method = build(name, hypergradient=hg.exact(), batch=2, **GIVEN)
    q = quad(agents=6, rows=4, noise=0.0, lower_level=method.lower_levels[0])
    state = final_progress(q, ONE_WAY["digraphs"], method, 4000).state
    assert np.abs(np.asarray(state.x) - q.minimizer()).max() < 1e-6 * np.abs(q.minimizer()).max()


@pytest.mark.wide
def test_the_bias_of_push_sum_halves_with_the_step_and_that_of_fab_with_lam():
    net = ONE_WAY["digraphs"]

    def error(name, level, **options):
        q = quad(agents=6, rows=4, noise=0.0, lower_level=level)
        method = build(name, **{"hypergradient": hg.exact(), "batch": 2} | GIVEN | options)
        x = np.asarray(final_progress(q, net, method, 4000).state.x)
        return np.abs(x - q.minimizer()).max() / np.abs(q.minimizer()).max()

    large, small = (error("sgp", "personal", alpha=alpha) for alpha in (0.01, 0.005))
    assert 1e-3 < small < 0.2 and large / small == pytest.approx(2, rel=0.35)
    large, small = (error("fab", "common", lam=lam) for lam in (20.0, 40.0))
    assert 1e-3 < small < 0.1 and large / small == pytest.approx(2, rel=0.2)


@pytest.mark.wide
def test_push_sum_keeps_its_weights_and_totals():
    net, problem = ONE_WAY["digraphs"], quad(agents=6, rows=4, noise=0.0)
    method = build("push_diging", hypergradient=hg.exact(), batch=2, **GIVEN)
    progress = final_progress(problem, net, method, 30)
    (pushed, u), old = progress.state.memory.x, progress.state.old.x
    assert float(pushed.w.sum()) == pytest.approx(6, rel=1e-12)
    assert float(np.abs(np.asarray(pushed.w) - 1).max()) > 0.1
    for mine, gradient in zip(jax.tree.leaves(u), jax.tree.leaves(old)):
        np.testing.assert_allclose(mine.sum(0), gradient.sum(0), atol=1e-12)


def test_networks_that_change_share_one_program():
    from diamond.engine.round_program import run_rounds

    q = quad(agents=6, rows=4, noise=0.0)
    method = build("diamond", hypergradient=hg.exact(), batch=2, **GIVEN)
    other = network.changing([network.random_digraph(6, 0.3, seed=s) for s in (5, 6, 7)])
    final_progress(q, ONE_WAY["digraphs"], method, 3)
    programs = lambda: sum(one._cache_size() for one in run_rounds.programs.values())
    before = programs()
    first, second = (
        final_progress(q, net, method, 5).state.x for net in (other, ONE_WAY["digraphs"])
    )
    assert programs() == before
    assert np.abs(first - second).max() > 1e-6


def test_a_run_is_the_same_on_devices_and_its_bytes_are_those_of_the_links():
    net = ONE_WAY["both"]
    algorithm = build("diamond", batch=2, **GIVEN)
    given = quad(agents=6, lower_level="none"), net, algorithm, 20
    alone, cut = (diamond.simulate(*given, every=10, devices=d) for d in (None, 4))
    for name in ("metric", "bytes", "consensus"):
        np.testing.assert_allclose(alone.history[name], cut.history[name], rtol=1e-9)
    assert alone.history["bytes"][-1] == net.count_messages(20) * 2 * 3 * 8  # x and u, of 3 numbers
    assert sum(alone.traffic.values()) == alone.history["bytes"][-1]
    assert alone.messages == net.count_messages(20)


DIGRAPH = nx.DiGraph([(0, 1), (1, 2), (2, 0)])
WRONG = {
    "path": (lambda: network.directed(nx.DiGraph([(0, 1), (1, 2)])), "not strongly connected"),
    "graph": (lambda: network.directed(nx.path_graph(3)), "takes a networkx.DiGraph"),
    "rows": (lambda: network.directed(DIGRAPH, rows=np.eye(3)), r"rows\[0, 2\] is 0; an arc"),
    "sums": (
        lambda: network.directed(DIGRAPH, columns=network.one_way_ring(3).matrix * 2),
        "column 0 of columns sums to 2",
    ),
    "p": (lambda: network.random_digraph(4, 1.5), "p is 1.5"),
    "sparse": (lambda: network.random_digraph(9, 0.01), "none of 1000 draws"),
    "period": (lambda: network.changing(lambda t: nx.path_graph(3)), "needs period"),
    "empty": (lambda: network.changing([]), "networks is empty"),
    "apart": (
        lambda: network.changing([nx.from_edgelist([(0, 1), (2, 3)])] * 2),
        r"over 2 rounds the links do not connect \{0, 1\}",
    ),
    "sizes": (lambda: network.changing([nx.path_graph(3), nx.path_graph(4)]), "has 4 agents"),
    "nested": (lambda: network.changing([network.one_peer(4)]), "changes itself"),
    "type": (lambda: network.changing([3]), "neither a network nor a networkx graph"),
    "agents": (lambda: network.one_peer(0), "agents = 0 must be a whole number, 1 or more"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_said_in_one_sentence(name):
    make, message = WRONG[name]
    with pytest.raises((ValueError, TypeError), match=message):
        make()


@pytest.mark.parametrize(("method", "name", "message"), [
    ("dsgd", "digraph", "needs balanced weights; those that do not: .*diamond.*push_diging, .*sgp"),
    ("extra", "ring", "needs symmetric weights that stay the same; those that do not: .*dsgd"),
    ("sparkle", "matchings", "needs symmetric weights.*: .*diamond_common"),
])  # fmt: skip
def test_a_method_that_would_end_elsewhere_is_refused(method, name, message):
    level = build(method).lower_levels[0]
    with pytest.raises(ValueError, match=message):
        diamond.simulate(quad(agents=6, lower_level=level), ONE_WAY[name], build(method), 1)


def test_a_prox_needs_balanced_weights_and_the_theory_symmetric_ones():
    known = quad(agents=6)
    given = known.upper, known.lower, known.init, known.rows["train"], known.rows["valid"]
    boxed = diamond.Problem(*given, prox=diamond.prox.box(-1, 1))
    with pytest.raises(ValueError, match="needs balanced weights"):
        diamond.simulate(boxed, ONE_WAY["digraph"], diamond.prometheus(batch=2), 1)
    with pytest.raises(ValueError, match="the theory of the paper is of symmetric weights"):
        diamond.theory.estimate(known, ONE_WAY["digraph"])


def test_peers_take_links_both_ways_only():
    from diamond.sites.rounds.site_agent import Agent

    with pytest.raises(ValueError, match="sites ask each other both ways"):
        Agent(quad(agents=1), ONE_WAY["digraph"], diamond.dsgd(), 0)


def test_the_key_of_links_is_nobodys_sample():
    moment = ExchangeId(key(0), 3, 1)
    drawn = {tuple(jax.random.key_data(moment.purpose(k)).tolist()) for k in range(3)}
    agents = jax.random.fold_in(jax.random.fold_in(key(0), 3), jnp.uint32(0) - 2)
    drawn |= {tuple(jax.random.key_data(jax.random.fold_in(agents, i)).tolist()) for i in range(99)}
    assert len(drawn) == 102


def test_clocks_know_which_links_a_round_has():
    net = ONE_WAY["both"]
    assert ring(6).active_edges is None
    for phase, numbers in zip(net.phases, net.active_edges, strict=True):
        assert {net.edges[k] for k in numbers} == set(phase.graph.to_directed().edges)
    graphs = ONE_WAY["graphs"]
    for phase, numbers in zip(graphs.phases, graphs.active_edges, strict=True):
        assert {graphs.edges[k] for k in numbers} == set(phase.edges)


@pytest.mark.parametrize("order", ["atc", "paper"])
@pytest.mark.parametrize(
    "net", [network.one_way_ring(6), network.one_peer(6)], ids=lambda net: net.name
)
def test_tracking_is_stable_up_to_its_limit_and_no_further(net, order):
    """Every agent with the curvature 1, by hand; from rings both ways it is not limited further."""

    def left(step, rounds=3000):
        s = u = np.random.default_rng(0).normal(size=net.agents)
        for t in range(rounds):
            one = net.phases[t % len(net.phases)]
            r, c = (
                a.toarray()
                for a in (one.weights, one.weights if one.shares is None else one.shares)
            )
            moved = r @ s - step * u if order == "paper" else r @ (s - step * u)
            s, u = moved, c @ u + moved - s
            if np.abs(s).max() > 1e6:
                break
        return np.abs(s).max()

    limit = net.tracking_limits[order]
    assert 0 < limit < 2 and left(0.95 * limit) < 1e-3 and left(1.6 * limit) > 1e3
    assert ring(6).tracking_limits[order] == np.inf
