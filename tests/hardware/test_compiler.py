"""Programs are compiled with the effort they are worth, and the values are the same to rounding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diamond.hardware.compiler import (
    FAST_COMPILE_OPTIONS,
    ROUND_OPTIONS,
    _supported_options,
    compile_fast,
    compile_program,
)

pytestmark = pytest.mark.quick


def squares(a, times=1):
    return times * jnp.sum(jnp.tanh(a) ** 2)


def test_what_works_on_little_has_a_program_of_its_own():
    program = compile_fast("times", small=8 * 100)(squares)
    for size in (10, 100, 101):
        a = np.linspace(0, 1, size)
        np.testing.assert_allclose(program(a, times=2), 2 * np.sum(np.tanh(a) ** 2), rtol=1e-12)
    assert sorted(program.programs) == [("cpu", False), ("cpu", True)]
    lowered = program.lower(np.ones(3)).compile()
    np.testing.assert_allclose(lowered(np.ones(3)), 3 * np.tanh(1) ** 2, rtol=1e-12)


def test_inside_another_program_it_is_a_part_of_that():
    program = compile_program()(squares)
    result = jax.jit(lambda a: program(a) + jax.grad(program)(a).sum())(np.ones(3))
    tanh = np.tanh(1)
    np.testing.assert_allclose(result, 3 * (tanh**2 + 2 * tanh * (1 - tanh**2)), rtol=1e-12)


def without_emitters(options):
    return {name: value for name, value in options.items() if "fusion_emitters" not in name}


def test_options_that_this_jax_does_not_know_are_left_out():
    known = _supported_options(**FAST_COMPILE_OPTIONS)
    # JAX 0.12 has only the newer code generator, and no option to choose the older one.
    assert known in (FAST_COMPILE_OPTIONS, without_emitters(FAST_COMPILE_OPTIONS))
    assert _supported_options(**ROUND_OPTIONS["gpu"]) == ROUND_OPTIONS["gpu"]
    assert _supported_options(xla_gpu_command_buffer_scheduling_mode="SIDEWAYS") == {}
    assert _supported_options(xla_backend_optimization_level=0, xla_that_never_was=1) == {
        "xla_backend_optimization_level": 0
    }


def test_beside_an_accelerator_what_runs_a_few_times_runs_on_the_processor(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "an accelerator")  # device 3 is one
    accelerator = jax.devices()[3]

    def drawn(key, a, b, times=1):
        return times * jax.random.normal(key, a.shape) + a * b

    key, a = jax.device_put((jax.random.key(0), jnp.arange(3.0)), accelerator)
    expected = 2 * jax.random.normal(jax.random.key(0), (3,)) + np.arange(3.0) * 7
    short, long = (
        compile_fast("times", small=100)(drawn),
        compile_program("times", small=100)(drawn),
    )
    result = short(key, a, np.float64(7), times=2)
    assert isinstance(result, np.ndarray) and list(short.programs) == [("cpu", True)]
    np.testing.assert_allclose(result, expected, rtol=1e-12)
    stays = long(key, a, np.float64(7), times=2)
    assert stays.devices() == {accelerator} and list(long.programs) == [("an accelerator", False)]
    np.testing.assert_allclose(stays, expected, rtol=1e-12)
    assert short(key, jax.device_put(jnp.ones(50), accelerator), 7.0).devices() == {accelerator}
