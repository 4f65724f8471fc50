"""Problems with random losses, shapes, scales, graphs and numbers of rows."""

import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import skip_loss_checks

import diamond
from diamond.problem import Problem

LOSSES = {
    "square": lambda score, b: (score - b) ** 2,
    "logistic": lambda score, b: jnp.logaddexp(0, score) - (b > 0) * score,
    "huber": lambda score, b: jnp.sqrt(1 + (score - b) ** 2) - 1,
}
GRAPHS = ("path", "star", "complete", "ring", "one_way_ring")


def random_problem(seed):
    """A problem and a network; the seed says everything about them."""
    random = np.random.default_rng([7, seed])
    agents, size = int(random.integers(1, 9)), int(random.integers(1, 13))
    level = random.choice(["personal", "personal", "common", "none"])
    loss = LOSSES[random.choice(list(LOSSES))]
    x_unit, y_unit, f_unit, g_unit = 10 ** random.uniform(-3, 3, 4)
    scales = np.geomspace(1, 10 ** -random.uniform(0, 1.5), size)
    weights = random.normal(size=size)
    start_x = float(random.uniform(-3, 3))
    length = int(random.choice([1, size]))

    def site(rows):
        a = random.normal(size=(rows, size)) * scales
        b = a @ (weights / scales * 0.5) + 0.5 * random.normal(size=rows)
        return {"a": a.astype(np.float32), "b": b.astype(np.float32)}

    def fit(y, rows):
        return jnp.mean(loss(rows["a"] @ y, rows["b"]))

    def upper(x, y, rows):
        return f_unit * fit(y / y_unit, rows)

    def lower(x, y, rows):
        penalty = jnp.mean(jnp.exp(x / x_unit) * (y / y_unit) ** 2)
        return g_unit * (fit(y / y_unit, rows) + penalty / 2 + 5e-4 * jnp.sum((y / y_unit) ** 2))

    def alone(x, rows):
        return f_unit * (fit(x / x_unit, rows) + 0.01 * jnp.sum((x / x_unit) ** 2))

    train, valid = ([site(n) for n in random.integers(fewest, 61, agents)] for fewest in (1, 2))
    graph = str(
        random.choice(GRAPHS if agents > 2 else GRAPHS[:3] if agents == 2 else ["complete"])
    )
    network = getattr(diamond.network, graph)(agents)
    x, y = jnp.full(length, x_unit * start_x), jnp.zeros(size)
    with pytest.MonkeyPatch.context() as patch:
        skip_loss_checks(patch)
        if level == "none":
            return Problem(alone, None, lambda key: jnp.full(size, x_unit / 2), train), network
        problem = Problem(upper, lower, lambda key: (x, y), train, valid, lower_level=level)
    return problem, network
