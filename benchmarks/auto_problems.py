"""Ten problems that had no part in the design of `diamond.steps`, with networks of their own."""

import jax.numpy as jnp
import numpy as np

import diamond
from diamond import data, network, problems


def scaled_ridge(agents, scale, seed, rows=80, features=12):
    """One ridge penalty a feature; f and g both times `scale`."""

    def squares(x, y, rows):
        return scale * jnp.mean((rows["a"] @ y - rows["b"]) ** 2)

    def penalized(x, y, rows):
        return squares(x, y, rows) + scale * jnp.mean(jnp.exp(x) * y**2)

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
    "quadratic, condition 1, m = 1": lambda: (quadratic(1, 1.001, 11), network.path(1)),
    "quadratic, condition 100, m = 8": lambda: (quadratic(8, 100.0, 12), network.ring(8)),
    "quadratic, condition 10^4, m = 16": lambda: (
        quadratic(16, 1e4, 13),
        network.erdos_renyi(16, 0.3, 0),
    ),
    "ridge, f and g x 10^3, m = 4": lambda: (scaled_ridge(4, 1e3, 14), network.star(4)),
    "ridge, f and g x 10^-3, m = 6": lambda: (scaled_ridge(6, 1e-3, 15), network.ring(6)),
    "logistic, agents differ 10 x, m = 32": lambda: (logistic(32, 16, 10.0), network.ring(32)),
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
