"""Arrays that losses close over are arguments of compiled programs, with the same results."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diamond
from diamond.hardware.captured_arrays import HoistingProgram, captured_bytes

MATRIX = np.random.default_rng(0).normal(size=(128, 128)) / 11
INNER = jax.jit(lambda a: jnp.tanh(a @ MATRIX))


def plain(a, count):
    return jnp.tanh(a @ MATRIX)


def in_inner_program(a, count):
    return INNER(a)


def in_while_loop(a, count):
    return jax.lax.while_loop(lambda c: c[0] < count, lambda c: (c[0] + 1, INNER(c[1])), (0, a))[1]


def in_scan(a, count):
    return jax.lax.scan(lambda carry, row: (INNER(carry) + row, carry.sum()), a, jnp.ones((3, 128)))


def in_branch(a, count):
    return jax.lax.cond(count > 1, INNER, lambda a: a, a)


def derivative(a, count):
    return jax.vmap(jax.grad(lambda a: in_inner_program(a, count).sum()))(a[None])


@pytest.mark.parametrize(
    "function", [plain, in_inner_program, in_while_loop, in_scan, in_branch, derivative]
)
def test_the_program_takes_the_array_as_an_argument_and_computes_the_same(function):
    a = jnp.linspace(-1, 1, 128)
    program, usual = HoistingProgram(function), jax.jit(function)
    for count in (3, 1):
        for ours, theirs in zip(*map(jax.tree.leaves, (program(a, count), usual(a, count)))):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    assert len(usual.lower(a, 3).as_text()) > 2 * MATRIX.nbytes  # written out as digits
    assert len(program.lower(a, 3).as_text()) < MATRIX.nbytes
    held = [p.lower(a, 3).compile().memory_analysis() for p in (program, usual)]
    held = [report.argument_size_in_bytes for report in held]
    assert held[0] - held[1] == MATRIX.nbytes
    assert len(program.entries) == 1  # other values, the same program


def test_static_keyword_and_donated_arguments_reach_the_program():
    def function(a, power, state, scale=1.0):
        return {"state": state + 1, "result": (a @ MATRIX).sum() ** power * scale}

    program = HoistingProgram(function, ("power",), donated=("state",))
    a, state = jnp.ones(128), jnp.zeros(300)
    result = program(a, 2, state, scale=jnp.float64(3))
    assert result["result"] == pytest.approx(3 * (MATRIX.sum()) ** 2, rel=1e-10)
    assert state.is_deleted() and not a.is_deleted() and result["state"].sum() == 300


def make(feature):
    """A problem whose losses use fixed features of the rows."""
    generator = np.random.default_rng(1)
    rows = [
        [{"a": generator.normal(size=(20, 128)), "b": generator.normal(size=20)} for _ in range(3)]
        for _ in "tv"
    ]
    loss = lambda x, y, rows: jnp.mean((feature(rows["a"])[:, :4] @ y - rows["b"]) ** 2)
    penalized = lambda x, y, rows: loss(x, y, rows) + jnp.mean(jnp.exp(x) * y**2)
    start = lambda key: (jnp.zeros(4), jnp.ones(4))
    return diamond.Problem(loss, penalized, start, *rows, metrics={"error": loss})


@pytest.mark.wide
def test_a_run_whose_losses_close_over_a_matrix_holds_it_as_an_argument_on_every_device():
    algorithm = diamond.soba(alpha=0.1, beta=0.1, batch=4)
    simulate = lambda problem, devices=None: diamond.simulate(
        problem, diamond.network.ring(3), algorithm, 2, measure="cheap", devices=devices
    )
    hoisting, baked = make(INNER), make(INNER)
    assert hoisting.captured_bytes == MATRIX.nbytes == hoisting.objectives().captured_bytes
    baked.captured_bytes = 0
    expected = simulate(baked)
    for run in (simulate(hoisting), simulate(hoisting, 2)):
        np.testing.assert_allclose(run.x, expected.x, rtol=1e-12)
        np.testing.assert_allclose(run.history["error"], expected.history["error"], rtol=1e-12)


def test_small_arrays_stay_constants():
    assert make(lambda a: a * np.linspace(0, 1, 128)).captured_bytes == 0
    assert captured_bytes(jax.make_jaxpr(lambda a: a + np.arange(100.0))(0.0)) == 0
