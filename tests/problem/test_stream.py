"""Rows that are drawn: what a stream gives, and which draws are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import skip_loss_checks
from ridge_streams import AGENTS, draw, loss, ridge, stream_problem

import diamond
from diamond.core.sampling import LargeBatch, key
from diamond.core.sampling import draw as sampled

X, Y = np.array([0.1, 0.2]), np.array([0.3, -0.4])


def test_a_key_gives_the_same_rows_again_and_every_round_agent_and_purpose_others():
    problem = stream_problem().objectives(8)
    samples = [
        sampled(key(0), t, agent, (None, None), 2, 8, "blocks") for t in (0, 1) for agent in (0, 1)
    ]
    take = jax.jit(lambda where: problem.train.for_agent(1).rows_at(where)["a"])
    seen = [take(w) for s in samples for w in (s.upper, s.lower, s.cross, s.chain[0], s.chain[1])]
    assert np.array_equal(seen[0], take(samples[0].upper))
    assert len(np.unique(np.concatenate(seen)[:, 0])) == len(seen) * 8
    held = problem.train.data["a"][1], problem.valid.data["a"][1]
    assert not np.isin(np.concatenate(held), np.concatenate(seen)).any()
    assert not np.isin(*held).any()


def test_a_round_draws_once_for_all_points():
    problem = stream_problem().objectives(8).for_agent(2)
    sample = problem.draw_batch(sampled(key(0), 3, 2, (None, None), 2, 8, "rows"))
    assert problem.g(X, Y, sample.lower) == loss_with(problem, sample.lower.rows)
    assert problem.valid.size(sample.upper) == problem.valid.count_fresh_rows(sample.upper) == 8
    full = stream_problem(large=30).objectives(8).for_agent(2)
    everything = sample.full()
    assert isinstance(everything.chain[1], LargeBatch)
    assert full.train.rows_at(everything.lower)["a"].shape == (30, 2)
    assert full.train.size(everything.chain) == full.train.count_fresh_rows(everything.cross) == 30


def loss_with(problem, rows):
    return problem.lower(X, Y, rows)


def test_a_stream_over_a_finite_set_has_the_averages_of_its_rows():
    random = np.random.default_rng(0)
    rows = [{"a": random.normal(size=(20, 2)), "b": random.normal(size=20)} for _ in range(AGENTS)]
    held = jax.tree.map(lambda *a: jnp.stack(a), *rows)

    def any_row(key, agent):
        return jax.tree.map(lambda a: a[agent, jax.random.randint(key, (), 0, 20)], held)

    drawn = diamond.stream(any_row, AGENTS, evaluation=rows)
    stored, endless = ridge(rows, rows), ridge(drawn, drawn)
    for part in ("train", "valid"):
        assert np.array_equal(stored.stack(part).data["a"], endless.stack(part).data["a"])
        assert not endless.is_sample(part)

    def batches(agent):
        problem = endless.objectives(4000).for_agent(agent)
        return jax.grad(problem.g, (0, 1))(X, Y, jax.random.key(3)), problem.f(
            X, Y, jax.random.key(4)
        )

    def full(agent):
        problem = stored.objectives(1).for_agent(agent)
        return jax.grad(problem.g, (0, 1))(X, Y, None), problem.f(X, Y, None)

    found, wanted = (
        jax.device_get(jax.jit(jax.vmap(f))(jnp.arange(AGENTS))) for f in (batches, full)
    )
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted)):
        np.testing.assert_allclose(a, b, atol=0.25)  # five deviations of a mean of 4,000


def test_what_it_is_measured_on_depends_on_the_stream_alone():
    one, two = (diamond.stream(draw, AGENTS, evaluation=9, seed=s).sample(0)[1]() for s in (0, 1))
    again = diamond.stream(draw, AGENTS, evaluation=9).sample(0)[1]()
    assert np.array_equal(one["a"], again["a"]) and not np.array_equal(one["a"], two["a"])
    assert one["a"].shape == (9, 2)


@pytest.mark.wide
def test_parts_of_both_kinds_and_none_go_together(monkeypatch):
    skip_loss_checks(monkeypatch)
    rows = diamond.stream(draw, 2, evaluation=5)
    stored = [{"a": np.ones((3, 2)), "b": np.ones(3)}] * 2
    mixed = ridge(rows, stored)
    assert mixed.is_sample("train") and not mixed.is_sample("valid")
    assert "train a stream, measured on 5 each, valid 3 each" in repr(mixed)
    sample = sampled(key(0), 0, 0, (None, 3), 1, 2, "blocks")
    assert sample.full().upper is None and isinstance(sample.full().lower, LargeBatch)
    alone = diamond.Problem(lambda x, rows: loss(x, x, rows), None, lambda key: jnp.zeros(2), rows)
    assert alone.is_sample("valid") and alone.objectives(3).valid is not None


COUNT, UNSEEN = iter(range(10**6)), np.random.default_rng(0)
BAD = {
    "agent 0's draw is not pure": lambda key, agent: jnp.float32(next(COUNT)),
    r"agent 0's draw\['a'\] is not pure": lambda key, agent: {"a": UNSEEN.normal(size=2)},
    "agent 0's draw returns no array": lambda key, agent: {},
    "agent 1's draw gives a row of .*agent 0's one of": lambda key, agent: jnp.zeros(
        int(agent) + 1
    ),
    "agent 2's draw gives a row of .*int": lambda key, agent: (
        jnp.zeros(2) if agent < 2 else jnp.zeros(2, int)
    ),
    "agent 0's draw cannot be made part of a compiled program": lambda key, agent: np.asarray(key),
    "dtype": lambda key, agent: jnp.zeros(2, complex),
}


@pytest.mark.parametrize("message", BAD)
def test_a_draw_that_is_none_is_refused_with_the_agent(message):
    with pytest.raises((ValueError, TypeError), match=message) as refusal:
        diamond.stream(BAD[message], 3)
    assert "\n" not in str(refusal.value)


def test_numbers_that_make_no_stream_are_refused():
    for wrong in ({"agents": 0}, {"evaluation": 1}, {"large": 0}, {"evaluation": [{}] * 3}):
        with pytest.raises(ValueError, match="|".join(wrong) + "|evaluate"):
            diamond.stream(draw, **{"agents": 2} | wrong)
    with pytest.raises(ValueError, match=r"agent 1's .*not finite"):
        rows = diamond.stream(lambda key, agent: {"a": jnp.sqrt(0.5 - agent)}, 2)
        ridge(rows, rows)


def test_a_metric_is_not_called_what_the_error_of_another_is():
    stored = [{"a": np.ones((3, 2)), "b": np.ones(3)}] * 2
    for wrong in ({"error": loss, "error_se": loss}, {"upper_loss_se": loss}):
        with pytest.raises(ValueError, match="_se'"):
            ridge(stored, stored, metrics=wrong)


@pytest.mark.wide
def test_methods_on_all_rows_say_so_or_take_a_large_batch():
    network = diamond.network.ring(AGENTS)
    for method in (diamond.interact(), diamond.svr_interact(), diamond.aid(), diamond.vrbo()):
        with pytest.raises(ValueError, match=r"asks for all rows.*large=4096"):
            diamond.simulate(stream_problem(), network, method, rounds=1)
