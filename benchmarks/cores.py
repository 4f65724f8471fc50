"""The reference work on one core, on several, and in several processes of one core each.

    python benchmarks/cores.py [--cores 2 4] [--agents 8 16]

The work of benchmarks/speed.py (123 features, 16,000 + 16,000 rows an agent, batch 64, K = 10) on a
ring. Each line is a fresh process, or several, bound to as many cores; best of three warm runs.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path


def child(agents, devices, rank, size, address):
    """The agent-iterations a second of this process's job."""
    os.environ["JAX_NUM_CPU_DEVICES"] = str(max(devices, 1))
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    from diamond.engine import multi_host

    if size > 1:
        multi_host.join(address, rank, size)
    import jax
    import jax.numpy as jnp
    import speed

    import diamond
    from diamond.core.sampling import key
    from diamond.engine.backend_selection import select_backend
    from diamond.engine.round_program import initial_progress

    work, network = speed.problem(agents), diamond.network.ring(agents)
    alpha = diamond.schedules.power(0.1)
    eta = diamond.schedules.squared(0.1, alpha)
    chain = diamond.hypergradient.neumann(10, 1.0)
    method = diamond.diamond(alpha, alpha, eta, eta, 64, chain, order="paper")
    algorithm = jax.tree.map(jnp.asarray, method)
    backend = select_backend(
        work, network, 64, "blocks", devices="all" if devices or size > 1 else None
    )
    progress = backend.scatter_progress(initial_progress(algorithm, *work.start(0), agents))
    rounds, times = 8000 // agents, []
    for _ in range(4):
        started = time.perf_counter()
        backend.run_until(algorithm, key(0), progress, rounds)
        times.append(time.perf_counter() - started)
    if rank == 0:
        print(json.dumps(rounds * agents / min(times[1:])))


def job(agents, cores, devices, size):
    """One job of `size` processes, `cores` cores each, and their agent-iterations a second."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    cores_available = sorted(os.sched_getaffinity(0))
    command = [sys.executable, __file__, "--child", str(agents), str(devices)]
    folder = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": f"{folder.parent}:{folder}"}
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(size), address],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            preexec_fn=lambda cores_of_rank=cores_available[rank * cores : (rank + 1) * cores]: (
                os.sched_setaffinity(0, cores_of_rank)
            ),
        )
        for rank in range(size)
    ]
    outputs = [process.communicate()[0] for process in processes]
    return json.loads(outputs[0].strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--child", nargs=5)
    parser.add_argument("--cores", nargs="*", type=int, default=[2])
    parser.add_argument("--agents", nargs="*", type=int, default=[8, 16])
    options = parser.parse_args()
    if options.child:
        agents, devices, rank, size, address = options.child
        return child(int(agents), int(devices), int(rank), int(size), address)
    print(__doc__.splitlines()[0])
    print("agents   where                   agent-it/s   times one core")
    for agents in options.agents:
        single_core_rate = job(agents, 1, 0, 1)
        lines = [("one core", single_core_rate)]
        for cores in options.cores:
            lines.append((f"{cores} cores", job(agents, cores, cores, 1)))
            lines.append((f"{cores} processes", job(agents, 1, 1, cores)))
        for label, rate in lines:
            print(
                f"{agents:6d}   {label:20} {rate:13.0f} {rate / single_core_rate:16.2f}", flush=True
            )


if __name__ == "__main__":
    main()
