"""Less to compile, for tests of a few rounds."""

from contextlib import contextmanager

import jax

from diamond import Diverged
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
