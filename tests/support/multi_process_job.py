"""One process of a job whose agents' rows are loaded where the agents are; a program of its own.

    python multi_process_job.py COORDINATOR RANK SIZE [MISTAKE]

prints which agents were loaded, the numbers that were found, and a digest of the run.
"""

import hashlib
import json
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import diamond
from diamond.engine import multi_host

COUNTS = (9, 14, 11, 6, 12)
MISTAKES = {
    "nan": lambda rows: rows | {"a": np.where(rows["a"] == rows["a"][2], np.nan, rows["a"])},
    "wide": lambda rows: {"a": np.ones((5, 7)), "b": np.ones(5)},
    "loss": lambda rows: rows | {"b": 1e38 * rows["b"]},
}
loaded: list[tuple[str, int]] = []


def rows(part, mistake, agent):
    loaded.append((part, agent))
    if mistake == "missing" and (part, agent) == ("train", 3):
        raise FileNotFoundError("no site3.npz")
    random = np.random.default_rng([len(part), agent])
    a = random.normal(size=(COUNTS[agent], 3)) + 0.2 * agent
    agent_rows = {"a": a.astype("float32"), "b": np.sign(a @ [1.0, -1.0, 0.5]).astype("float32")}
    return (
        MISTAKES[mistake](agent_rows)
        if mistake in MISTAKES and (part, agent) == ("train", 3)
        else agent_rows
    )


def upper(x, y, rows):
    return jnp.mean(jnp.logaddexp(0.0, -(rows["a"] @ y) * rows["b"]))


def lower(x, y, rows):
    scaled = jnp.mean((rows["b"] / 1e3) ** 2) * jnp.sum(y**2)  # where labels are absurd, inf
    return upper(x, y, rows) + jnp.mean(jnp.exp(x) * y**2) + 1e-3 * scaled


def problem(mistake=""):
    loaders = lambda part: [partial(rows, part, mistake, agent) for agent in range(len(COUNTS))]
    init = lambda key: (jnp.zeros(3), jnp.zeros(3))
    return diamond.Problem(upper, lower, init, loaders("train"), loaders("valid"))


def main(coordinator, rank, size, mistake=""):
    if int(size) > 1:
        multi_host.join(coordinator, int(rank), int(size))
    ring, algorithm = diamond.network.ring(len(COUNTS)), diamond.dsgd(batch=4)
    if mistake == "steep":
        chain = diamond.hypergradient.neumann(4, 2.0)
        algorithm = diamond.dsgd(0.1, 500.0, 4, chain)
    run = diamond.simulate(problem(mistake), ring, algorithm, 30, every=30, devices="all")
    history = {name: list(run.history[name]) for name in sorted(run.history) if name != "seconds"}
    contents = [json.dumps([history, run.resolved], default=float).encode()]
    contents += [
        np.asarray(a).tobytes() for a in jax.tree.leaves((run.last_x, run.last_y, run.costs))
    ]
    digest = hashlib.sha256(b"".join(contents)).hexdigest()
    print(json.dumps({"loaded": loaded, "resolved": run.resolved, "digest": digest}))


if __name__ == "__main__":
    main(*sys.argv[1:])
