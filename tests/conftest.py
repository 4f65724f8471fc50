"""Double precision throughout: identities are then tested to 1e-12, not to 1e-5.

Ranks are not promoted silently in the core either (`test_algorithms` runs every algorithm under
"raise"); globally that would forbid it to the users' losses, which rows and biases invite.
"""

import gc
import os

import jax
import pytest

from diamond import cache

os.environ[cache.VARIABLE] = "off"  # what tests compile is not the user's; processes inherit it
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 8)  # for what is cut over devices; the rest uses one


@pytest.fixture
def float32():
    """What most users have."""
    with jax.enable_x64(False):
        yield


@pytest.fixture(scope="module", autouse=True)
def compiled_programs():
    """Dropped after each file: they hold memory maps, of which a process has 65,530 by default."""
    yield
    jax.clear_caches()
    gc.collect()
