"""Memory: what a run needs is known before its first round, and it is made to fit if it can be."""

import re
import warnings
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import skip_loss_checks, without_optimizations
from tiny_experiment import TOML
from typer.testing import CliRunner

import diamond
from diamond import cli, hypergradient, network
from diamond.engine.forecast import forecast
from diamond.engine.many_runs import simulate_many
from diamond.hardware import compilation_cache
from diamond.hardware import device_memory as memory
from diamond.hardware.device_memory import (
    USABLE_SHARE,
    Budget,
    MemoryBoundedProgram,
    TooLarge,
    available_memory,
    even_group_size,
    format_bytes,
    memory_need,
)

AGENTS, BATCH = 6, 40
ALGORITHM = diamond.dsgd(0.05, 0.1, BATCH, hypergradient.neumann(2, 20.0))
RING = network.ring(AGENTS)


def upper(x, y, rows):
    return jnp.mean((jnp.tanh(rows["a"] @ x) @ y - rows["b"]) ** 2)


def lower(x, y, rows):
    return upper(x, y, rows) + 0.1 * jnp.sum(y**2)


def site(seed):
    a = np.random.default_rng(seed).normal(size=(BATCH, 4))
    return {"a": a, "b": a[:, 0]}


@pytest.fixture(scope="module")
def problem():
    """Wide enough for the work on an agent's rows to need more than its rows and state do."""
    init = lambda key: (0.3 * jax.random.normal(key, (4, 32)), jnp.zeros(32))
    parts = [[site(i) for i in numbers] for numbers in (range(AGENTS), range(9, 9 + AGENTS))]
    with without_optimizations():
        yield diamond.Problem(upper, lower, init, *parts)


@contextmanager
def compilations():
    """How often each function was compiled meanwhile."""
    counts = Counter()

    def note(event, seconds, fun_name="", **details):
        counts[fun_name] += event.endswith("backend_compile_duration")

    jax.monitoring.register_event_duration_secs_listener(note)
    yield counts
    jax.monitoring.unregister_event_duration_listener(note)


@pytest.fixture(scope="module")
def unlimited_run(problem):
    """A run with all agents side by side, and what it needs."""
    with without_optimizations(), compilations() as counts:
        needed = forecast(problem, RING, ALGORITHM, 6, every=3).memory
        run = diamond.simulate(problem, RING, ALGORITHM, 6, every=3)
    assert counts["jit(run_rounds_until)"] == counts["jit(measure_all)"] == 1  # both compiled once
    return run, needed


def close(one, other):
    for a, b in zip(*(jax.tree.leaves(run.state) for run in (one, other))):
        np.testing.assert_allclose(a, b, 1e-10, 1e-13)
    for name in ("metric", "upper_loss", "samples", "bytes"):
        np.testing.assert_allclose(one.history[name], other.history[name], 1e-9)


