"""Three sites learn one ridge penalty per feature; each keeps its rows and its regression."""

import jax.numpy as jnp
import numpy as np

import diamond


def upper(x, y, rows):  # f_i: validation error of the site's regression y
    return jnp.mean((rows["a"] @ y - rows["b"]) ** 2) + 0.001 * jnp.mean(x**2)


def lower(x, y, rows):  # g_i: training error, and the penalty exp(x_j) on feature j
    return jnp.mean((rows["a"] @ y - rows["b"]) ** 2) + jnp.mean(jnp.exp(x) * y**2)


def site(seed, n):  # six features; only the first two matter
    *a, noise = np.random.default_rng(seed).normal(size=(7, n))
    return {"a": np.stack(a, axis=1), "b": a[0] - a[1] + noise}


problem = diamond.Problem(
    upper,
    lower,
    init=lambda key: (jnp.zeros(6), jnp.zeros(6)),
    train=[site(0, 20), site(1, 30), site(2, 40)],
    valid=[site(3, 100), site(4, 80), site(5, 60)],
)
run = diamond.solve(problem, diamond.network.ring(3))
loss = run.history["upper_loss"]
print(f"loss {loss[0]:.2f} -> {loss[-1]:.2f} in {run.rounds} rounds")
print("penalties", *(f"{penalty:.2g}" for penalty in np.exp(run.x.mean(axis=0))))
