"""Runs in several processes: the first writes the folder, the others compute their agents."""

import json
import struct

import numpy as np

from ..engine import multi_host
from ..engine.simulate import simulate
from ..problem import Problem
from ..records import resolved_values
from ..records.snapshot import Snapshot
from .jobs import Job

BEGIN, DONE = b"begin", b"done"


def lead(saved: Snapshot | None) -> None:
    """Broadcast to the other processes to start, or to resume from `saved`."""
    multi_host.broadcast(BEGIN if saved is None else pack(saved))


def dismiss() -> None:
    """Broadcast to the other processes that no work is left."""
    multi_host.broadcast(DONE)


def follow(job: Job, problem: Problem) -> None:
    """Run the agents of this process in step with the first process, and write nothing."""
    said = multi_host.broadcast(None)
    if said == DONE:
        return
    one = job.experiment
    simulate(
        problem,
        one.network[0].build(),
        one.algorithm[0].build(),
        one.rounds,
        one.seed[0],
        one.every,
        one.sampling,
        stop=one.stop,
        on_divergence=one.on_divergence,
        on_progress=lambda saved: None,  # gathers what the first process writes
        resume=None if said == BEGIN else unpack(said),
        devices=one.devices,
        precision=one.products,
        measure=one.measure,
    )


def pack(saved: Snapshot) -> bytes:
    """Serialize the state that later rounds depend on."""
    from safetensors.numpy import save

    own = {name: np.asarray(value).tolist() for name, value in saved.own[-1].items()}
    last = {"seconds": saved.seconds, "entry": saved.entries[-1], "own": own}
    notes = json.dumps(last | {"found": resolved_values.to_json(saved.found)}).encode()
    return struct.pack("<q", len(notes)) + notes + save(saved.arrays)


def unpack(said: bytes) -> Snapshot:
    """Restore the output of `pack`; its history has only the last evaluation."""
    from safetensors.numpy import load

    (length,) = struct.unpack_from("<q", said)
    notes = json.loads(said[8 : 8 + length])
    own = {name: np.array(value) for name, value in notes["own"].items()}
    past = [notes["entry"]], [own]
    return Snapshot(
        load(said[8 + length :]),
        resolved_values.from_json(notes["found"]),
        notes["seconds"],
        *past,
    )
