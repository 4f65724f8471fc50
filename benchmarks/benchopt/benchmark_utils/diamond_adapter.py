"""A bilevel problem of benchopt's benchmark_bilevel as one of diamond's, and a run of it by pieces.

There, losses are f(inner, outer, start, batch_size), means over successive samples that stay
hidden; here, functions of rows. A row is therefore the number of a sample.
"""

import inspect

import jax
import jax.numpy as jnp
import numpy as np

import diamond
from diamond import catalogue, network, schedules
from diamond.engine.single_device import SingleDevice
from diamond.engine.single_driver import SingleDriver
from diamond.metrics.measures import parse_measures


def problem(f_inner, f_outer, n_inner_samples, n_outer_samples, inner_var0, outer_var0):
    """min_x f_outer(y*(x), x) with y*(x) = argmin_y f_inner(y, x), of one agent."""

    def mean(loss):
        def over(x, y, rows):
            loss_of_row = lambda start: loss(y, x, start=start, batch_size=1)
            return jnp.mean(jax.vmap(loss_of_row)(rows["sample"]))

        return over

    numbers = lambda count: [{"sample": np.arange(count, dtype=np.int32)}]
    return diamond.Problem(
        mean(f_outer),
        mean(f_inner),
        lambda key: (jnp.array(outer_var0), jnp.array(inner_var0)),
        numbers(n_inner_samples),
        numbers(n_outer_samples),
    )


def method(name, batch, step_size=None, outer_ratio=1.0):
    """The method `name`; with the steps it chooses, or step_size (t + 1)^-1/2 as SOBA has there.

    x then takes `outer_ratio` times smaller steps than y and z.
    """
    make = catalogue.maker(name)
    taken = inspect.signature(make).parameters
    options = {"batch": batch} if "batch" in taken else {}
    if step_size is not None:
        sizes = {"alpha": step_size / outer_ratio, "beta": step_size, "delta": step_size}
        options |= {n: schedules.power(c, 1.0, 0.5) for n, c in sizes.items() if n in taken}
    return make(**options)


class Rounds:
    """A run that goes on a piece at a time, and measures nothing."""

    def __init__(self, problem, algorithm, seed, shrinks):
        alone = network.complete(1)
        backend = SingleDevice(problem, alone, algorithm.batch, "blocks")
        arguments = problem, alone, algorithm, seed, "blocks", backend
        self.run = SingleDriver(*arguments, parse_measures("cheap", problem), shrinks)

    def advance(self, rounds):
        """So many rounds more."""
        end = self.run.t + rounds
        while self.run.t < end:
            self.run.run_checked_rounds(self.run.next_stop(end, rounds))

    @property
    def variables(self):
        """(inner, outer): y and x of the agent."""
        state = self.run.progress.state
        return state.y[0], state.x[0]
