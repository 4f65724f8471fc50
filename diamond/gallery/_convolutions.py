"""A convolutional network in plain JAX, the lower level of `network_cleaning`.

y = {"blocks": [{"w", "scale", "shift"}, ...], "w", "b"}: every block is a convolution of 3 x 3
pixels, a group normalization, a ReLU and a mean over 2 x 2 pixels; then a mean over all pixels and
a linear layer.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import gcd, isqrt

import jax
import jax.numpy as jnp
from jax import lax

from ..core.pytrees import Tree

GROUP = 8  # channels of a group in a normalization
EPSILON = 1e-5  # added to variances
LAYOUT = ("NHWC", "HWIO", "NHWC")


def initialize(key: jax.Array, colors: int, channels: Sequence[int], classes: int) -> Tree:
    """Return random weights; the last layer starts at 0."""
    sizes = [colors, *channels]
    keys = jax.random.split(key, len(channels))
    blocks = [
        {
            "w": (2 / (9 * a)) ** 0.5 * jax.random.normal(k, (3, 3, a, b)),
            "scale": jnp.ones(b),
            "shift": jnp.zeros(b),
        }
        for k, (a, b) in zip(keys, pairwise(sizes))
    ]
    return {"blocks": blocks, "w": jnp.zeros((sizes[-1], classes)), "b": jnp.zeros(classes)}


def logits(y: Tree, images: jax.Array) -> jax.Array:
    """Return the scores (n, classes) of images (n, height, width, colors)."""
    states = images
    for block in y["blocks"]:
        states = lax.conv_general_dilated(
            states.astype(block["w"].dtype), block["w"], (1, 1), "SAME", dimension_numbers=LAYOUT
        )
        states = jax.nn.relu(_normalize(states) * block["scale"] + block["shift"])
        n, height, width, channels = states.shape
        if min(height, width) > 2:
            even = states[:, : height // 2 * 2, : width // 2 * 2]
            states = even.reshape(n, height // 2, 2, width // 2, 2, channels).mean((2, 4))
    return states.mean((1, 2)) @ y["w"] + y["b"]


def _normalize(states: jax.Array) -> jax.Array:
    """Normalize every group of channels of every row to mean 0 and variance 1."""
    n, height, width, channels = states.shape
    grouped = states.reshape(n, height, width, channels // gcd(GROUP, channels), -1)
    centered = grouped - grouped.mean((1, 2, 4), keepdims=True)
    variance = (centered * centered).mean((1, 2, 4), keepdims=True)
    return (centered * lax.rsqrt(variance + EPSILON)).reshape(states.shape)


def image_shape(features: int) -> tuple[int, int, int]:
    """Return (height, width, colors) of a square image, gray or of three colors."""
    for colors in (1, 3):
        side = isqrt(features // colors)
        if features == side * side * colors:
            return side, side, colors
    raise ValueError(
        f"rows of {features} features are no square images of 1 or 3 colors; give "
        f"shape=(height, width, colors)"
    )
