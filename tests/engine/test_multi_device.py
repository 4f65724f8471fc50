"""The agents cut over devices: the simulated trajectory, the same bits on any number of them."""

import re

import jax
import numpy as np
import pytest
from fast_compilation import skip_loss_checks, skip_measures, without_optimizations
from helpers import ALGORITHMS, build, final_progress, flat, logistic, quad, ring, same_bits

import diamond
from diamond import hypergradient as hg
from diamond.core.sampling import key
from diamond.engine import multi_device
from diamond.engine.multi_device import MultiDevice
from diamond.engine.round_program import initial_progress
from diamond.schedules.deferred import ResolutionContext, resolve

TOLERANCE = {"float32": 1e-6, "float64": 1e-12}
NETWORK = diamond.network.erdos_renyi(5, 0.6, seed=2)


def make_algorithm(name):
    numbers = {"alpha": 0.05, "beta": 0.2, "eta": 0.4, "gamma": 0.4, "delta": 0.2, "period": 3}
    return build(name, batch=3, hypergradient=hg.neumann(4, 1.6), **numbers)


def cut(problem, network, algorithm, rounds, devices, transport=None):
    """Where the run stands after `rounds` rounds over devices; no measuring."""
    algorithm = resolve(
        algorithm, ResolutionContext(problem, network, algorithm.batch, 0)
    ).algorithm
    backend = MultiDevice(problem, network, algorithm.batch, "blocks", devices, transport=transport)
    first = initial_progress(algorithm, *problem.start(0), problem.agents)
    after, sound = backend.run_until(algorithm, key(0), backend.scatter_progress(first), rounds)
    assert sound and int(after.t) == rounds
    return backend.gather((after.state, after.spent))


