"""Less to compile, for tests of a few rounds."""

from contextlib import contextmanager

import jax
import jax.numpy as jnp

from diamond import Diverged
from diamond.engine import lanes as _batched_runs
from diamond.engine import recorder as record
from diamond.engine.driver import Simulation
from diamond.problem import validate

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
    patch.setattr(validate, "losses", lambda problem: None)


def diverge_unexplained(patch):
    """`Diverged` with its round and run, but without looking for the quantity that diverged."""

    def plain(self, good):
        run = self.record.run(good)
        return Diverged("diverged", run.rounds, "y", run)

    patch.setattr(Simulation, "_diverged", plain)


MEASURES = (
    "stationarity consensus lower_error metric definition1 upper_loss local_loss solver_error"
).split()


def unmeasured(patch):
    """Runs whose measures are all 0: for what else is theirs, without most of the compiling."""

    def nothing(problem, rows, metrics, x, y, z, key, agents=None, shared=None, size=None):
        names = [*MEASURES, *(name for name, _ in metrics)]
        each = jnp.zeros(len(jax.tree.leaves(x)[0]))
        return {name: jnp.zeros(()) for name in names}, {name: each for name in names}

    _measured_by(patch, nothing)


def losses_only(patch):
    """Runs of which only losses and metrics are measured, where the agents are: without y*."""

    def losses(problem, rows, metrics, x, y, z, key, agents=None, shared=None, size=None):
        def alone(own, rows, x, y):
            known = {name: rows.mean(loss, x, y) for name, loss in metrics}
            return known | {"upper_loss": own.f(x, y, None), "local_loss": own.f(x, y, None)}

        own = jax.vmap(alone)(problem, rows, x, y)
        zeros = ("metric", "stationarity", "consensus", "lower_error", "solver_error", "curvature")
        return dict.fromkeys(zeros, jnp.zeros(())) | jax.tree.map(jnp.mean, own), own

    _measured_by(patch, losses)


def _measured_by(patch, look):
    """`look` in place of `diamond.metrics.exact.survey`: of a run alone, and of each lane."""

    def lanes(problem, rows, metrics, x, y, z, probes, size):
        alone = lambda x, y, z, probes: look(problem, rows, metrics, x, y, z, probes)
        return jax.vmap(alone)(x, y, z, probes)

    fixed = ("metrics", "agents", "shared", "size")
    patch.setattr(record, "observe", jax.jit(look, static_argnames=fixed))
    patch.setattr(_batched_runs, "_observe", jax.jit(lanes, static_argnames=("metrics", "size")))
