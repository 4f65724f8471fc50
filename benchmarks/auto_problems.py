"""Problems with networks of their own, for `benchmarks/auto.py`.

The rule of `diamond.auto.step_sizes` was made on `DESIGN` and mended on other draws of the same
families; `PROBLEMS` were first run when it was done.
"""

import jax.numpy as jnp
import numpy as np

import diamond
from diamond import data, network, problems


def scaled_ridge(agents, scale, seed, rows=80, features=12, upper=None):
    """One ridge penalty a feature; f and g both times `scale`, or f times `upper`."""
    upper = scale if upper is None else upper

    def squares(x, y, rows):
        return upper * jnp.mean((rows["a"] @ y - rows["b"]) ** 2)

    def penalized(x, y, rows):
        fit = jnp.mean((rows["a"] @ y - rows["b"]) ** 2)
        return scale * (fit + jnp.mean(jnp.exp(x) * y**2))

    random = np.random.default_rng(seed)
    truth = random.normal(size=features) * (np.arange(features) < 5)

    def site():
        a = random.normal(size=(rows, features))
        return {"a": a, "b": a @ truth + random.normal(size=rows)}

    def init(key):
        return jnp.zeros(features), jnp.zeros(features)

    train, valid = ([site() for _ in range(agents)] for _ in range(2))
    return diamond.Problem(squares, penalized, init, train, valid)


def logistic(agents, seed, spread, rows=60, features=10):
    """Logistic regression with penalties exp(x); agents differ in scale up to `spread`."""
    random = np.random.default_rng(seed)
    truth = random.normal(size=features)

    def cost(x, y, rows):
        return jnp.mean(jnp.logaddexp(0.0, -rows["b"] * (rows["a"] @ y)))

    def penalized(x, y, rows):
        return cost(x, y, rows) + 0.5 * jnp.sum(jnp.exp(x) * y**2)

    def site(agent):
        a = random.normal(size=(rows, features)) * spread ** (agent / max(agents - 1, 1))
        b = np.where(a @ truth + random.normal(size=rows) > 0, 1.0, -1.0)
        return {"a": a, "b": b}

    def init(key):
        return jnp.full(features, -3.0), jnp.zeros(features)

    train, valid = ([site(i) for i in range(agents)] for _ in range(2))
    return diamond.Problem(cost, penalized, init, train, valid)


def cleaning(agents, seed, sources=8, rows=160, features=6):
    """Rows of several sources, of which some have flipped labels: x weighs the sources."""
    random = np.random.default_rng(seed)
    truth, wrong = random.normal(size=features), random.uniform(0.0, 0.5, sources)

    def cost(y, rows):
        return jnp.logaddexp(0.0, -rows["b"] * (rows["a"] @ y))

    def upper(x, y, rows):
        return jnp.mean(cost(y, rows))

    def lower(x, y, rows):
        weights = 1 / (1 + jnp.exp(-x[rows["source"]]))
        return jnp.mean(weights * cost(y, rows)) + 0.01 * y @ y

    def site(trusted):
        a, source = random.normal(size=(rows, features)), random.integers(0, sources, rows)
        flip = random.uniform(size=rows) < (0.0 if trusted else wrong[source])
        b = np.where((a @ truth + 0.5 * random.normal(size=rows) > 0) ^ flip, 1.0, -1.0)
        return {"a": a, "b": b, "source": source}

    def init(key):
        return jnp.zeros(sources), jnp.zeros(features)

    train, valid = ([site(trusted) for _ in range(agents)] for trusted in (False, True))
    return diamond.Problem(upper, lower, init, train, valid)