@pytest.mark.wide
def test_a_run_that_does_not_fit_is_made_in_groups_of_agents_the_same_to_rounding(
    problem, unlimited_run
):
    run, needed = unlimited_run
    with (
        without_optimizations(),
        pytest.warns(RuntimeWarning, match="they are taken . at a time") as caught,
    ):
        grouped = diamond.simulate(problem, RING, ALGORITHM, 6, every=3, memory=needed // 2)
    work = {str(w.message).split(" of 6 agents")[0] for w in caught}
    assert work == {"a round", "a measurement on all rows"}
    close(grouped, run)


def test_groups_need_less_and_what_is_needed_is_within_the_limit(problem, unlimited_run):
    _, needed = unlimited_run
    with without_optimizations():
        fitted = forecast(problem, RING, ALGORITHM, 6, every=3, memory=needed // 2).memory
    assert needed // 8 < fitted <= needed // 2


@pytest.mark.wide
def test_what_still_does_not_fit_is_refused_before_the_first_round(problem, unlimited_run):
    seen = []
    with without_optimizations(), pytest.raises(TooLarge) as refused:
        inputs = problem, RING, ALGORITHM, 6
        diamond.simulate(*inputs, on_evaluation=seen.append, memory=unlimited_run[1] // 7)
    message = str(refused.value)
    assert re.fullmatch(
        r"a round, one agent at a time, needs [\d.]+ kB of memory on its device, [\d.]+ kB of it "
        r"for rows and states, but it can have [\d.]+ kB: take a smaller batch, fewer terms K, or "
        r"more devices",
        message,
    )
    total, held, available = map(float, re.findall(r"([\d.]+) kB", message))
    assert held < available < total and available == float(
        format_bytes(unlimited_run[1] // 7).split()[0]
    )
    assert not seen


def test_rows_alone_can_be_too_much(problem):
    with (
        without_optimizations(),
        pytest.raises(TooLarge, match=r"a round needs .* but it can have 1 kB: take"),
    ):
        diamond.simulate(problem, RING, ALGORITHM, 6, memory=1000)


@pytest.mark.slow
def test_on_more_devices_each_needs_less(problem):
    needed = lambda devices, memory=None: (
        forecast(problem, RING, ALGORITHM, 1, devices=devices, memory=memory).memory
    )
    with without_optimizations(), compilations() as counts:
        one, three = needed(1), needed(3)
        assert counts["jit(run_rounds_until)"] == counts["jit(measure_all)"] == 2
        assert three < 0.8 * one
        limit = (one + three) // 2
        assert needed(3, limit) == three
        with pytest.raises(TooLarge, match="one agent at a time"):  # for equal bits on any number
            needed(1, limit)


@pytest.mark.slow
def test_runs_side_by_side_become_fewer(problem):
    """All agents of two runs, then one agent of both, then one run after the other."""
    runs = [(ALGORITHM, seed) for seed in range(2)]
    completed = []
    with without_optimizations(), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        inputs = problem, RING, runs, 4, 4
        free = simulate_many(*inputs, batched=True)
        needed = forecast(problem, RING, ALGORITHM, 4).memory
        tight = simulate_many(
            *inputs, batched=True, memory=3 * needed // 5, on_run=completed.append
        )
    assert completed == [1, 2]
    for one, other in zip(free, tight):
        for name in ("metric", "upper_loss", "samples"):
            np.testing.assert_allclose(one.history[name], other.history[name], 1e-9)


@pytest.mark.quick
def test_a_program_needs_what_xla_says():
    def squares(a, size):
        return memory.map_in_groups(lambda a: jnp.tanh(a @ a), size)(a)

    a = jnp.ones((6, 20, 20))
    program = jax.jit(squares, static_argnames="size")
    fitted = MemoryBoundedProgram(program, 6, Budget(jax.devices()[:1], 10**6), "it", "less")
    np.testing.assert_allclose(fitted(a), np.tanh(np.full((6, 20, 20), 20.0)))
    account = memory_need(program.lower(a, size=6).compile())
    assert fitted.memory_need == sum(account) and account.held == a.nbytes


def test_an_accelerator_has_a_share_of_what_it_says():
    device = SimpleNamespace(
        process_index=0, platform="gpu", memory_stats=lambda: {"bytes_limit": 1000}
    )
    assert Budget([device, device]).left(100) == USABLE_SHARE * 1000 - 100
    silent = SimpleNamespace(process_index=0, platform="gpu", memory_stats=lambda: None)
    assert Budget([silent]).left(100) is None
    assert Budget([device, silent]).left(0) == USABLE_SHARE * 1000
    assert Budget([silent], 500).left(100) == 400


def test_cores_share_the_memory_of_their_machine(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 8000)
    assert Budget(jax.devices("cpu")[:1]).left(100) == 8000  # what is held is taken already
    assert Budget(jax.devices("cpu")[:4]).left(100) == 2000


def machine(root, meminfo, cgroup="0::/job\n"):
    """The files of a machine whose control group `job` may have 3,000 bytes."""
    for name, text in {
        "proc/meminfo": meminfo,
        "proc/self/cgroup": cgroup,
        "sys/fs/cgroup/job/memory.max": "3000\n",
        "sys/fs/cgroup/job/memory.current": "2500\n",
        "sys/fs/cgroup/job/memory.stat": "anon 1000\ninactive_file 1200\n",
        "sys/fs/cgroup/memory.max": "max\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_machine_has_what_it_says_or_what_its_control_group_leaves(tmp_path):
    plenty = "MemTotal:       99 kB\nMemAvailable:   50 kB\nHugePages_Total:       0\n"
    assert available_memory(machine(tmp_path / "a", plenty)) == 3000 - 2500 + 1200
    assert available_memory(machine(tmp_path / "b", plenty, "4:memory:/old\n")) == 50 * 1024
    assert available_memory(machine(tmp_path / "c", plenty.replace("50", "1"))) == 1024
    assert available_memory(tmp_path / "nothing") is None
    assert (available_memory() or 0) > 0 or not memory.Path("/proc/meminfo").exists()


@pytest.mark.quick
@pytest.mark.parametrize(("agents", "most", "size"), [(12, 5, 4), (12, 6, 6), (7, 3, 3), (7, 1, 1)])
def test_groups_are_even_where_they_can_be(agents, most, size):
    assert even_group_size(agents, most) == size


@pytest.mark.quick
@pytest.mark.parametrize(
    ("count", "text"),
    [(12, "12 bytes"), (3400, "3.4 kB"), (999_600, "1 MB"), (1.234e9, "1.23 GB"), (5e12, "5 TB")],
)
def test_bytes_in_words(count, text):
    assert format_bytes(count) == text


def test_the_command_refuses_what_does_not_fit(tmp_path, monkeypatch):
    (tmp_path / "small.toml").write_text(TOML)
    skip_loss_checks(monkeypatch)
    monkeypatch.setattr(memory, "available_memory", lambda: 0)
    monkeypatch.setattr(compilation_cache, "enable_compile_cache", lambda: None)
    words = ["--set", "seed=[0, 1]", "--out", str(tmp_path / "runs")]
    with without_optimizations():
        result = CliRunner().invoke(cli.app, ["compare", str(tmp_path / "small.toml"), *words])
    assert result.exit_code == 2 and result.stderr.count("but it can have") == 1  # of both
    assert "small: 1 mistake" in result.stderr and "Traceback" not in result.output
