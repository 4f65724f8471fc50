"""Draws: a pure function of (seed, round, agent), fair, and the agent's own rows only."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ESTIMATORS, agent_of, build, quad, same_bits, sample_of
from scipy.stats import chisquare

from diamond.core.sampling import draw, key
from diamond.engine.round_program import draw_samples
from diamond.problem import Problem

ROUNDS = 6000


STEPS = dict(alpha=0.1, beta=0.1, eta=0.5, gamma=0.5)


@pytest.mark.wide
@pytest.mark.parametrize("sampling", ["blocks", "rows"])
def test_an_agents_draw_depends_on_nothing_but_seed_round_and_agent(sampling):
    one = draw(key(5), 3, 2, (11, 7), hessian_batches=2, batch=4, sampling=sampling)
    assert same_bits(one, draw(key(5), 3, 2, (11, 7), 2, 4, sampling))
    more = draw(key(5), 3, 2, (11, 7), hessian_batches=9, batch=4, sampling=sampling)
    assert same_bits(one._replace(chain=None), more._replace(chain=None))
    np.testing.assert_array_equal(one.chain, more.chain[:2])
    for other in [(key(6), 3, 2), (key(5), 4, 2), (key(5), 3, 1)]:
        assert not same_bits(one, draw(*other, (11, 7), 2, 4, sampling))


@pytest.mark.wide
@pytest.mark.parametrize("sampling", ["blocks", "rows"])
def test_all_runs_draw_alike_whatever_the_number_of_agents_and_links(sampling):
    drawn = jax.jit(draw_samples, static_argnums=4)
    two_agents, four_agents = quad(agents=2), quad(agents=4)
    runs = [
        (two_agents, "diamond", ESTIMATORS["neumann"]),
        (four_agents, "dsgd", ESTIMATORS["exact"]),
        (four_agents, "gt_sgd", ESTIMATORS["unrolled"]),
    ]
    rows_drawn = [
        drawn(
            build(name, batch=3, hypergradient=h, **STEPS),
            problem.objectives(3),
            key(0),
            8,
            sampling,
        )
        for problem, name, h in runs
    ]
    for other in rows_drawn[1:]:
        assert other.bits == rows_drawn[0].bits
        for name in ("upper", "lower", "cross"):
            np.testing.assert_array_equal(getattr(other, name)[:2], getattr(rows_drawn[0], name))
        np.testing.assert_array_equal(other.chain[:2, :1], rows_drawn[0].chain[:, :1])


@pytest.mark.wide
def test_the_depth_is_common_to_all_agents_and_uniform():
    bits = jax.vmap(lambda t: draw(key(1), t, 0, (9, 9), 1, 1, "blocks").bits)(jnp.arange(ROUNDS))
    other = jax.vmap(lambda t: draw(key(1), t, 7, (5, 3), 4, 2, "rows").bits)(jnp.arange(ROUNDS))
    np.testing.assert_array_equal(bits, other)
    for terms in (2, 5, 10):
        depths = np.bincount(np.asarray(bits) % terms, minlength=terms)
        assert len(depths) == terms and chisquare(depths).pvalue > 1e-3


@pytest.mark.parametrize("agent", [0, 1])
def test_draws_are_not_correlated_within_or_between_rounds(agent):
    sample = partial(draw, rows=(64, 64), hessian_batches=2, batch=1, sampling="blocks")
    s = jax.vmap(sample, (None, 0, None))(key(3), jnp.arange(ROUNDS), agent)
    columns = np.stack([s.upper, s.lower, s.cross, *s.chain.T, s.bits % 64]).astype(float)
    table = np.corrcoef(np.concatenate([columns[:, 1:], columns[:, :-1]]))
    off = table - np.eye(len(table))
    assert np.abs(off).max() < 5 / np.sqrt(ROUNDS)


def numbered(counts):
    """Rows that say whose they are and which one: agent * 100 + row."""
    part = [np.arange(n) + 100.0 * i for i, n in enumerate(counts)]
    loss = lambda x, y, rows: jnp.mean(rows) * x + (y + x - jnp.mean(rows)) * y
    return Problem(loss, loss, lambda key: (1.0, 1.0), part, part)


@pytest.mark.wide
@pytest.mark.parametrize("sampling", ["blocks", "rows"])
@pytest.mark.parametrize("agent, count", [(0, 7), (1, 2), (2, 1)])
def test_every_row_is_equally_likely_and_none_is_foreign(sampling, agent, count):
    batch = 3  # more than agents 1 and 2 have rows
    problem = numbered([7, 2, 1])
    objectives_of_agent = agent_of(problem.objectives(batch), agent)

    def drawn(t):
        s = draw(key(2), t, agent, (count, count), 2, batch, sampling)
        places = [s.lower, s.cross, s.hessian_batch(0), s.hessian_batch(1)]
        return jnp.stack(
            [
                objectives_of_agent.valid.rows_at(s.upper),
                *(objectives_of_agent.train.rows_at(w) for w in places),
            ]
        )

    rows_drawn = np.asarray(
        jax.jit(jax.vmap(drawn))(jnp.arange(ROUNDS))
    )  # (rounds, purposes, batch)
    assert rows_drawn.shape == (ROUNDS, 5, batch)
    assert set(rows_drawn.ravel()) <= set(100.0 * agent + np.arange(count))
    for purpose in range(5):
        for position in (0, batch - 1):
            rows = rows_drawn[:, purpose, position].astype(int) - 100 * agent
            seen = np.bincount(rows, minlength=count)
            assert count == 1 or chisquare(seen).pvalue > 1e-3


def test_a_block_is_successive_rows_the_last_followed_by_the_first():
    problem = numbered([7, 2, 1])
    blocks = [agent_of(problem.objectives(4), i).train for i in range(3)]
    order = [rows - 100 * i for i, rows in enumerate(problem.rows["train"])]
    for i, count in enumerate([7, 2, 1]):
        for first in range(count):
            expected = [100 * i + order[i][(first + j) % count] for j in range(4)]
            np.testing.assert_array_equal(blocks[i].rows_at(first), expected)


def test_rows_are_shuffled_once_unless_told_otherwise():
    problem = numbered([20, 20, 3])
    assert not np.array_equal(problem.rows["train"][0], np.arange(20))
    assert sorted(problem.rows["train"][0]) == list(range(20))
    again = numbered([20, 20, 3])
    np.testing.assert_array_equal(problem.rows["train"][1], again.rows["train"][1])
    part = [np.arange(9.0)]
    unshuffled = Problem(
        problem.upper, problem.lower, problem.init, part, part, metrics=None, shuffle=False
    )
    np.testing.assert_array_equal(unshuffled.rows["train"][0], np.arange(9))


@pytest.mark.wide
def test_unequal_agents_have_exact_averages():
    counts = [7, 2, 1, 5]
    q = quad(rows=tuple(counts))
    random = np.random.default_rng(0)
    x, y = random.normal(size=3), random.normal(size=4)
    for batch in (1, 3):
        objectives = q.objectives(batch)
        for i, count in enumerate(counts):
            objectives_of_agent = agent_of(objectives, i)
            rows = q.rows["train"][i], q.rows["valid"][i]
            assert len(rows[0]["point"]) == count
            g = 0.5 * y @ q.A[i] @ y - y @ (q.B[i] @ x + rows[0]["point"].mean(0))
            gaps = ((y - rows[1]["point"]) ** 2).sum(1)
            f = (0.5 * gaps).mean() + 0.5 * x @ q.P[i] @ x + q.c[i] @ x + x @ q.D[i] @ y
            assert objectives_of_agent.g(x, y, None) == pytest.approx(g, rel=1e-13)
            assert objectives_of_agent.f(x, y, None) == pytest.approx(f, rel=1e-13)
            np.testing.assert_allclose(q.b[i], rows[0]["point"].mean(0), rtol=1e-13)


@pytest.mark.wide
def test_a_mini_batch_loss_is_the_average_over_its_block():
    q = quad()
    objectives_of_agent, sample = agent_of(q.objectives(5), 2), sample_of(q, 2, 1, 5)
    x, y = np.full(3, 0.3), np.full(4, -0.2)
    rows = q.rows["train"][2]["point"]
    block = rows[(int(sample.lower) + np.arange(5)) % len(rows)]
    expected = 0.5 * y @ q.A[2] @ y - y @ (q.B[2] @ x + block.mean(0))
    assert objectives_of_agent.g(x, y, sample.lower) == pytest.approx(expected, rel=1e-13)