def blobs(agents, seed, deal, classes=5, features=20, rows=1500):
    """Gaussian classes, dealt out to the agents; 45 / 45 / 10 % of their rows."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(classes, features))
    labels = random.integers(0, classes, rows)
    a = (centres[labels] + 1.2 * random.normal(size=(rows, features))).astype(np.float32)
    parts = data.partition.split(deal(labels, agents), (0.45, 0.45, 0.1), seed)
    labels = labels.astype(np.int32)
    return ([{"a": a[i], "b": labels[i]} for i in part] for part in parts)


def quadratic(agents, kappa, seed, **options):
    return problems.quadratic(
        agents=agents, upper=8, lower=6, rows=50, mu=1.0, L=kappa, seed=seed, **options
    ).problem


def _iid(labels, agents):
    return data.partition.iid(labels, agents, 0)


def _skewed(labels, agents):
    return data.partition.dirichlet(labels, agents, 0.3, 0, minimum=20)


PROBLEMS = {
    "quadratic, condition 1, m = 1": lambda seed=61: (quadratic(1, 1.001, seed), network.path(1)),
    "quadratic, condition 50, m = 32": lambda seed=62: (
        quadratic(32, 50.0, seed),
        network.exponential(32),
    ),
    "quadratic, condition 10^4, m = 12": lambda seed=63: (
        quadratic(12, 1e4, seed),
        network.erdos_renyi(12, 0.3, 5),
    ),
    "ridge, f and g x 10^3, m = 8": lambda seed=64: (
        scaled_ridge(8, 1e3, seed, rows=100, features=16),
        network.ring(8),
    ),
    "ridge, f x 10^-3, g x 10^3, m = 5": lambda seed=65: (
        scaled_ridge(5, 1e3, seed, features=10, upper=1e-3),
        network.path(5),
    ),
    "logistic, agents differ 6 x, m = 10": lambda seed=66: (
        logistic(10, seed, 6.0, rows=80, features=8),
        network.star(10),
    ),
    "data cleaning, m = 6": lambda seed=67: (cleaning(6, seed), network.complete(6)),
    "softmax penalties, skewed, m = 7": lambda seed=68: (
        problems.hyperparameter(*blobs(7, seed, _skewed, classes=4), classes=4),
        network.erdos_renyi(7, 0.5, 6),
    ),
    "meta-learning, i.i.d., m = 9": lambda seed=69: (
        problems.meta_learning(*blobs(9, seed, _iid, features=12), classes=5, widths=(24, 12)),
        network.torus(3, 3),
    ),
    "meta-learning, skewed, m = 20": lambda seed=70: (
        problems.meta_learning(*blobs(20, seed, _skewed, rows=2400), classes=5, widths=(16, 16)),
        network.ring(20),
    ),
}
DESIGN = {
    "quadratic, condition 1, m = 1": lambda: (quadratic(1, 1.001, 11), network.path(1)),
    "quadratic, condition 100, m = 8": lambda: (quadratic(8, 100.0, 12), network.ring(8)),
    "quadratic, condition 10^4, m = 16": lambda: (
        quadratic(16, 1e4, 13),
        network.erdos_renyi(16, 0.3, 0),
    ),
    "ridge, f and g x 10^3, m = 4": lambda: (scaled_ridge(4, 1e3, 14), network.star(4)),
    "ridge, f and g x 10^-3, m = 6": lambda: (scaled_ridge(6, 1e-3, 15), network.ring(6)),
    "logistic, agents differ 10 x, m = 32": lambda: (logistic(32, 16, 10.0), network.ring(32)),
    "logistic, agents differ 4 x, m = 16": lambda: (logistic(16, 46, 4.0), network.star(16)),
    "logistic, alike, m = 5": lambda: (logistic(5, 17, 1.0), network.complete(5)),
    "softmax penalties, i.i.d., m = 9": lambda: (
        problems.hyperparameter(*blobs(9, 18, _iid), classes=5),
        network.erdos_renyi(9, 0.4, 1),
    ),
    "meta-learning, i.i.d., m = 4": lambda: (
        problems.meta_learning(*blobs(4, 19, _iid), classes=5, widths=(16, 16)),
        network.ring(4),
    ),
    "meta-learning, skewed, m = 12": lambda: (
        problems.meta_learning(*blobs(12, 20, _skewed), classes=5, widths=(16, 16)),
        network.erdos_renyi(12, 0.3, 2),
    ),
}
