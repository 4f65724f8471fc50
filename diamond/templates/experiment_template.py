"""Template of a new experiment: a settings file and a problem of the user's own."""

import re
from pathlib import Path

from ..config.validation_errors import BadExperiment, Mistake
from . import problem_templates, template_files

EXPERIMENT_TEXT = """\
# Experiment. Run this file as it is, then change it:
#
#   diamond check {name}.toml      report all mistakes and estimate the cost
#   diamond run {name}.toml        run it once, into runs/{name}/
#   diamond run {name}.toml --set rounds=2000 --set algorithm.batch=32
#
# `diamond compare` runs all combinations of lists:  seed = [0, 1, 2]
#   network = ["ring:5", "er:5,p=0.5"]      algorithm = ["diamond", "gt_sgd"]

rounds = 500
every = 25                    # rounds between evaluations
seed = 0                      # of the initial point and all mini-batches

# Your own function in {name}.py, next to this file; the other keys are its arguments.
# Built-in problems: digits, quadratic, meta_learning, hyperparameter, actor_critic, ...
[problem]
kind = "{name}.py:make"
agents = 5
noise = 0.5

# Or in short:  network = "er:5,p=0.5,seed=0",  "ring:5",  "torus:2x3"
[network]
graph = "er"
agents = 5
p = 0.5
seed = 0
mixing = "laplacian"          # or metropolis, max_degree, best_constant

# To compare several algorithms, write one [[algorithm]] table for each.
[algorithm]
name = "solve"                # or diamond, gt_sgd, dsgd, ...; for all: diamond list algorithms
batch = 16
# Step sizes are learned. Algorithms other than solve also accept yours, as numbers or as
# functions of the round t:
# alpha = 0.1                 # step of x;  "power(0.3)" is 0.3 (2 + t)^(-1/3)
# beta = 0.1                  # step of y;  must stay below 2 / L_g
# hypergradient = {{ name = "neumann", terms = 10 }}
"""

PROBLEM_TEXT = '''\
"""All sites share one ridge penalty per feature (x); each has its own regression (y)."""

import jax.numpy as jnp
import numpy as np

import diamond

FEATURES = 8


def upper(x, y, rows):
    """f: the error of a site's regression on its validation rows; 0.001 x^2 keeps x finite."""
    return jnp.mean((rows["a"] @ y - rows["b"]) ** 2) + 0.001 * jnp.mean(x**2)


def lower(x, y, rows):
    """g: the loss of a site's regression on its training rows, with penalties exp(x)."""
    return jnp.mean((rows["a"] @ y - rows["b"]) ** 2) + jnp.mean(jnp.exp(x) * y**2)


def error(x, y, rows):
    """A metric of your own, reported with the others."""
    return jnp.mean(jnp.abs(rows["a"] @ y - rows["b"]))


def make(agents: int = 5, noise: float = 0.5) -> diamond.Problem:
    """Build the problem; put your own data here, one table of rows per agent."""

    def site(seed: int, count: int):
        random = np.random.default_rng(seed)
        a = random.normal(size=(count, FEATURES))
        return {"a": a, "b": a[:, 0] - a[:, 1] + noise * random.normal(size=count)}

    return diamond.Problem(
        upper=upper,
        lower=lower,
        init=lambda key: (jnp.zeros(FEATURES), jnp.zeros(FEATURES)),
        train=[site(i, 60 + 20 * i) for i in range(agents)],
        valid=[site(100 + i, 60) for i in range(agents)],
        metrics={"error": error},
    )
'''


def write_experiment(folder: Path, name: str, kind: str | None = None) -> list[Path]:
    """Write NAME.toml and NAME.py, or for a problem `kind` NAME.toml and the files it needs.

    Existing files are not overwritten.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        reason = f"{name!r} is no name for a Python file; use letters, digits and _"
        raise BadExperiment("diamond new", [Mistake("", reason)])
    files = {
        folder / f"{name}.toml": EXPERIMENT_TEXT.format(name=name),
        folder / f"{name}.py": PROBLEM_TEXT,
    }
    if kind is not None:
        companions = template_files.companion_files(name, kind)
        files = {folder / f"{name}.toml": problem_templates.experiment_text(name, kind)}
        files |= {folder / file_name: text for file_name, text in companions.items()}
    if existing := [path for path in files if path.exists()]:
        raise FileExistsError(f"{existing[0]} exists already; choose another name")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    return list(files)
