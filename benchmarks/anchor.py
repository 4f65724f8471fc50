"""SUSTAIN of benchmark_bilevel on the reference work, by its own solver class and jitted loop.

The same estimator with one agent: momentum at two points, a chain of random depth on blocks.
Needs a clone of https://github.com/benchopt/benchmark_bilevel and `pip install benchopt`. As in its
own data sets, rows are constants of the program and a block is cut out inside the loss.
"""

import importlib.util
import sys
from functools import partial

import jax
from handwritten import K, lower, upper
from jax import lax
from jax import numpy as jnp

STEP, ETA = 0.1, 0.5


def solver(clone):
    """The class `Solver` of its file solvers/sustain.py."""
    sys.path.insert(0, str(clone))  # it imports benchmark_utils
    spec = importlib.util.spec_from_file_location("sustain", clone / "solvers" / "sustain.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Solver


def oracle(loss, rows):
    """loss(x, y, rows) as its solvers want it: of (inner, outer), with a block that starts at."""
    rows = jax.tree.map(jnp.asarray, rows)

    @partial(jax.jit, static_argnames="batch_size")
    def f(inner_var, outer_var, start=0, batch_size=1):
        block = lambda a: lax.dynamic_slice_in_dim(a, start, batch_size)
        return loss(outer_var, inner_var, jax.tree.map(block, rows))

    return f


def loop(clone, train, valid, batch, rounds):
    """A function that makes `rounds` iterations from zero and returns (x, y)."""
    kind = solver(clone)
    kind.run_once = lambda self, stop: None  # its warm-up: we have our own
    settings = {"step_size": STEP, "outer_ratio": 1.0, "n_hia_steps": K, "batch_size": batch}
    one = kind.get_instance(**settings, eta=ETA, eval_freq=rounds, random_state=1)
    rows, features = train["a"].shape
    zero = jnp.zeros(features)
    f_inner, f_outer = oracle(lower, train), oracle(upper, valid)
    one.set_objective(f_inner, f_outer, rows, rows, zero, zero, None, None)

    def go():
        carry = one.one_epoch(one.init(), rounds)
        return carry["outer_var"], carry["inner_var"]

    return go
