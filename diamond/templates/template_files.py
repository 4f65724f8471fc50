"""Files beside a template of the gallery: tables of sites, and functions in Python."""

import numpy as np

SITES, ROWS = 5, 60  # number of tables, and rows of the first
WEIGHTS = (2.0, -1.0, 0.5, 0.0, 0.0, 0.0)  # weights of the features: half of them are noise
BACKBONE = '''\
"""Shared representation: images filtered by kernels that all agents share."""

import jax
import jax.numpy as jnp

import diamond

KERNELS = 6


def init(key):
    """x: kernels of 3 x 3 pixels."""
    return {"kernels": jax.random.normal(key, (9, KERNELS)) / 3, "levels": jnp.zeros(KERNELS)}


def backbone(x, a):
    """Map 8 x 8 images to 3 x 3 x KERNELS features: kernels, tanh, means of 2 x 2."""
    images = a.reshape(-1, 8, 8)
    shifts = [images[:, i : i + 6, j : j + 6] for i in range(3) for j in range(3)]
    seen = jnp.tanh(jnp.stack(shifts, -1) @ x["kernels"] + x["levels"])
    return seen.reshape(-1, 3, 2, 3, 2, KERNELS).mean((2, 4)).reshape(len(a), -1)


def make(agents: int = 5, regularizer: float = 0.1) -> diamond.Problem:
    """Build the problem; change `init` and `backbone` for your network, the rows here."""
    features, labels = diamond.data.digits().train
    parts = diamond.data.partition.by_label(labels, agents, seed=0, shards=4)
    split = diamond.data.partition.split(parts, (0.4, 0.4, 0.2), seed=0)
    rows = [[{"a": features[i], "b": labels[i]} for i in part] for part in split]
    return diamond.gallery.representation(backbone, init, *rows, 10, regularizer)
'''


def companion_files(name: str, kind: str) -> dict[str, str]:
    """Return the files that NAME.toml on the problem `kind` needs, by name."""
    if kind == "representation":
        return {f"{name}.py": BACKBONE}
    if kind in ("regression", "robust_regression"):
        return {f"{name}_{site}.csv": _make_table(site) for site in range(SITES)}
    return {}


def _make_table(site: int) -> str:
    """Make rows of one site: target = a'(weights + 0.2 site noise) + noise, at several scales."""
    random = np.random.default_rng(site)
    scales = 10.0 ** np.arange(-1, len(WEIGHTS) - 1)
    weights = np.array(WEIGHTS) + 0.2 * random.normal(size=len(WEIGHTS)) * np.sign(np.abs(WEIGHTS))
    a = random.normal(size=(ROWS + 15 * site, len(WEIGHTS)))
    targets = a @ weights + 0.5 * random.normal(size=len(a))
    head = ",".join([*(f"feature_{k}" for k in range(len(WEIGHTS))), "target"])
    rows = (",".join(f"{v:.6g}" for v in (*(scales * row), t)) for row, t in zip(a, targets))
    return "\n".join([head, *rows, ""])
