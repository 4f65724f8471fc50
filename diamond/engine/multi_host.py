"""Several processes, on one host or many, as one job in JAX's distributed runtime.

All processes run the same program; each has the agents of its own devices. Nothing is encrypted or
authenticated: use trusted networks only. If a process is lost the job ends, and can resume from its
last checkpoint. For agents that come and go, see `diamond.engine.site_run`.
"""

import numpy as np

PATIENCE = 10  # seconds without a heartbeat after which a process counts as lost


def join(
    coordinator: str | None = None,
    rank: int | None = None,
    size: int | None = None,
    bind: str | None = None,
) -> None:
    """Make this process number `rank` of `size` that meet at `coordinator`, "host:port".

    Call this before anything is computed. Process 0 listens at `coordinator`, or at `bind`.
    Arguments that are None come from the launcher (SLURM, Open MPI), as JAX reads them. Every
    process must be able to reach every other by host name.
    """
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        coordinator,
        size,
        rank,
        coordinator_bind_address=bind or coordinator,
        heartbeat_timeout_seconds=PATIENCE,
        shutdown_timeout_seconds=PATIENCE,
    )


def is_first_process() -> bool:
    """Return whether this process writes files and messages."""
    import jax

    return jax.process_index() == 0


def broadcast(message: bytes | None) -> bytes:
    """Send `message` of process 0 to every process."""
    from jax.experimental.multihost_utils import broadcast_one_to_all

    content = np.frombuffer(message or b"", np.uint8)
    length = int(broadcast_one_to_all(np.int32(len(content))))
    padded = np.zeros(length, np.uint8) if len(content) != length else content
    return np.asarray(broadcast_one_to_all(padded)).tobytes()
