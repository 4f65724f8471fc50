"""The reference work as one would write it by hand in JAX: no library, this one problem only.

DIAMOND's round (eqs. 5 to 10) on l2-regularized logistic regression; what `speed.py` is measured
against. The same draws as the library's, so that the two trajectories can be compared.
"""

import jax
import jax.numpy as jnp
from jax import lax, random

K = 10


def upper(x, y, rows):
    """Mean logistic loss on validation rows."""
    return jnp.mean(jax.nn.softplus(-rows["c"] * (rows["a"] @ y)))


def lower(x, y, rows):
    """Mean logistic loss on training rows + 1/2 mean exp(x) y^2."""
    return upper(x, y, rows) + 0.5 * jnp.mean(jnp.exp(x) * y**2)


def alpha(t):
    return 0.1 * (2.0 + t) ** (-1 / 3)


def draw(key, t, agents, rows):
    """Starts of the blocks xi, zeta, zeta_0, zeta_1..zeta_K of every agent; the depth k."""
    key = random.fold_in(key, t)
    keys = jax.vmap(random.fold_in, (None, 0))(key, jnp.arange(1, agents + 1))
    bits = jax.vmap(lambda key: random.bits(key, (K + 3,), jnp.uint32))(keys)
    depth = random.bits(random.fold_in(key, 0), (), jnp.uint32) % jnp.uint32(K)
    return (bits % jnp.uint32(rows)).astype(jnp.int32), depth.astype(jnp.int32)


def advance(train, valid, mixing, key, lipschitz, rounds, batch, rows):
    """`rounds` rounds from zero; returns (x, y) of all agents."""
    agents, _, features = train["a"].shape

    def estimate(train, valid, x, y, starts, depth):
        block = lambda part, i: jax.tree.map(
            lambda a: lax.dynamic_slice_in_dim(a, starts[i], batch), part
        )
        g_y = jax.grad(lower, 1)
        f_x, f_y = jax.grad(upper, (0, 1))(x, y, block(valid, 0))

        def factor(j, w):
            product = jax.jvp(lambda y: g_y(x, y, block(train, 3 + j)), (y,), (w,))[1]
            return w - product / lipschitz

        z = K / lipschitz * lax.fori_loop(0, depth, factor, f_y)
        _, cross = jax.vjp(lambda x: g_y(x, y, block(train, 2)), x)
        return f_x - cross(z)[0], g_y(x, y, block(train, 1))

    both = jax.vmap(estimate, (0, 0, 0, 0, 0, None))

    def body(carry, t):
        x, y, x_last, y_last, p, v, u = carry
        starts, depth = draw(key, t, agents, rows)
        p_new, v_new = both(train, valid, x, y, starts, depth)
        p_back, v_back = both(train, valid, x_last, y_last, starts, depth)
        eta = jnp.where(t == 0, 1.0, jnp.clip(0.1 * alpha(jnp.maximum(t - 1, 0)) ** 2, 0, 1))
        p_new += (1 - eta) * (p - p_back)
        v_new += (1 - eta) * (v - v_back)
        u = mixing @ u + p_new - p
        return (mixing @ x - alpha(t) * u, y - alpha(t) * v_new, x, y, p_new, v_new, u), None

    zero = jnp.zeros((agents, features))
    return lax.scan(body, (zero,) * 7, jnp.arange(rounds))[0][:2]
