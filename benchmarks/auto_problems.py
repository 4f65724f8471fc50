"""Problems with networks and batches of their own, drawn by a seed, for `benchmarks/auto.py`.

`GROUPS[group][name]` is a function of a numpy generator, which gives (problem, network, batch).
"""

import jax
import jax.numpy as jnp
import numpy as np

import diamond
from diamond import data, gallery, network


def fit(y, rows):
    return jnp.mean((rows["a"] @ y - rows["b"]) ** 2)


def entropy(y, rows):
    return jnp.logaddexp(0.0, -rows["b"] * (rows["a"] @ y))


def spectrum(features, condition):
    """Scales of features with which a^T a has that condition."""
    return condition ** (-0.5 * np.arange(features) / max(features - 1, 1))


def sites(make, agents):
    return [[make(i) for i in range(agents)] for _ in range(2)]


def quadratic(random, agents, condition):
    return gallery.quadratic(
        agents=agents, upper=8, lower=6, rows=50, mu=1.0, L=condition, seed=_seed(random)
    )


def shifted(random, agents, condition, scale=1.0, rows=100, features=10):
    """Ridge regression towards x; the data times `scale`."""
    scales, truth = spectrum(features, condition), random.normal(size=features)
    coefficients = truth + 0.3 * random.normal(size=(agents, features))
    penalty = scale**2 / condition

    def lower(x, y, rows):
        return fit(y, rows) + penalty * jnp.sum((y - x) ** 2)

    def site(i):
        a = random.normal(size=(rows, features)) * scales
        b = a @ (coefficients[i] / scales / 2) + 0.5 * random.normal(size=rows)
        return {"a": a * scale, "b": b}

    start = lambda key: (jnp.zeros(features), jnp.zeros(features))
    return diamond.Problem(lambda x, y, r: fit(y, r), lower, start, *sites(site, agents))


def grouped(random, agents, condition, rows=60, features=24, groups=4, upper=1.0, lower=1.0):
    """One ridge penalty a group of features; f and g times `upper` and `lower`."""
    scales, group = spectrum(features, condition), np.arange(features) % groups
    truth = random.normal(size=features) * (group < 2) / scales**0.5

    def penalized(x, y, rows):
        return lower * (fit(y, rows) + jnp.sum(jnp.exp(x)[group] * y**2) / condition)

    def site(i):
        a = random.normal(size=(rows, features)) * scales
        return {"a": a, "b": a @ truth + random.normal(size=rows)}

    start = lambda key: (jnp.zeros(groups), jnp.zeros(features))
    return diamond.Problem(
        lambda x, y, r: upper * fit(y, r), penalized, start, *sites(site, agents)
    )


def logistic(random, agents, rows=100, features=10, condition=10.0, heavy=False, spread=1.0):
    """Penalties exp(x) of a logistic regression; `rows` of each agent, or a list of them."""
    scales, truth = spectrum(features, condition), random.normal(size=features)
    counts = [rows] * agents if isinstance(rows, int) else rows

    def lower(x, y, rows):
        return jnp.mean(entropy(y, rows)) + 0.5 * jnp.sum(jnp.exp(x) * y**2)

    def site(i):
        shape = counts[i], features
        a = random.standard_t(2, size=shape) if heavy else random.normal(size=shape)
        a = a * scales * spread ** (i / max(agents - 1, 1))
        score = a @ truth + 0.5 * random.normal(size=counts[i])
        return {"a": a, "b": np.where(score > 0, 1.0, -1.0)}

    start = lambda key: (jnp.full(features, -3.0), jnp.zeros(features))
    upper = lambda x, y, r: jnp.mean(entropy(y, r))
    return diamond.Problem(upper, lower, start, *sites(site, agents))


