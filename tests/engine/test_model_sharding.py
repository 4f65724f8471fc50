"""Sharding inside an agent: a mesh of agents x model on eight simulated devices."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import diamond
from diamond.engine.model_sharding import ModelSharding, partition_specs, spec_by_size
from tests.problem.test_networks_below import network_problem


def test_sharded_runs_equal_those_of_one_device():
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8"
    environment |= {"XLA_FLAGS": flags}
    environment |= {"JAX_ENABLE_X64": "0"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.engine.sharded_model_runs"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    results = json.loads(done.stdout)
    assert results["devices"] == 8
    for name, shard in {"size": [4, 4, 625], "specs": [2, 4, 1250]}.items():
        run = results[name]
        assert run["shard"] == shard
        assert run["difference"] < 1e-6 and run["losses"] < 1e-5 and run["resumed"] == 0
        assert all("model" in spec for spec in run["specs"])


def test_rule_by_size_takes_the_largest_axis_that_divides():
    leaf = lambda *shape: jax.ShapeDtypeStruct(shape, np.float32)
    assert spec_by_size(leaf(1024, 4096), 8) == PartitionSpec(None, "model")
    assert spec_by_size(leaf(4096, 1001), 8) == PartitionSpec("model")
    assert spec_by_size(leaf(1001, 1003), 8) == PartitionSpec()
    assert spec_by_size(leaf(8, 8), 8) == PartitionSpec()


def test_mistakes_name_the_remedy():
    y = {"w": jax.ShapeDtypeStruct((6, 8), np.float32)}
    with pytest.raises(ValueError, match="structure"):
        partition_specs([PartitionSpec()], y, 2, "y")
    with pytest.raises(ValueError, match="divide"):
        partition_specs({"w": PartitionSpec("model")}, y, 4, "y")
    with pytest.raises(ValueError, match="'size'"):
        partition_specs("rows", y, 4, "y")
    network, algorithm = diamond.network.complete(2), diamond.f2sa(batch=4, alpha=0.1, beta=0.1)
    with pytest.raises(ValueError, match="must divide"):
        diamond.simulate(network_problem(), network, algorithm, 1, shard=ModelSharding(agents=3))
    with pytest.raises(ValueError, match="ModelSharding"):
        diamond.simulate(network_problem(), network, algorithm, 1, shard="rows")
