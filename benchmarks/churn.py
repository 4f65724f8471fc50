"""Sites that join, leave and are killed: `python benchmarks/churn.py`.

Four sites as processes over mutual TLS. A fifth joins at --join, the second leaves at --leave, and
whenever a site has made --kill more rounds, one is killed by SIGKILL and started again. Compared at
the end: x of every site with `diamond.simulate` of the same changes, and bit for bit with the same
sites without kills; the sums of trackers and of directions over the members at the end of every
epoch; and the objective of the sites that stay with the least one.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from churning_sites import LEAVES, NAMES, ChurningSites


def run_churn(folder: Path, options, kill: int | None) -> tuple[ChurningSites, float]:
    """The sites at the end of a run, and its seconds."""
    folder.mkdir()
    sites = ChurningSites(folder, options.rounds, options.join, options.leave, options.every)
    begun = time.monotonic()
    try:
        joined, left = sites.sign("joined", options.join), sites.sign("left", options.leave)
        sites.deliver(joined, "west")  # before it starts
        if kill is None:
            sites.deliver(left, "north")
        for name in NAMES:
            sites.start(name)
        actions = [(options.join, lambda: sites.deliver(left, "north"))]  # while it runs
        sites.wait(3600, kill, actions if kill else ())
    finally:
        sites.stop()
    return sites, time.monotonic() - begun


def main() -> None:
    """The figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--join", type=int, default=100)
    parser.add_argument("--leave", type=int, default=200)
    parser.add_argument("--kill", type=int, default=10, help="rounds between kills")
    parser.add_argument("--every", type=int, default=5, help="rounds between checkpoints")
    options = parser.parse_args()
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory() as place:
        undisturbed, undisturbed_seconds = run_churn(Path(place) / "undisturbed", options, None)
        print(f"without kills: {undisturbed_seconds:.0f} s", flush=True)
        sites, seconds = run_churn(Path(place) / "churn", options, options.kill)
        print(f"with {sites.kills} kills: {seconds:.0f} s", flush=True)
        run = sites.simulate()
        gap = max(
            np.abs(sites.x(name) - np.asarray(run.last_x)[i]).max() for i, name in enumerate(NAMES)
        )
        same = [
            name for name in NAMES if sites.results[name]["x"] == undisturbed.results[name]["x"]
        ]
        print(f"bits of the run without kills: {', '.join(same)}")
        print(f"largest difference of an x to simulate: {gap:.1e}")
        print(f"sum u - sum p at the end of the epochs: {sites.tracker_gaps()}")
        loss, least = run.history["upper_loss"][-1], sites.least_loss()
        print(f"objective without {LEAVES}: {loss:.12f}, least {least:.12f}")


if __name__ == "__main__":
    main()