def sparse(random, agents, features=10_000, rows=200, groups=8):
    """Logistic regression on many features that are mostly 0, one penalty a group of them."""
    group = np.arange(features) % groups
    truth = random.normal(size=features) * (group == 0)

    def lower(x, y, rows):
        return jnp.mean(entropy(y, rows)) + 0.5 * jnp.sum(jnp.exp(x)[group] * y**2)

    def site(i):
        a = random.normal(size=(rows, features)) * (random.uniform(size=(rows, features)) < 0.02)
        b = np.where(a @ truth > 0, 1.0, -1.0)
        return {"a": a.astype(np.float32), "b": b.astype(np.float32)}

    start = lambda key: (jnp.full(groups, -1.0), jnp.zeros(features))
    upper = lambda x, y, r: jnp.mean(entropy(y, r))
    return diamond.Problem(upper, lower, start, *sites(site, agents))


def sources(random, agents, count=8, rows=160, features=6):
    """Rows of several sources, of which some have flipped labels: x weighs the sources."""
    truth, wrong = random.normal(size=features), random.uniform(0.0, 0.5, count)

    def lower(x, y, rows):
        weights = jax.nn.sigmoid(x[rows["source"]])
        return jnp.mean(weights * entropy(y, rows)) + 0.01 * y @ y

    def part(trusted):
        a, source = random.normal(size=(rows, features)), random.integers(0, count, rows)
        flip = random.uniform(size=rows) < (0.0 if trusted else wrong[source])
        b = np.where((a @ truth + 0.5 * random.normal(size=rows) > 0) ^ flip, 1.0, -1.0)
        return {"a": a, "b": b, "source": source}

    start = lambda key: (jnp.zeros(count), jnp.zeros(features))
    train, valid = ([part(trusted) for _ in range(agents)] for trusted in (False, True))
    return diamond.Problem(lambda x, y, r: jnp.mean(entropy(y, r)), lower, start, train, valid)


def cleaning(random, agents, share, classes=4, features=12, rows=120):
    """One weight a training row, `share` of whose labels are wrong; each agent its own y."""
    (train, valid), test = blobs(random, agents, _iid, classes, features, rows * agents * 2), None
    problem = gallery.hyper_cleaning(
        train, valid, test, classes, share, seed=_seed(random), lower_level="personal"
    )
    return problem


def sines(random, agents, width=24, rows=40):
    """Features shared by sines of all phases; each agent its own head."""

    def features(x, a):
        return jnp.tanh(jnp.tanh(a @ x["in"] + x["b"]) @ x["on"] + x["c"])

    def upper(x, y, rows):
        return jnp.mean((features(x, rows["a"]) @ y["w"] + y["b"] - rows["b"]) ** 2)

    def lower(x, y, rows):
        return upper(x, y, rows) + 0.01 * (jnp.sum(y["w"] ** 2) + y["b"] ** 2)

    def start(key):
        first_key, second_key = jax.random.split(key)
        first = jax.random.normal(first_key, (1, width))
        second = jax.random.normal(second_key, (width, width)) / width**0.5
        x = {"in": first, "b": jnp.zeros(width), "on": second, "c": jnp.zeros(width)}
        return x, {"w": jnp.zeros(width), "b": jnp.zeros(())}

    tasks = [(random.uniform(0.5, 2), random.uniform(0, np.pi)) for _ in range(agents)]

    def site(i):
        a = random.uniform(-3, 3, size=(rows, 1))
        return {"a": a, "b": tasks[i][0] * np.sin(a[:, 0] + tasks[i][1])}

    return diamond.Problem(upper, lower, start, *sites(site, agents))


def blobs(random, agents, deal, classes=5, features=20, rows=1500, shares=(0.5, 0.5)):
    """Gaussian classes, dealt out to the agents."""
    centres = random.normal(size=(classes, features))
    labels = random.integers(0, classes, rows)
    a = (centres[labels] + 1.2 * random.normal(size=(rows, features))).astype(np.float32)
    parts = data.partition.split(deal(labels, agents), shares, _seed(random))
    labels = labels.astype(np.int32)
    return [[{"a": a[i], "b": labels[i]} for i in part] for part in parts]


def meta(random, agents, deal, widths, rows=1500):
    parts = blobs(random, agents, deal, features=12, rows=rows, shares=(0.45, 0.45, 0.1))
    return gallery.meta_learning(*parts, classes=5, widths=widths)


def _seed(random):
    return int(random.integers(2**31))


def _iid(labels, agents):
    return data.partition.iid(labels, agents, 0)


