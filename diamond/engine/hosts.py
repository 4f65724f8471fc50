"""Several processes, on one host or many, as one job: JAX's own runtime between them.

All processes run the same program; each has the agents of its own devices. Nothing is encrypted
and nobody is asked who they are: for networks you trust. A process that is lost ends the job, which
then goes on from its last checkpoint; for agents that come and go, see `diamond.engine.peers`.
"""

import numpy as np

PATIENCE = 10  # seconds without a sign of life after which a process counts as lost


def join(
    coordinator: str | None = None,
    rank: int | None = None,
    size: int | None = None,
    bind: str | None = None,
) -> None:
    """Make this process number `rank` of `size` that meet at `coordinator`, "host:port".

    To be called before anything is computed. Process 0 listens there, or at `bind`. What is not
    given is taken from the launcher (SLURM, Open MPI), as JAX reads it. Every process must be able
    to reach every other by the name of its host.
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


def first() -> bool:
    """Whether this process is the one that writes and speaks."""
    import jax

    return jax.process_index() == 0


def broadcast(message: bytes | None) -> bytes:
    """What process 0 says, on every process."""
    from jax.experimental.multihost_utils import broadcast_one_to_all

    said = np.frombuffer(message or b"", np.uint8)
    length = int(broadcast_one_to_all(np.int32(len(said))))
    padded = np.zeros(length, np.uint8) if len(said) != length else said
    return np.asarray(broadcast_one_to_all(padded)).tobytes()
