"""Measures on larger data are compiled in less time, to the same numbers."""

import numpy as np
import pytest

from diamond.hardware.compiler import BRIEF, LIGHT, MEASURES, _known, compiled

pytestmark = pytest.mark.quick


def test_what_measures_larger_data_is_compiled_lightly_and_counts_the_same():
    assert MEASURES["cpu"] == LIGHT == _known(**LIGHT)
    program = compiled(options=MEASURES, small=800, less=BRIEF)(lambda a: (a**2).mean())
    for size in (100, 10_000):
        a = np.linspace(0, 1, size)
        np.testing.assert_allclose(program(a), np.mean(a**2), rtol=1e-12)
    assert sorted(program.programs) == [("cpu", False), ("cpu", True)]


def test_what_the_user_says_to_the_compiler_holds(monkeypatch):
    """Options that XLA_FLAGS has are not asked for again."""
    asked = []
    monkeypatch.setattr("diamond.hardware.compiler._known", lambda **options: asked.append(options))
    for flags in ("", "--xla_backend_optimization_level=2"):
        monkeypatch.setenv("XLA_FLAGS", flags)
        compiled(options=MEASURES, small=0)(lambda a: 2 * a)(np.ones(3))
    assert asked == [LIGHT, {"xla_cpu_use_fusion_emitters": False}]
