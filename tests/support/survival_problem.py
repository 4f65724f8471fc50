"""Weibull survival regression over several sites: its loss explodes one step from the start."""

import jax.numpy as jnp
import numpy as np

import diamond

FEATURES, ROWS, BATCH = 4, 70, 14


def negative_log_likelihood(x, y, rows):
    """Of censored Weibull times with the shape exp(x_0) and log-scales a y + intercept."""
    shape, location = jnp.exp(x[0]), rows["a"] @ y[:-1] + y[-1]
    z = (jnp.log(rows["time"]) - location) * shape
    return jnp.mean(jnp.exp(jnp.clip(z, -30, 15)) - rows["event"] * (z + jnp.log(shape)))


def penalized(x, y, rows):
    """The same with a ridge penalty exp(x_k) for each weight, and a small one for the intercept."""
    ridge = 0.5 * jnp.sum(jnp.exp(x[1:]) * y[:-1] ** 2) + 1e-3 * y[-1] ** 2
    return negative_log_likelihood(x, y, rows) + ridge


def survival(seed, agents=5):
    """The problem with the shape far from that of the data, 1.8."""
    random = np.random.default_rng(seed)
    weights = 0.5 * random.normal(size=FEATURES)

    def site():
        a = random.normal(size=(ROWS, FEATURES))
        time = random.weibull(1.8, size=ROWS) * np.exp(a @ weights + 0.3 * random.normal())
        censoring = random.exponential(3.0, size=ROWS)
        seen = np.maximum(np.minimum(time, censoring), 1e-3)
        return {"a": a, "time": seen, "event": (time <= censoring).astype(float)}

    def start(key):
        return jnp.concatenate([jnp.array([-0.7]), jnp.zeros(FEATURES)]), jnp.zeros(FEATURES + 1)

    parts = [[site() for _ in range(agents)] for _ in range(2)]
    return diamond.Problem(negative_log_likelihood, penalized, start, *parts)
