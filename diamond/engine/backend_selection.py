"""Selection of the backend of a run."""

from typing import Literal

from ..core.exclusions import check_combination
from ..core.sampling import Sampling
from ..network import Network
from ..problem import Problem
from .model_sharding import ModelSharding, ShardedModel
from .multi_device import Devices, MultiDevice
from .precision import Precision
from .single_device import SingleDevice


def select_backend(
    problem: Problem,
    network: Network,
    batch: int,
    sampling: Sampling,
    *,
    devices: Devices | None,
    precision: Precision | None = None,
    memory: int | Literal["least"] | None = None,
    shard: Literal["size"] | ModelSharding | None = None,
) -> SingleDevice | MultiDevice:
    """Select a backend: one device, agents sharded over `devices`, or y of each agent sharded.

    `memory` is the number of bytes that the run may use on each device; None: all. "least": agents
    with a large y work one after another.
    """
    inputs = problem, network, batch, sampling
    used = {"several devices": devices is not None, "sharded models": shard is not None}
    check_combination(used | {"memory='least'": memory == "least"}, "this run")
    if devices is None and shard is None:
        return SingleDevice(*inputs, precision, memory)
    assert memory != "least"
    if shard is not None:
        if not isinstance(shard, ModelSharding):
            if shard != "size":
                raise ValueError(f"shard = {shard!r}; give 'size' or a ModelSharding")
            shard = ModelSharding()
        places = "all" if devices is None else devices
        return ShardedModel(*inputs, shard, places, precision, memory)
    assert devices is not None
    return MultiDevice(*inputs, devices, precision, memory=memory)
