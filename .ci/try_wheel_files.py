"""Files of the federation and of the experiment on tables that the scripts of this folder run."""

FEDERATION = """
rounds = 20
every = 10
network = "complete:2"
[algorithm]
name = "gt_sgd"
alpha = 0.05
beta = 0.2
batch = 2
hypergradient = {name = "neumann", terms = 3}
[sites]
"""
SITE = """
import jax.numpy as jnp
import numpy as np
import diamond


def upper(x, y, rows):
    return jnp.mean((y - rows) ** 2) + 0.1 * x @ x


def lower(x, y, rows):
    return jnp.mean((y - rows) ** 2) + 0.1 * y @ x


def make():
    rows = np.arange(24, dtype=np.float32).reshape(8, 3) / 24
    init = lambda key: (jnp.zeros(3), jnp.zeros(3))
    return diamond.Problem(upper, lower, init, [rows], [rows])
"""
TABLES = """
rounds = 20
every = 10
network = {edges = [["north", "south"]]}
[problem]
kind = "regression"
dataset = ["north.csv", "south.csv"]
label = "days"
levels = {sex = ["F", "M"]}
scale = "standard"
[algorithm]
name = "gt_sgd"
alpha = 0.05
beta = 0.2
batch = 2
hypergradient = {name = "neumann", terms = 3}
"""
