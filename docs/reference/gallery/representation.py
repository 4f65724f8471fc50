"""Learn a layer that ten sites share; each has three digits, and a last layer of its own."""

import jax
import jax.numpy as jnp

import diamond


def layer(x, a):
    return jnp.tanh(a @ x)


pixels, labels = diamond.data.digits().train
parts = diamond.data.partition.by_label(labels, agents=10, seed=0, shards=3)
split = diamond.data.partition.split(parts, (0.4, 0.4, 0.2), seed=0)
rows = [[{"a": pixels[i], "b": labels[i]} for i in part] for part in split]
start = lambda key: 0.3 * jax.random.normal(key, (64, 12))
problem = diamond.gallery.representation(layer, start, *rows, classes=10, regularizer=0.01)
run = diamond.solve(problem, diamond.network.erdos_renyi(10, p=0.5, seed=0), rounds=1000)
print(run.summary())