def _skewed(labels, agents):
    return data.partition.dirichlet(labels, agents, 0.3, 0, minimum=20)


def _random_graph(random, agents):
    return network.erdos_renyi(agents, 0.4, _seed(random))


def _conditions():
    powers = {"1": 1.001, "10": 10.0} | {f"10^{k}": 10.0**k for k in range(2, 7)}
    make_case = lambda value: lambda r: (quadratic(r, 6, value), _random_graph(r, 6), 16)
    return {f"quadratic, condition {name}": make_case(value) for name, value in powers.items()}


def _graphs():
    kinds = {
        "ring": lambda r: network.ring(12),
        "path": lambda r: network.path(12),
        "star": lambda r: network.star(12),
        "complete": lambda r: network.complete(12),
        "torus": lambda r: network.torus(3, 4),
        "exponential": lambda r: network.exponential(12),
    }
    make_case = lambda graph: lambda r: (logistic(r, 12, rows=60, spread=3.0), graph(r), 16)
    return {f"logistic, agents differ, {name}": make_case(graph) for name, graph in kinds.items()}


GROUPS = {
    "condition": _conditions(),
    "ridge": {
        "ridge towards x, 10^3, path": lambda r: (shifted(r, 5, 1e3), network.path(5), 64),
        "ridge towards x, 10^5, star": lambda r: (shifted(r, 5, 1e5), network.star(5), 64),
        "ridge, groups, 10^3, complete": lambda r: (grouped(r, 4, 1e3), network.complete(4), 64),
        "ridge, groups, 10^5, star": lambda r: (grouped(r, 6, 1e5), network.star(6), 64),
        "ridge, groups, 60, ring": lambda r: (grouped(r, 8, 60.0), network.ring(8), 64),
    },
    "scale": {
        "ridge, data x 10^-3": lambda r: (shifted(r, 6, 30.0, 1e-3), network.star(6), 32),
        "ridge, data x 10^3": lambda r: (shifted(r, 6, 30.0, 1e3), network.path(6), 32),
        "ridge, f and g x 10^-6": lambda r: (
            grouped(r, 6, 30.0, upper=1e-6, lower=1e-6),
            network.ring(6),
            32,
        ),
        "ridge, f x 10^-3, g x 10^6": lambda r: (
            grouped(r, 5, 30.0, upper=1e-3, lower=1e6),
            network.path(5),
            32,
        ),
    },
    "noise": {
        "logistic, heavy tails": lambda r: (logistic(r, 6, heavy=True), network.ring(6), 16),
        "logistic, batch 1": lambda r: (logistic(r, 2, rows=200), network.path(2), 1),
        "ridge, batch 2": lambda r: (grouped(r, 5, 30.0), network.ring(5), 2),
    },
    "rows": {
        "logistic, 10 to 5,000 rows": lambda r: (
            logistic(r, 5, rows=[10, 50, 200, 1000, 5000]),
            network.ring(5),
            16,
        ),
        "logistic, 5,000 rows, condition 10^3": lambda r: (
            logistic(r, 4, rows=5000, condition=1e3),
            network.complete(4),
            16,
        ),
    },
    "agents": {
        "logistic, m = 1": lambda r: (logistic(r, 1, condition=100.0), network.path(1), 16),
        "logistic, m = 100": lambda r: (logistic(r, 100, rows=40), network.exponential(100), 8),
    },
    "graphs": _graphs(),
    "cleaning": {
        "cleaning, 8 sources": lambda r: (sources(r, 6), network.complete(6), 16),
        "cleaning, 50 % wrong": lambda r: (cleaning(r, 5, 0.5), network.ring(5), 64),
    },
    "features": {
        "logistic, 10^4 features": lambda r: (sparse(r, 2), network.path(2), 64),
    },
    "meta": {
        "meta-learning, i.i.d.": lambda r: (meta(r, 9, _iid, (24, 12)), network.torus(3, 3), 16),
        "meta-learning, skewed": lambda r: (
            meta(r, 20, _skewed, (16, 16), 2400),
            network.ring(20),
            16,
        ),
        "meta-learning, sines": lambda r: (sines(r, 10), network.ring(10), 16),
    },
}
