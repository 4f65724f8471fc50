"""Rows that are loaded where their agents are: by one process, by each of several."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import multi_process_job
import numpy as np
import pytest
from fast_compilation import skip_loss_checks

import diamond
from diamond.engine import multi_device as _gather
from diamond.engine.multi_device import GatherConsensus
from diamond.hardware.sharding import AgentSharding
from diamond.hypergradient import neumann

JOB_SCRIPT = Path(multi_process_job.__file__)


def job(size, *mistake, devices=1):
    """What `size` processes of one job print and complain of, and how they end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{free.getsockname()[1]}"
    loaded_agents = {"JAX_NUM_CPU_DEVICES": str(devices), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    environment = {
        **os.environ,
        **loaded_agents,
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    words = lambda rank: [sys.executable, JOB_SCRIPT, where, str(rank), str(size), *mistake]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    each = [subprocess.Popen(words(rank), env=environment, **pipes) for rank in range(size)]
    return [(*process.communicate(timeout=200), process.returncode) for process in each]


def run_processes(size, devices=1):
    ended = job(size, devices=devices)
    assert all(code == 0 for *_, code in ended), [complaint for _, complaint, _ in ended]
    return [json.loads(message.splitlines()[-1]) for message, *_ in ended]


@pytest.mark.slow
def test_each_process_loads_its_own_rows_and_all_find_the_numbers_of_one():
    first, second = run_processes(2)
    (one,) = run_processes(1, devices=2)
    both = lambda *agents: [[part, agent] for part in ("train", "valid") for agent in agents]
    assert first["loaded"] == both(0, 1, 2) and second["loaded"] == both(3, 4)
    assert one["loaded"] == both(0, 1, 2, 3, 4)
    assert one["resolved"] == {}  # nothing is measured before round 0
    assert first == first | {"resolved": one["resolved"], "digest": one["digest"]}
    assert second == second | {"resolved": one["resolved"], "digest": one["digest"]}


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("nan", "agent 3's training rows ['a'] are not finite: row 2 is the first"),
        ("wide", "a row of agent 3's training rows ['a'] is float64[7], of agent 0's float32[3]"),
        ("missing", "agent 3's training rows cannot be loaded: its function raised FileNotFound"),
        pytest.param("loss", "lower is inf on agent 3's first rows", marks=pytest.mark.slow),
    ],
)
def test_bad_rows_of_one_process_end_all_in_the_same_words(mistake, message):
    for _, complaint, code in job(2, mistake):
        assert code == 1 and f"\nValueError: {message}" in complaint


@pytest.mark.slow
def test_a_run_over_processes_that_diverges_says_why_without_the_rows_of_others():
    ended = job(2, "steep")
    causes = {re.search(r"^diamond.*Diverged: (.*)$", error, re.M)[1] for _, error, _ in ended}
    assert len(causes) == 1 and "beta_0 = 500 exceeds 2/L_g" in causes.pop()


@pytest.fixture
def problem(monkeypatch):
    skip_loss_checks(monkeypatch)
    multi_process_job.loaded.clear()
    return multi_process_job.problem()


def test_in_one_process_every_function_is_called_once(problem):
    every = range(len(multi_process_job.COUNTS))
    assert multi_process_job.loaded == [
        (part, agent) for part in ("train", "valid") for agent in every
    ]
    plain = [multi_process_job.rows("train", "", agent) for agent in every]
    other = diamond.Problem(
        multi_process_job.upper, multi_process_job.lower, problem.init, plain, plain
    )
    assert problem.counts("train").tolist() == list(multi_process_job.COUNTS)
    for mine, theirs in zip(problem.rows["train"], other.rows["train"], strict=True):
        np.testing.assert_array_equal(mine["a"], theirs["a"])


def test_a_function_that_fails_names_its_agent():
    with pytest.raises(ValueError, match="agent 3's training rows cannot be loaded") as error:
        multi_process_job.problem("missing")
    assert isinstance(error.value.__cause__, FileNotFoundError)


def test_what_is_not_kept_is_known_but_refused(problem):
    few = problem.restricted_to([1, 3])
    assert few.loaded_agents == [1, 3] and few.agents == 5
    assert few.counts("train").tolist() == problem.counts("train").tolist()
    assert few.rows["train"].label_counts() == [None] * 5  # floats are no labels
    assert few.objectives(2, [3]).train.count.tolist() == [6]
    network, algorithm = diamond.network.ring(5), diamond.dsgd(0.1, 0.1, 2, neumann(2, 2.0))
    for devices in (None, 2):
        with pytest.raises(LookupError, match="agent 0's training rows are in another process"):
            diamond.simulate(few, network, algorithm, 1, devices=devices)


def test_labels_of_agents_elsewhere_stay_counted():
    rows = [{"b": np.array([0, 1, 1])}, {"b": np.array([7])}]
    loss = lambda x, y, rows: jnp.mean(rows["b"] * y) + jnp.sum((x - y) ** 2)
    problem = diamond.Problem(loss, loss, lambda key: (jnp.ones(1), jnp.ones(1)), rows, rows)
    assert problem.restricted_to([1]).rows["train"].label_counts() == [{0: 1, 1: 2}, {7: 1}]


class Device:
    def __init__(self, process):
        self.process_index = process


def test_copies_that_fill_the_last_places_belong_to_two_processes():
    devices = [Device(i // 2) for i in range(8)]
    whose = [
        AgentSharding(5, 8).agents_of_process(process, devices).tolist() for process in range(4)
    ]
    assert whose == [[0, 1], [2, 3], [4], [4]]


def test_what_processes_measure_is_put_in_the_order_of_the_agents(monkeypatch):
    whose = [np.array([0, 1, 2]), np.array([3]), np.array([3])]
    values = np.arange(8, dtype=np.float32).reshape(4, 2) / 3
    counts = np.array([10, 11, 12, 13])
    heard = lambda of: [of[agents].tobytes() for agents in whose]
    consensus, cost = GatherConsensus(whose), diamond.cost.Cost(samples=counts[:3], hvps=5)
    answers = iter([heard(values), heard(counts[:, None])])
    monkeypatch.setattr(_gather, "gather_messages", lambda message: next(answers))
    found, paid = consensus.local("mu", lambda: (values[:3], cost))
    np.testing.assert_array_equal(found, values)
    assert found.dtype == np.float32
    assert paid.samples.tolist() == counts.tolist() and paid.hvps == 5
    maximum = [values[agents].max(0).tobytes() for agents in whose]
    monkeypatch.setattr(_gather, "gather_messages", lambda message: maximum)
    found, _ = consensus.maximum("mu", lambda: (values[:3], diamond.cost.Cost()))
    np.testing.assert_array_equal(found, values[3])