@pytest.mark.wide(keep=["dsgd-float64"])
@pytest.mark.parametrize("precision", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_the_trajectory_is_the_simulated_one_on_any_number_of_devices(name, precision):
    with (
        pytest.MonkeyPatch.context() as patch,
        without_optimizations(),
        jax.enable_x64(precision == "float64"),
    ):
        skip_loss_checks(patch)
        problem, algorithm = quad(agents=5), make_algorithm(name)
        expected = final_progress(problem, NETWORK, algorithm, 10)
        single, double = (cut(problem, NETWORK, algorithm, 10, devices) for devices in (1, 2))
        close = TOLERANCE[precision] * np.abs(flat(expected.state)).max()
        np.testing.assert_allclose(flat(single[0]), flat(expected.state), atol=close, rtol=0)
        np.testing.assert_array_equal(single[1], expected.spent)
        assert same_bits(single, double)


@pytest.mark.wide
def test_one_agent_a_device_is_the_same_to_rounding():
    problem, algorithm = quad(agents=5), make_algorithm("diamond")
    with without_optimizations():
        three, eight = (cut(problem, NETWORK, algorithm, 10, devices) for devices in (3, 8))
    np.testing.assert_allclose(flat(three[0]), flat(eight[0]), atol=1e-12)
    np.testing.assert_array_equal(three[1], eight[1])


@pytest.mark.wide
def test_agents_with_unequal_rows_and_nested_numbers_are_cut_too():
    problem, algorithm = logistic(agents=3, rows=(5, 9, 12)), make_algorithm("diamond")
    with without_optimizations():
        expected = final_progress(problem, ring(3), algorithm, 6)
        result = [
            cut(problem, ring(3), algorithm, 6, 2, transport) for transport in ("gather", "permute")
        ]
    np.testing.assert_allclose(flat(result[0][0]), flat(expected.state), atol=1e-13)
    assert same_bits(*result)


def history(devices, rounds=60, **options):
    algorithm = diamond.diamond(batch=4, hypergradient=hg.neumann(4))
    problem = quad(agents=5)
    return diamond.simulate(
        problem, ring(5), algorithm, rounds, every=20, devices=devices, **options
    )


@pytest.mark.wide
def test_a_run_is_the_same_to_the_last_bit_and_may_go_on_elsewhere():
    saved = []
    with without_optimizations():
        double = history(2, on_progress=lambda s: saved.append(s))
        half = next(s for s in saved if int(s.arrays[".t"]) == 20)
        half = half._replace(entries=half.entries[:2], per_agent=half.per_agent[:2])
        other = history(3, resume=half)
        alone = history(None)
    for name in double.history.keys() - {"seconds"}:
        np.testing.assert_array_equal(double.history[name], other.history[name], err_msg=name)
    for name in ("metric", "upper_loss", "consensus", "bytes"):
        np.testing.assert_allclose(double.history[name], alone.history[name], 1e-9, err_msg=name)
    assert same_bits(double.state, other.state)
    assert double.x.shape == alone.x.shape and double.per_agent["consensus"].shape == (4, 5)
    np.testing.assert_allclose(double.costs["samples"], alone.costs["samples"], rtol=0.05)


def test_a_run_that_diverges_says_when_as_it_does_on_one_device(monkeypatch):
    skip_measures(monkeypatch)
    algorithm = diamond.dsgd(alpha=0.1, beta=50.0, batch=4, hypergradient=hg.neumann(4, 1.6))
    errors = []
    for devices in (None, 2):
        with pytest.raises(diamond.Diverged) as error, without_optimizations():
            diamond.simulate(quad(), ring(4), algorithm, 400, every=400, devices=devices)
        errors.append((str(error.value), error.value.round, error.value.run.rounds))
    assert errors[0] == errors[1]


COLLECTIVE = re.compile(r"= [^=]*? (all-\w+|collective-\w+|reduce-scatter)(?:-start)?\(")


@pytest.mark.wide
@pytest.mark.parametrize(("transport", "kind", "times"), [
    ("gather", "all-gather", 2), ("permute", "collective-permute", 4),
])  # fmt: skip
def test_nothing_but_the_message_travels(transport, kind, times):
    problem, algorithm = quad(agents=8), make_algorithm("diamond")
    backend = MultiDevice(problem, ring(8), algorithm.batch, "blocks", 4, transport=transport)
    algorithm = jax.tree.map(jax.numpy.asarray, algorithm)
    first = backend.scatter_progress(initial_progress(algorithm, *problem.start(0), 8))
    fixed = algorithm, backend.objectives, backend.exchange, backend.agent_numbers, key(0), first, 5
    options = {"sampling": "blocks", "mesh": backend.mesh, "size": backend.parallel_agents}
    text = multi_device._run_rounds.lower(*fixed, **options).compile().as_text()
    result = COLLECTIVE.findall(text)
    assert set(result) == {kind} and len(result) <= times  # x and u; of a ring, to either side
    assert 'custom-call-target="xla_ffi_python' not in text  # and the host is not asked


@pytest.mark.parametrize(("devices", "message"), [
    (99, "but JAX has 8"), (0, "but JAX has 8"), ("gpus", "there are 'cores', 'all'"),
])  # fmt: skip
def test_devices_that_are_not_there_are_refused(devices, message):
    with pytest.raises(ValueError, match=message):
        multi_device.resolve_devices(devices)


def test_one_core_is_said_to_be_one(monkeypatch):
    monkeypatch.setattr(multi_device.jax, "devices", lambda kind=None: jax.local_devices()[:1])
    with pytest.raises(ValueError, match="JAX_NUM_CPU_DEVICES"):
        multi_device.resolve_devices("cores")


@pytest.mark.wide
@pytest.mark.filterwarnings("ignore:mini-batch Hessians")
def test_coarser_products_are_near_and_measured_in_full():
    problem, algorithm = logistic(agents=2, rows=30, dtype="float32"), make_algorithm("diamond")
    with jax.enable_x64(False), without_optimizations():
        full, coarse = (
            diamond.simulate(problem, ring(2), algorithm, 20, every=20, precision=precision)
            for precision in ("float32", "bf16")
        )
    first, last = full.history["upper_loss"], coarse.history["upper_loss"]
    assert first[0] == last[0] and first[1] != last[1]
    assert last[1] == pytest.approx(first[1], rel=1e-2)
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(coarse.state))
    with pytest.raises(ValueError, match="there are 'float32', 'tf32' and 'bf16'"):
        diamond.simulate(problem, ring(2), algorithm, 1, precision="int8")
