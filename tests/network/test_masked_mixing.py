"""Masked sums: fixed point against Python's integers, its bounds, invariants, and whole runs."""

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from fast_compilation import without_optimizations
from helpers import final_progress, flat, quad

import diamond
from diamond.core.sampling import ExchangeId, key
from diamond.interface.traffic import count_traffic
from diamond.network.mask_limits import as_limit, describe_masks
from diamond.network.mixing import fixed_point
from diamond.network.mixing.fixed_point import LimitExceeded, Pair
from diamond.network.mixing.lossy_mixer import make_mixer
from diamond.network.mixing.masked_mixer import FixedPointMessage, masked_receiver
from diamond.schedules.deferred import replace_deferred, specialize

EXCHANGE = ExchangeId(key(0), jnp.int32(3))
LIMIT = 2.0**20
INTEGERS = [0, 1, -1, 2**31, -(2**31), 2**32 - 1, -(2**32), 2**61, -(2**61), 2**53 + 1]


def change(network, message):
    return make_mixer(network).exchange(message, EXCHANGE, None)[0]


def uneven(agents=9):
    return diamond.network.erdos_renyi(agents, 0.6, seed=1)


def integers(count=2000, seed=0):
    random = np.random.default_rng(seed)
    spread = random.integers(-(2**61), 2**61, count) >> random.integers(0, 60, count)
    return [*INTEGERS, *map(int, spread)]


def as_words(values):
    return np.array(values, np.int64).view(np.uint64)


def as_pair(values):
    words = as_words(values)
    return Pair(jnp.asarray(words >> 32, jnp.uint32), jnp.asarray(words & 0xFFFFFFFF, jnp.uint32))


def from_pair(pair):
    words = (np.asarray(pair.high, np.uint64) << 32) | np.asarray(pair.low, np.uint64)
    return words.view(np.int64).tolist()


@pytest.mark.parametrize("weight", [0, 1, 2**31, 2**32 - 1, 1431655765, 65537])
def test_products_and_sums_are_those_of_integers(weight):
    values = integers()
    exact = [value * weight >> 32 for value in values]  # floor, of any size
    found = fixed_point.multiply(as_words(values), np.uint64(weight))
    assert found.view(np.int64).tolist() == exact
    assert from_pair(fixed_point.multiply_pair(as_pair(values), jnp.uint32(weight))) == exact
    assert from_pair(fixed_point.negate(as_pair(values))) == [-value for value in values]
    wrap = lambda value: (value + 2**63) % 2**64 - 2**63
    total = fixed_point.add(as_pair(values), as_pair(values[::-1]))
    assert from_pair(total) == [wrap(a + b) for a, b in zip(values, values[::-1])]


@pytest.mark.wide
@pytest.mark.parametrize("dtype", [np.float32, np.float64, jnp.bfloat16])
def test_numbers_have_the_same_integers_in_programs(dtype):
    random = np.random.default_rng(0)
    sizes = 2.0 ** random.uniform(-50, 20, 3000) * random.choice([-1, 1], 3000)
    edges = np.array([LIMIT, -LIMIT, 0.0, -0.0, 2.0**-41, 2.0**-42, 1.5 * 2.0**-41, 1e-300])
    numbers = np.concatenate([sizes, edges]).astype(dtype)
    with jax.enable_x64(dtype == np.float64):
        pair, is_over = jax.jit(lambda a: fixed_point.to_pair(a, LIMIT))(jnp.asarray(numbers))
        words = fixed_point.to_words(numbers, LIMIT)
        assert from_pair(pair) == words.view(np.int64).tolist() and not is_over.any()
        exact = np.rint(numbers.astype(np.float64) * 2.0**41)
        np.testing.assert_array_equal(words.view(np.int64), exact.astype(np.int64))
        back = jax.jit(lambda a: fixed_point.from_pair(a, LIMIT, jnp.dtype(dtype)))(pair)
        expected = fixed_point.from_words(words, LIMIT, dtype)
        np.testing.assert_array_equal(np.asarray(back).astype(float), expected.astype(float))
        np.testing.assert_allclose(
            expected.astype(float), numbers.astype(float), rtol=0, atol=2.0**-42
        )
    values = np.array(integers(), np.int64)
    with jax.enable_x64(dtype == np.float64):
        found = fixed_point.from_pair(as_pair(values), LIMIT, jnp.dtype(dtype))
        expected = fixed_point.from_words(values.view(np.uint64), LIMIT, dtype)
        np.testing.assert_array_equal(np.asarray(found).astype(float), expected.astype(float))


