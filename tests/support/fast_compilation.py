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
def without_optimizations():
    """Programs without optimizations: half the time to compile."""
    jax.config.update(OPTION, True)
    try:
        yield
    finally:
        jax.config.update(OPTION, False)


def skip_loss_checks(patch):
    """Problems without the checks of their losses, which are compiled for seconds."""
    patch.setattr(loss_validation, "check_losses", lambda problem: 0)


def skip_divergence_diagnosis(patch):
    """`Diverged` with its round and run, but without looking for the quantity that diverged."""

    def plain_error(self, good):
        run = self.recorder.run(good)
        return Diverged("diverged", run.rounds, "y", run)

    patch.setattr(SingleDriver, "_divergence_error", plain_error)


MEASURES = (
    "stationarity consensus lower_error metric definition1 upper_loss local_loss solver_error"
).split()


def skip_measures(patch):
    """Runs whose measures are all 0: for what else is theirs, without most of the compiling."""

    def zero_measures(problem, rows, metrics, x, y, z, over):
        names = [*MEASURES, *(name for name, _ in metrics)]
        zeros = jnp.zeros(len(jax.tree.leaves(x)[0]))
        return {name: jnp.zeros(()) for name in names}, {name: zeros for name in names}

    _replace_exact_measures(patch, zero_measures)


def measure_losses_only(patch):
    """Runs of which only losses and metrics are measured, where the agents are: without y*."""

    def mean_losses(problem, rows, metrics, x, y, z, over):
        def agent_losses(per_agent, rows, x, y):
            metric_values = {name: rows.mean(loss, x, y) for name, loss in metrics}
            return metric_values | {
                "upper_loss": per_agent.f(x, y, None),
                "local_loss": per_agent.f(x, y, None),
            }

        per_agent = jax.vmap(agent_losses)(problem, rows, x, y)
        zeros = ("metric", "stationarity", "consensus", "lower_error", "solver_error")
        return dict.fromkeys(zeros, jnp.zeros(())) | jax.tree.map(jnp.mean, per_agent), per_agent

    _replace_exact_measures(patch, mean_losses)


def _replace_exact_measures(patch, measure_exactly):
    """A function in place of the exact measures: of a run alone, and of each lane."""
    patch.setattr(measures, "measure_exactly", measure_exactly)
    patch.setattr(measures, "curvature", lambda problem, x, y, probes: jnp.zeros(1))
    for name in ("measurement", "lane_measurement"):
        program = getattr(measures, name)
        static_names = tuple(program.static)
        patch.setattr(
            measures, name, jax.jit(_copy_function(program.function), static_argnames=static_names)
        )


def _copy_function(function):
    """The same function as another object, which JAX compiles again."""
    return functools.wraps(function)(lambda *arguments, **options: function(*arguments, **options))
