"""Runs with y sharded over eight simulated devices, beside runs on one device (a subprocess)."""

import json
import sys

import jax
import numpy as np
from jax.sharding import PartitionSpec

import diamond
from diamond.engine import model_sharding
from diamond.engine.model_sharding import ModelSharding
from tests.problem.test_networks_below import network_problem


def largest_difference(a, b):
    pairs = zip(
        jax.tree.leaves((a.last_x, a.last_y)), jax.tree.leaves((b.last_x, b.last_y)), strict=True
    )
    return max(float(np.abs(np.asarray(u) - np.asarray(v)).max()) for u, v in pairs)


def main() -> None:
    model_sharding.LEAST_BYTES = 0
    results = {"devices": len(jax.devices())}
    problem = network_problem(width=5_000, agents=4)
    assert problem.is_large
    network = diamond.network.ring(4)
    algorithm = diamond.f2sa(batch=4, alpha=1e-3, beta=1e-4)
    one = diamond.simulate(problem, network, algorithm, 8, every=4)
    rule = ModelSharding(
        y={"v": PartitionSpec("model"), "w": PartitionSpec(None, "model")}, agents=2
    )
    for name, shard in {"size": "size", "specs": rule}.items():
        run = diamond.simulate(problem, network, algorithm, 8, every=4, shard=shard)
        losses = np.abs(run.history["upper_loss"] - one.history["upper_loss"]).max()
        part = run.last_y["w"].addressable_shards[0].data.shape
        state = {
            str(leaf.sharding.spec)
            for leaf in jax.tree.leaves(run.state)
            if leaf.shape == run.last_y["w"].shape
        }
        results[name] = {
            "difference": largest_difference(one, run),
            "losses": float(losses),
            "shard": part,
            "specs": sorted(state),
        }
        resumed = diamond.simulate(problem, network, algorithm, 4, every=4, shard=shard)
        resumed = diamond.simulate(
            problem, network, algorithm, 8, every=4, shard=shard, resume=resumed
        )
        results[name]["resumed"] = largest_difference(run, resumed)
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
