"""Eight sites as processes, one ten times slower: `python benchmarks/stragglers.py`.

Three runs of the same federation on a ring, GT-SGD with given steps:

    all fast      every site takes --work seconds a round
    waits         one takes --slowness times as long, and all wait for it
    deadline      the same with missing = "continue" and the deadline

The target is the objective that leaves 10 % of the decrease of the run without a slow site. Seconds
are those of the slowest of the fast sites. The objective of the run with a deadline, the mean of
f_i at the mean x, is that of its replay by `diamond.simulate` with the links of the journals; the
largest difference of an x of the sites to the replay stands beside it.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from slow_sites import SLOW, run_sites, simulate


def seconds_to(target: float, run, times: list[dict]) -> float:
    """Seconds until the objective is at most the target, by the slowest of these sites."""
    reached = run.history["round"][run.history["upper_loss"] <= target]
    return max(own[int(reached[0])] for own in times) if len(reached) else np.inf


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--work", type=float, default=0.1)
    parser.add_argument("--slowness", type=float, default=10)
    parser.add_argument("--order", default="paper")
    parser.add_argument("--deadline", default='"1.5 median"')
    parser.add_argument("--waits", action="store_true", help="also the run that waits")
    options = parser.parse_args()
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    every, fast = 5, [options.work] * options.sites
    slow = [options.work * (options.slowness if i == SLOW else 1) for i in range(options.sites)]
    fixed = options.rounds, every, options.order
    terms = f'missing = "continue"\ndeadline = {options.deadline}'
    cases = [("all fast", fast, ""), ("deadline", slow, terms)]
    cases += [("waits", slow, "")] * options.waits
    calm, _ = simulate(options.sites, *fixed)
    losses = calm.history["upper_loss"]
    target = losses[-1] + 0.1 * (losses[0] - losses[-1])
    print(f"{'run':>10}{'to target':>11}{'all rounds':>12}{'objective':>11}{'x - replay':>12}")
    for name, seconds, more in cases:
        with tempfile.TemporaryDirectory() as root:
            folders, times, x = run_sites(Path(root) / "run", seconds, *fixed, more)
            is_late = bool(more)
            run, network = simulate(options.sites, *fixed, folders) if is_late else (calm, None)
            times = [own for i, own in enumerate(times) if i != SLOW]
            spent = seconds_to(target, run, times), max(own[options.rounds] for own in times)
            objective, states = run.history["upper_loss"][-1], run.state.x
        difference = np.abs(x - states).max()
        print(f"{name:>10}{spent[0]:>11.2f}{spent[1]:>12.2f}{objective:>11.5f}{difference:>12.1e}")
        if network is not None:
            rests = [sum(i in p.skipping for p in network.phases) for i in range(options.sites)]
            print(f"{'':>10} rounds skipped by each site: {rests}", flush=True)


if __name__ == "__main__":
    main()
