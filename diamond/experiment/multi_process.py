"""A run by several processes: the first writes it down, the others carry the other agents."""

import json
import struct

import numpy as np

from ..engine import hosts
from ..engine.simulate import simulate
from ..problem import Problem
from ..runs import resolved_numbers
from ..runs.snapshot import Snapshot
from .jobs import Job

BEGIN, DONE = b"begin", b"done"


def lead(saved: Snapshot | None) -> None:
    """Tell the others to begin, or to go on from `saved`."""
    hosts.broadcast(BEGIN if saved is None else pack(saved))


def dismiss() -> None:
    """Tell the others that there is nothing left to do."""
    hosts.broadcast(DONE)


def follow(job: Job, problem: Problem) -> None:
    """Do what the first process does, with the agents of this one, and write nothing."""
    said = hosts.broadcast(None)
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
    """What the rounds to come depend on, as bytes."""
    from safetensors.numpy import save

    own = {name: np.asarray(value).tolist() for name, value in saved.own[-1].items()}
    last = {"seconds": saved.seconds, "entry": saved.entries[-1], "own": own}
    notes = json.dumps(last | {"found": resolved_numbers.to_json(saved.found)}).encode()
    return struct.pack("<q", len(notes)) + notes + save(saved.arrays)


def unpack(said: bytes) -> Snapshot:
    """What `pack` packed; of the history, the last evaluation: the rest stays with the first."""
    from safetensors.numpy import load

    (length,) = struct.unpack_from("<q", said)
    notes = json.loads(said[8 : 8 + length])
    own = {name: np.array(value) for name, value in notes["own"].items()}
    past = [notes["entry"]], [own]
    return Snapshot(
        load(said[8 + length :]),
        resolved_numbers.from_json(notes["found"]),
        notes["seconds"],
        *past,
    )
