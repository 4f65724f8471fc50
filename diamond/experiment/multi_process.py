"""Runs in several processes: the first writes the folder, the others compute their agents."""

import json
import struct

import numpy as np

from ..engine import multi_host
from ..problem import Problem
from ..records import resolved_values
from ..records.checkpoint_content import Snapshot
from .jobs import Job

BEGIN, DONE = b"begin", b"done"


def start_followers(saved: Snapshot | None) -> None:
    """Broadcast to the other processes to start, or to resume from `saved`."""
    multi_host.broadcast(BEGIN if saved is None else pack(saved))


def dismiss_followers() -> None:
    """Broadcast to the other processes that no work is left."""
    multi_host.broadcast(DONE)


def run_follower(job: Job, problem: Problem) -> None:
    """Run the agents of this process in step with the first process, and write nothing."""
    command = multi_host.broadcast(None)
    if command == DONE:
        return
    job.simulate(
        problem,
        on_progress=lambda saved: None,  # gathers what the first process writes
        resume=None if command == BEGIN else unpack(command),
    )


def pack(saved: Snapshot) -> bytes:
    """Serialize the state that later rounds depend on."""
    from safetensors.numpy import save

    per_agent = {name: np.asarray(value).tolist() for name, value in saved.per_agent[-1].items()}
    fields = {"seconds": saved.seconds, "entry": saved.entries[-1], "own": per_agent}
    notes = json.dumps(fields | {"found": resolved_values.to_json(saved.resolved)}).encode()
    return struct.pack("<q", len(notes)) + notes + save(saved.arrays)


def unpack(data: bytes) -> Snapshot:
    """Restore the output of `pack`; its history has only the last evaluation."""
    from safetensors.numpy import load

    (length,) = struct.unpack_from("<q", data)
    notes = json.loads(data[8 : 8 + length])
    per_agent = {name: np.array(value) for name, value in notes["own"].items()}
    return Snapshot(
        load(data[8 + length :]),
        resolved_values.from_json(notes["found"]),
        notes["seconds"],
        [notes["entry"]],
        [per_agent],
    )