@pytest.mark.wide
def test_the_error_is_within_its_bound_and_the_sum_is_kept():
    network, random = uneven(), np.random.default_rng(2)
    for scale in (1e-6, 1.0, 1e5):
        x = (random.normal(size=(9, 400)) * scale).astype(np.float32)
        matrix, far = network.matrix, x.astype(np.float64)
        exact = matrix @ far - far
        with jax.enable_x64(True):
            found = np.asarray(change(network.masked(), jnp.asarray(far)))
        bound = np.zeros_like(far)
        for i, row in enumerate(matrix):
            for j in np.flatnonzero(row):
                bound[i] += (i != j) * ((row[j] + 1) * 2.0**-41 + 2.0**-33 * abs(far[j] - far[i]))
        error = abs(found - exact)
        assert (error <= bound + 2.0**-50 * abs(exact)).all()
        assert error.max() > bound.max() / 1e4  # the bound is not idle
        assert abs(found.sum(0)).max() <= 2.0**-50 * abs(found).max() * 9


def test_equal_messages_do_not_move():
    x = jnp.full((9, 3), 0.1) + jnp.arange(3)
    assert not np.asarray(change(uneven().masked(), x)).any()


def test_a_site_computes_the_change_of_the_simulation():
    network, random = uneven().masked(), np.random.default_rng(3)
    x = random.normal(size=(9, 5, 7)).astype(np.float32)
    wanted = np.asarray(jax.jit(lambda a: change(network, a))(x))
    for i in range(9):
        receiver = masked_receiver(network, range(network.agents), i)
        words = [
            [fixed_point.multiply(fixed_point.to_words(x[j], LIMIT), weight)]
            for j, weight in zip(receiver.neighbours, receiver.weights)
        ]
        (found,) = receiver.change(FixedPointMessage([x[i]], LIMIT), words, [np.float32])
        np.testing.assert_array_equal(found, wanted[i])


def test_numbers_beyond_the_limit_are_never_silent():
    network = diamond.network.ring(5).masked(limit=100)
    assert network.mask_limit == 128
    x = np.zeros((5, 2), np.float32)
    for number in (129.0, -129.0, np.inf, np.nan):
        x[1, 0] = number
        found = np.asarray(change(network, jnp.asarray(x)))
        assert np.isnan(found[[0, 1, 2], 0]).all() and np.isfinite(found[3:]).all()
        assert np.isfinite(found[:, 1]).all()
        with pytest.raises(LimitExceeded, match="above the limit of masked sums, 128"):
            fixed_point.to_words(x[1], 128.0)
    receiver = masked_receiver(network, range(network.agents), 0)
    garbage = np.random.default_rng(0).integers(0, 2**64, (2, 1, 9), np.uint64)
    with pytest.raises(LimitExceeded, match="did not cancel"):
        receiver.change(FixedPointMessage([np.zeros(9)], 128.0), list(garbage), [np.float32])


@pytest.mark.wide
def test_the_largest_numbers_do_not_overflow():
    network = diamond.network.complete(12).masked()
    x = np.full((12, 1), LIMIT, np.float32)
    x[0] = -LIMIT
    found = np.asarray(change(network, jnp.asarray(x)))
    np.testing.assert_allclose(found, network.matrix @ x - x, rtol=1e-6, atol=1e-3)


@pytest.mark.wide
def test_a_run_with_trackers_ends_where_it_ends_without_masks():
    network, method = diamond.network.ring(5), diamond.gt_sgd(alpha=0.05, beta=0.1)
    with without_optimizations(), jax.enable_x64(False):
        problem = quad(agents=5)
        plain, masked = (
            flat(final_progress(problem, n, method, 60).state.x)
            for n in (network, network.masked())
        )
        assert plain.dtype == np.float32
    distance = np.linalg.norm(plain - masked) / np.linalg.norm(plain)
    assert 0 < distance < 1e-6


def test_bytes_count_eight_per_number():
    problem, method = quad(agents=5), diamond.gt_sgd(alpha=0.05, beta=0.1)
    with jax.enable_x64(False):
        outline = replace_deferred(specialize(method, problem), lambda number: 1)
        given = outline, problem.objectives(1), *problem.start(0)
        plain, masked = count_traffic(*given), count_traffic(*given, is_masked=True)
    assert masked.bytes == 2 * plain.bytes


def test_what_cannot_work_is_refused_in_a_sentence():
    ring, circle = diamond.network.ring(5), diamond.network.complete(8).masked()
    line = diamond.network.from_graph(nx.path_graph(4))
    with pytest.raises(ValueError, match="agent 0 has 1 neighbour, whose message is the whole sum"):
        line.masked()
    assert "cannot be" in describe_masks(line) and "masked = true" in describe_masks(ring)
    assert "up to 1048576" in describe_masks(circle)
    for limit in (0, True):
        with pytest.raises(ValueError, match="above 0"):
            ring.masked(limit)
    assert as_limit(1000) == 1024 and as_limit(2.0**20) == 2**20
