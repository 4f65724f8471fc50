"""Folders of small, real runs for what reads them."""

import json
import threading
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import skip_loss_checks, without_optimizations
from helpers import quad

import diamond
from diamond import hypergradient as hg
from diamond.records.manifest import RunOrigin, final_fields, initial_manifest
from diamond.records.metrics_file import MetricsFile
from diamond.records.trajectory_digest import digest_trajectory
from diamond.report.live_server import make_server

METHODS = {"DIAMOND": "diamond", "GT-SGD": "gt_sgd", "D-SGD": "dsgd"}
MOMENTUM = {"diamond": {"eta": 0.5, "gamma": 0.5}}  # finding them would be compiled too
SEEDS = (0, 1)
CONFIG = """name = "{name}"
seed = {seed}

[algorithm]
name = "{algorithm}"
"""


def distance_moved(x, y, rows):
    """A user's metric that rises: how far x has come from its start, 0, of which 1 is infinity."""
    return 1 - jnp.exp(-jnp.sum(x**2))


@cache
def labelled_problem():
    """The quadratic problem of five agents, its rows with labels and a metric."""
    quadratic = quad(agents=5, rows=(24, 20, 20, 16, 16))
    add_labels = lambda rows, i: {**rows, "label": np.arange(len(rows["point"])) % (i + 2)}
    train = [add_labels(rows, i) for i, rows in enumerate(quadratic.rows["train"])]
    with pytest.MonkeyPatch.context() as patch:
        skip_loss_checks(patch)
        parts = quadratic.init, train, quadratic.rows["valid"]
        return diamond.Problem(
            quadratic.upper, quadratic.lower, *parts, metrics={"moved": distance_moved}
        )


def write_comparison(folder: Path) -> Path:
    """Three algorithms and two seeds on a ring: a folder of run folders."""
    for label, name in METHODS.items():
        for seed in SEEDS:
            write_run(folder / f"{name}-seed{seed}", name, label, seed)
    return folder


def write_run(path, name, label, seed=0, rounds=40, every=10, network=None, **options) -> Path:
    """One run and its folder, as it is left when the run ends or diverges."""
    options = {"alpha": 0.05, "beta": 0.3, "batch": 4} | MOMENTUM.get(name, {}) | options
    network = network or diamond.network.ring(5)
    algorithm = getattr(diamond, name)(**options, hypergradient=hg.neumann(5, 1.6))
    command = f"diamond run {path.name}/config.toml"
    origin = RunOrigin(path.name, path.parent.name, "quadratic", name, label, options, command, {})
    sizes = seed, rounds, every, options["batch"], "blocks"
    manifest = initial_manifest(origin, labelled_problem(), network, *sizes)
    status, message = "finished", ""
    with without_optimizations():
        try:
            run = diamond.simulate(labelled_problem(), network, algorithm, rounds, seed, every)
        except diamond.Diverged as error:
            run, status, message = error.run, "diverged", str(error)
    path.mkdir(parents=True)
    (path / "config.toml").write_text(CONFIG.format(name=path.name, seed=seed, algorithm=name))
    metrics = MetricsFile(path / "metrics.jsonl")
    for i in range(len(run.history["round"])):
        entry = {key: values[i].item() for key, values in run.history.items()}
        metrics.append(entry, {key: np.asarray(values[i]) for key, values in run.per_agent.items()})
    manifest |= final_fields(
        run, status, message, 1.5, digest=digest_trajectory(metrics.lines(), run.last_x, run.last_y)
    )
    (path / "manifest.json").write_text(json.dumps(manifest))
    return path


def change_manifest(path: Path, **changes) -> dict:
    """The manifest of a run's folder, with `changes` written to it; None removes a key."""
    content = json.loads((path / "manifest.json").read_text()) | changes
    content = {key: value for key, value in content.items() if value is not None}
    (path / "manifest.json").write_text(json.dumps(content))
    return content


def read_lines(path: Path) -> list[dict]:
    """The evaluations of a run's folder."""
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def cut_like_a_kill(path: Path, keep: int = 3) -> None:
    """Leave a finished run's folder as a kill would: few lines, the last torn, no end."""
    lines = (path / "metrics.jsonl").read_text().splitlines()
    (path / "metrics.jsonl").write_text("\n".join([*lines[:keep], lines[keep][:40]]))
    final_keys = "costs traffic messages digest compile_seconds wall_seconds finished".split()
    change_manifest(path, status="running", resolved={}, **dict.fromkeys(final_keys))


@contextmanager
def serve_live_page(folder: Path):
    """The port at which the live page of a folder is served meanwhile."""
    with make_server(folder) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield running.server_port
        finally:
            running.shutdown()
            thread.join()
