"""Problems whose lower level is a network: size, convexity, losses in chunks of rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diamond
from diamond.problem import LARGE

WIDTH = 8


def network_problem(width=WIDTH, rows=12, agents=2, **options):
    """y is an MLP of one hidden layer; x holds one log-weight for each of two groups of rows."""
    rng = np.random.default_rng(0)

    def draw():
        return {
            "a": rng.normal(size=(rows, 4)).astype("float32"),
            "b": rng.normal(size=(rows,)).astype("float32"),
            "group": rng.integers(0, 2, rows).astype("int32"),
        }

    def error(y, rows):
        return (jnp.tanh(rows["a"] @ y["w"]) @ y["v"] - rows["b"]) ** 2

    def lower(x, y, rows):
        return jnp.mean(jax.nn.sigmoid(x)[rows["group"]] * error(y, rows))

    def upper(x, y, rows):
        return jnp.mean(error(y, rows)) + 1e-3 * jnp.sum(x**2)

    def init(key):
        w, v = jax.random.split(key)
        return jnp.zeros(2), {
            "w": 0.5 * jax.random.normal(w, (4, width)),
            "v": jax.random.normal(v, (width,)) / width**0.5,
        }

    train, valid = ([draw() for _ in range(agents)] for _ in range(2))
    return diamond.Problem(upper, lower, init, train, valid, **options)


@pytest.mark.wide
def test_size_of_y_and_default_measures():
    assert network_problem().lower_size == 5 * WIDTH
    assert network_problem().has_lower_solution
    assert not network_problem(convex=False).has_lower_solution
    large = network_problem(width=LARGE // 5 + 1)
    assert large.is_large and not large.has_lower_solution
    assert not network_problem(width=LARGE // 5).is_large


@pytest.mark.wide
def test_runs_measure_without_solving_where_the_lower_level_is_not_convex():
    network = diamond.network.complete(2)
    algorithm = diamond.f2sa(batch=4, alpha=0.01, beta=0.01)
    run = diamond.simulate(network_problem(convex=False), network, algorithm, 2, every=2)
    assert not {"metric", "stationarity", "lower_error"} & run.history.keys()
    assert run.config["measure"] == "cheap"


@pytest.mark.wide(keep=["5"])
@pytest.mark.parametrize("remat", [True, 2, 5, 12, 100])
def test_rematerialized_losses_are_the_same_losses(remat):
    plain, wrapped = network_problem(), network_problem(remat=remat)
    x, y = plain.start(3)
    x = x + jnp.array([0.3, -0.4])
    rows = plain.rows["train"][0]
    for name in ("upper", "lower"):
        values = [
            jax.value_and_grad(getattr(problem, name), argnums=(0, 1))(x, y, rows)
            for problem in (plain, wrapped)
        ]
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), *values)


@pytest.mark.wide
def test_chunks_store_the_activations_of_one_chunk():
    sizes = {}
    for remat in (False, 16):
        problem = network_problem(width=512, rows=512, remat=remat)
        x, y = problem.start(0)
        gradient = jax.jit(jax.grad(problem.lower, argnums=1))
        compiled = gradient.lower(x, y, problem.rows["train"][0]).compile()
        sizes[remat] = compiled.memory_analysis().temp_size_in_bytes
    assert sizes[16] < 0.2 * sizes[False]


def test_a_chunk_needs_a_row():
    with pytest.raises(ValueError, match="remat"):
        network_problem(remat=-1)
