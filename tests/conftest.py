"""Double precision throughout: identities are then tested to 1e-12, not to 1e-5.

Ranks are not promoted silently in the core either (`test_algorithms` runs every algorithm under
"raise"); globally that would forbid it to the users' losses, which rows and biases invite.
"""

import gc
import mmap
import os
import time
from importlib.util import find_spec
from pathlib import Path

# Most of the time of these tests is the compiler's: it is asked for less, where this JAX knows how,
# and what it has compiled is kept for the next run. Set before JAX is imported, and inherited by
# processes of the tests.
FAST_COMPILE_FLAGS = {
    "xla_backend_optimization_level": "0",
    "xla_llvm_disable_expensive_passes": "true",
    "xla_cpu_use_fusion_emitters": "false",
    "xla_cpu_parallel_codegen_split_count": "1",
}
PROGRAM_CACHE = Path(__file__).parent.parent / ".pytest_cache" / "programs"


def is_known_flag(flag):
    """Whether the compiler has this flag: it ends the process over one that it does not know.

    The name is a text of its own in the library; a removed flag is left as a part of longer ones.
    """
    (library,) = find_spec("jaxlib").submodule_search_locations
    for path in Path(library).glob("libjax_common*"):
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return text.find(f"\0{flag}\0".encode()) >= 0
    return False


flags = [f"--{flag}={value}" for flag, value in FAST_COMPILE_FLAGS.items() if is_known_flag(flag)]
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags])
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(PROGRAM_CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
# Two workers have two cores: products of numpy and scipy on more threads wait for each other.
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import jax  # noqa: E402
import pytest  # noqa: E402
from browser_pages import browser, visit  # noqa: E402, F401

from diamond.hardware import compilation_cache  # noqa: E402

os.environ[compilation_cache.VARIABLE] = (
    "off"  # what tests compile is not the user's; processes inherit it
)
# A process of a test has nothing in memory yet: what another one compiled is read, however small,
# and so is the bytecode of the package.
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 8)  # for what is cut over devices; the rest uses one
gc.set_threshold(200_000, 20, 100)  # tracing makes many objects, of which few are garbage


@pytest.fixture
def float32():
    """What most users have."""
    with jax.enable_x64(False):
        yield


MEMORY_MAPS = Path("/proc/self/maps")


@pytest.fixture(scope="module", autouse=True)
def compiled_programs():
    """Dropped once they are many: they hold memory maps, of which a process has 65,530."""
    yield
    if not MEMORY_MAPS.exists() or MEMORY_MAPS.read_bytes().count(b"\n") > 45_000:
        jax.clear_caches()
        gc.collect()


# Files of fifteen seconds and more, the longest first: begun last, one would keep a worker alone.
LONG_TESTS = (
    "test_docs test_methods_through_channels test_stream_runs test_multi_host test_solve "
    "test_report_browser test_resume test_cli_experiments test_advice test_private "
    "test_model_sharding test_privacy_forecast test_comparison test_robust_mixing test_reproduce "
    "test_multi_device test_quasi_newton test_theory_constants test_roster_acceptance"
).split()


def pytest_addoption(parser):
    parser.addoption("--minutes", type=float, help="begin no test later")


def pytest_runtest_setup(item, began=time.monotonic()):
    limit = item.config.getoption("--minutes")
    if limit is not None and time.monotonic() - began > 60 * limit:
        pytest.skip(f"not begun in {limit:g} minutes: `make test-slow` has all")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Long files first; `--no-loadscope-reorder` leaves it so. Kept combinations are not wide."""
    to_keep, present = {}, {}
    for item in items:
        mark = next((mark for mark in item.own_markers if mark.name == "wide"), None)
        if mark and "keep" in mark.kwargs:
            to_keep[item.function] = {*mark.kwargs["keep"]}
            present.setdefault(item.function, set()).add(item.callspec.id)
            if item.callspec.id in to_keep[item.function]:
                item.own_markers.remove(mark)
    if not any("::" in argument for argument in config.args):
        rest = {function.__name__: to_keep[function] - present[function] for function in to_keep}
        assert not any(rest.values()), f"marks keep what is no combination: {rest}"
    order = {name: i for i, name in enumerate(LONG_TESTS)}
    items.sort(key=lambda item: order.get(item.path.stem, len(LONG_TESTS)))
