"""Less to compile, for tests of a few rounds."""

import functools
from contextlib import contextmanager

import jax
import jax.numpy as jnp

from diamond import Diverged
from diamond.engine.single_driver import SingleDriver
from diamond.metrics import measures
from diamond.problem import loss_validation

OPTION = "jax_disable_most_optimizations"


@contextmanager
def quickly():
    """Programs without optimizations: half the time to compile."""
    jax.config.update(OPTION, True)
    try:
        yield
    finally:
        jax.config.update(OPTION, False)


def unchecked(patch):
    """Problems without the checks of their losses, which are compiled for seconds."""
    patch.setattr(loss_validation, "check_losses", lambda problem: None)


def diverge_unexplained(patch):
    """`Diverged` with its round and run, but without looking for the quantity that diverged."""

    def plain(self, good):
        run = self.recorder.run(good)
        return Diverged("diverged", run.rounds, "y", run)

    patch.setattr(SingleDriver, "_diverged", plain)


MEASURES = (
    "stationarity consensus lower_error metric definition1 upper_loss local_loss solver_error"
).split()


def unmeasured(patch):
    """Runs whose measures are all 0: for what else is theirs, without most of the compiling."""

    def nothing(problem, rows, metrics, x, y, z, over):
        names = [*MEASURES, *(name for name, _ in metrics)]
        each = jnp.zeros(len(jax.tree.leaves(x)[0]))
        return {name: jnp.zeros(()) for name in names}, {name: each for name in names}

    _measured_by(patch, nothing)


def losses_only(patch):
    """Runs of which only losses and metrics are measured, where the agents are: without y*."""

    def losses(problem, rows, metrics, x, y, z, over):
        def alone(own, rows, x, y):
            known = {name: rows.mean(loss, x, y) for name, loss in metrics}
            return known | {"upper_loss": own.f(x, y, None), "local_loss": own.f(x, y, None)}

        own = jax.vmap(alone)(problem, rows, x, y)
        zeros = ("metric", "stationarity", "consensus", "lower_error", "solver_error")
        return dict.fromkeys(zeros, jnp.zeros(())) | jax.tree.map(jnp.mean, own), own

    _measured_by(patch, losses)


def _measured_by(patch, measure_exactly):
    """A function in place of the exact measures: of a run alone, and of each lane."""
    patch.setattr(measures, "measure_exactly", measure_exactly)
    patch.setattr(measures, "curvature", lambda problem, x, y, probes: jnp.zeros(1))
    for name in ("measurement", "lane_measurement"):
        program = getattr(measures, name)
        fixed = tuple(program.static)
        patch.setattr(measures, name, jax.jit(_fresh(program.function), static_argnames=fixed))


def _fresh(function):
    """The same function as another object, which JAX compiles again."""
    return functools.wraps(function)(lambda *given, **named: function(*given, **named))
