"""Less to compile, for tests of a few rounds."""

from contextlib import contextmanager

import jax
import jax.numpy as jnp

from diamond import Diverged
from diamond.measure import record
from diamond.problem import validate
from diamond.runtimes._simulation import Simulation

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

    fixed = ("metrics", "agents", "shared", "size")
    patch.setattr(record, "observe", jax.jit(nothing, static_argnames=fixed))
