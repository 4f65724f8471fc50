"""Double precision throughout: identities are then tested to 1e-12, not to 1e-5.

Ranks are not promoted silently in the core either (`test_algorithms` runs every algorithm under
"raise"); globally that would forbid it to the users' losses, which rows and biases invite.
"""

import gc
import os
from pathlib import Path

# Most of the time of these tests is the compiler's: it is asked for less, and what it has compiled
# is kept for the next run. Set before JAX is imported, and inherited by processes of the tests.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"
KEPT = Path(__file__).parent.parent / ".pytest_cache" / "programs"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(KEPT))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")

import jax  # noqa: E402
import pytest  # noqa: E402

from diamond.machine import compilation_cache  # noqa: E402

os.environ[compilation_cache.VARIABLE] = (
    "off"  # what tests compile is not the user's; processes inherit it
)
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
