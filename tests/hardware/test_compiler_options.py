"""Measures on larger data are compiled in less time, to the same numbers."""

import numpy as np
import pytest

from diamond.hardware.compiler import (
    FAST_COMPILE_OPTIONS,
    LIGHT_OPTIONS,
    MEASURE_OPTIONS,
    _supported_options,
    compile_program,
)

pytestmark = pytest.mark.quick


def test_what_measures_larger_data_is_compiled_lightly_and_counts_the_same():
    assert MEASURE_OPTIONS["cpu"] == LIGHT_OPTIONS
    assert "xla_backend_optimization_level" in _supported_options(**LIGHT_OPTIONS)
    program = compile_program(
        options=MEASURE_OPTIONS, small=800, small_options=FAST_COMPILE_OPTIONS
    )(lambda a: (a**2).mean())
    for size in (100, 10_000):
        a = np.linspace(0, 1, size)
        np.testing.assert_allclose(program(a), np.mean(a**2), rtol=1e-12)
    assert sorted(program.programs) == [("cpu", False), ("cpu", True)]


@pytest.mark.parametrize("small", [0, 2**18])
def test_what_the_user_says_to_the_compiler_holds(small, monkeypatch):
    """Options that XLA_FLAGS has are not asked for again; small rounds are compiled lightly too."""
    requested = []
    monkeypatch.setattr(
        "diamond.hardware.compiler._supported_options", lambda **options: requested.append(options)
    )
    for flags in ("", "--xla_backend_optimization_level=2"):
        monkeypatch.setenv("XLA_FLAGS", flags)
        compile_program(options=MEASURE_OPTIONS, small=small)(lambda a: 2 * a)(np.ones(3))
    assert requested == [LIGHT_OPTIONS, {"xla_cpu_use_fusion_emitters": False}]
