"""Six cases that were drawn before the method `solve` was written, to evaluate it."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import gallery, network
from ..network import Network
from ..problem import Problem
from .cases import SplitRows, define_case, define_large_case, digit_rows, scaled_rows

Noise = Callable[[np.random.Generator, int], np.ndarray]


def _scores(y: Any, rows: Any) -> jax.Array:
    return jnp.tanh(rows["a"] @ y["w1"] + y["b1"]) @ y["w2"] + y["b2"]


def _cross_entropy(x: Any, y: Any, rows: Any) -> jax.Array:
    scores = jax.nn.log_softmax(_scores(y, rows))
    return -jnp.mean(jnp.take_along_axis(scores, rows["b"][:, None], 1))


def _penalized(x: Any, y: Any, rows: Any) -> jax.Array:
    """Return the cross-entropy plus a penalty exp(x) of the squares of each layer."""
    layers = [jnp.sum(y[f"w{i}"] ** 2) + jnp.sum(y[f"b{i}"] ** 2) for i in (1, 2)]
    return _cross_entropy(x, y, rows) + jnp.sum(jnp.exp(x) * jnp.stack(layers))


def _layers(key: jax.Array) -> tuple[Any, Any]:
    draw = lambda seed, a, b: jax.random.normal(jax.random.PRNGKey(seed), (a, b)) / np.sqrt(a)
    y = {"w1": draw(0, 16, 8), "b1": jnp.zeros(8), "w2": draw(1, 8, 10), "b2": jnp.zeros(10)}
    return jnp.full(2, -3.0), y


@define_large_case(
    "penalties of the layers of a network of 226 weights, digits of 4 x 4, ring of 5",
    1000,
    16,
    "ring",
)
def network_below() -> tuple[Problem, Network]:
    train, valid, _ = digit_rows(5, coarse=True)
    problem = Problem(_cross_entropy, _penalized, _layers, train, valid, convex=False)
    return problem, network.ring(5)


@define_case("quadratic, lower level of condition 10,000, ring of 6", 1500, 8, "ring")
def condition_10000() -> tuple[Problem, Network]:
    return gallery.quadratic(agents=6, mu=5e-4, L=5.0, noise=0.2), network.ring(6)


@define_case("penalties of a ridge regression, scales 1 to 1/3, grid of 64", 1500, 16, "grid")
def sparse_64() -> tuple[Problem, Network]:
    return gallery.regression(*scaled_rows(64, 3.0)), network.grid(8, 8)


def plain_rows(counts: Sequence[int], features: int, noise: Noise, seed: int = 0) -> SplitRows:
    """Make rows of a regression with four relevant features; noise(random, n) is added."""
    random = np.random.default_rng(seed)
    truth = random.normal(size=features) * (np.arange(features) < 4)

    def site(n: int) -> dict[str, Any]:
        a = random.normal(size=(n, features))
        return {"a": a, "b": a @ truth + noise(random, n)}

    train, valid, test = ([site(n) for n in counts] for _ in range(3))
    return train, valid, test


@define_case(
    "penalties of a ridge regression, noise of Student's t (2.1), ring of 6", 1000, 16, "ring"
)
def heavy_tails() -> tuple[Problem, Network]:
    rows = plain_rows([80] * 6, 10, lambda random, n: random.standard_t(2.1, size=n))
    return gallery.regression(*rows), network.ring(6)


@define_case("penalties of a ridge regression, 5 to 5,000 rows, star of 6", 1000, 5, "star")
def uneven() -> tuple[Problem, Network]:
    counts = [5000, 5, 40, 200, 1000, 5]
    rows = plain_rows(counts, 8, lambda random, n: random.normal(size=n))
    return gallery.regression(*rows), network.star(6)


@define_case("quadratic, x of scale 1e-4, ring of 8", 1000, 8, "ring")
def tiny_x() -> tuple[Problem, Network]:
    problem = gallery.quadratic(agents=8, noise=0.5)
    train, valid = ([problem.rows[part][i] for i in range(8)] for part in ("train", "valid"))
    in_small_units = lambda loss: lambda x, y, rows: loss(1e4 * x, y, rows)
    f, g = map(in_small_units, (problem.upper, problem.lower))
    start = lambda key: (jnp.zeros(4), jnp.zeros(5))
    return Problem(f, g, start, train, valid, shuffle=False), network.ring(8)


CASES = (network_below, condition_10000, sparse_64, heavy_tails, uneven, tiny_x)
