"""A decoder-only transformer in plain JAX, the lower level of `domain_weights`.

y = {"embedding", "positions", "blocks", "output"}; the arrays of all blocks are stacked along their
first axis, so that the program does not grow with the number of blocks.
"""

import jax
import jax.numpy as jnp

from ..core.pytrees import Tree

DEVIATION = 0.02  # of the initial weights
EPSILON = 1e-6  # added to mean squares


def initialize(key: jax.Array, vocabulary: int, length: int, width: int, layers: int) -> Tree:
    """Return random weights for sequences of `length` tokens below `vocabulary`."""
    shapes = {
        "embedding": (vocabulary, width),
        "positions": (length, width),
        "output": (width, vocabulary),
        "attention": (layers, width, 3 * width),
        "projection": (layers, width, width),
        "up": (layers, width, 4 * width),
        "down": (layers, 4 * width, width),
    }
    keys = jax.random.split(key, len(shapes))
    draw = lambda k, shape: DEVIATION * jax.random.normal(k, shape)
    weights = {name: draw(k, shape) for k, (name, shape) in zip(keys, shapes.items())}
    outer = {name: weights.pop(name) for name in ("embedding", "positions", "output")}
    scales = {name: jnp.ones((layers, width)) for name in ("attention_scale", "up_scale")}
    return outer | {"scale": jnp.ones(width), "blocks": weights | scales}


def token_losses(y: Tree, tokens: jax.Array, heads: int, remat: bool = False) -> jax.Array:
    """Return -log p(next token | tokens before it) for (n, length + 1) tokens: (n, length).

    With `remat` the backward pass stores what enters a block, and computes the rest again.
    """
    logits = _logits(y, tokens[:, :-1], heads, remat)
    scores = jax.nn.log_softmax(logits.astype(jnp.promote_types(logits.dtype, jnp.float32)))
    return -jnp.take_along_axis(scores, tokens[:, 1:, None], -1)[..., 0]


def _logits(y: Tree, tokens: jax.Array, heads: int, remat: bool) -> jax.Array:
    length = tokens.shape[1]
    states = y["embedding"][tokens] + y["positions"][:length]
    mask = jnp.tril(jnp.ones((length, length), bool))

    def block(states: jax.Array, weights: Tree) -> tuple[jax.Array, None]:
        states = states + _attend(weights, states, mask, heads)
        hidden = jax.nn.gelu(_normalize(states, weights["up_scale"]) @ weights["up"])
        return states + hidden @ weights["down"], None

    states, _ = jax.lax.scan(jax.checkpoint(block) if remat else block, states, y["blocks"])
    return _normalize(states, y["scale"]) @ y["output"]


def _attend(weights: Tree, states: jax.Array, mask: jax.Array, heads: int) -> jax.Array:
    """Return the output of causal attention with `heads` heads."""
    inputs = _normalize(states, weights["attention_scale"]) @ weights["attention"]
    split = inputs.reshape(*inputs.shape[:-1], 3, heads, -1)
    q, k, v = (split[:, :, part] for part in range(3))
    scores = jnp.einsum("nqhd,nkhd->nhqk", q, k) / q.shape[-1] ** 0.5
    weight = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf))
    return jnp.einsum("nhqk,nkhd->nqhd", weight, v).reshape(states.shape) @ weights["projection"]


def _normalize(states: jax.Array, scale: jax.Array) -> jax.Array:
    """Divide by the root of the mean square, and multiply by `scale`."""
    mean_square = jnp.mean(states * states, -1, keepdims=True)
    return states * jax.lax.rsqrt(mean_square + EPSILON) * scale
