"""Eight sites as processes, one ten times slower: `python benchmarks/stragglers.py`.

Runs of the same federation on a ring, GT-SGD with given steps:

    all fast        every site takes --work seconds a round
    waits           one takes --slowness times as long, and all wait for it
    deadline        the same with missing = "continue" and the deadline
    asynchronous    the same with missing = "asynchronous", with and without the slow site

The target is the objective that leaves 10 % of the decrease of the run without a slow site. The
objective is the mean of f_i at the mean x. In rounds that all sites count alike, seconds are those
of the slowest of the fast sites. In asynchronous rounds they are those at which the mean of the x
that all sites have at that moment reaches the target. States are those of a simulation: with a
deadline with the links of the journals, and of asynchronous rounds with their versions; the largest
difference of an x of the sites to it stands beside it.

`--simulated` takes the asynchronous runs from a clock instead of processes, in rounds of a fast
site: rounds differ by 3 %, and a message takes 2 % of one.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from slow_sites import SLOW, objective, read_versions, replay_sites, run_sites, simulate

ASYNCHRONOUS = 'missing = "asynchronous"'


def seconds_to(target: float, run, times: list[dict]) -> float:
    """Seconds until the objective is at most the target, by the slowest of these sites."""
    reached = run.history["round"][run.history["upper_loss"] <= target]
    return max(own[int(reached[0])] for own in times) if len(reached) else np.inf


class Trajectory:
    """The x of each site after each of its rounds, as the replay has them."""

    def __init__(self, sites: int):
        self.x = [list[np.ndarray]() for _ in range(sites)]

    def record(self, site: int, progress) -> None:
        """Record the x of a site after a round."""
        self.x[site].append(np.asarray(progress.state.x, float))

    def seconds_to(self, target: float, times: list[dict]) -> tuple[float, float]:
        """Seconds until the mean x has an objective of at most the target, and the last one."""
        rounds = [np.interp(range(len(x)), [*t], [*t.values()]) for x, t in zip(self.x, times)]
        for moment in np.unique(np.concatenate(rounds)):
            last = [max(int((own <= moment).sum()) - 1, 0) for own in rounds]
            value = objective(np.mean([x[t] for x, t in zip(self.x, last)], 0), len(last))
            if value <= target:
                break
        else:
            moment = np.inf
        return moment, objective(np.mean([x[-1] for x in self.x], 0), len(self.x))


def simulate_pace(rounds: int, seconds: list[float], order: str) -> tuple[list, list[dict]]:
    """The versions that sites of this pace use until the first have run all rounds, and times."""
    random, count = np.random.default_rng(0), len(seconds)
    ends = [
        random.uniform(0, 0.5) + np.cumsum(pace * (1 + 0.03 * random.normal(size=rounds)))
        for pace in seconds
    ]
    stop = max(own[-1] for own, pace in zip(ends, seconds) if pace == min(seconds))
    ends = [own[own <= stop] for own in ends]
    # In the paper's order a message leaves at the start of its round, else at the end.
    sent = [np.concatenate([[0.0], own[:-1]]) if order == "paper" else own for own in ends]
    arrived = lambda j, t: max(int((sent[j] + 0.02 <= t).sum()) - 1, 0)
    versions = [
        [{j: arrived(j, t) for j in sorted({(i - 1) % count, (i + 1) % count})} for t in own]
        for i, own in enumerate(ends)
    ]
    return versions, [{0: 0.0} | dict(enumerate(map(float, own), 1)) for own in ends]


def print_simulated(count: int, fixed: tuple, slowness: float, target: float) -> None:
    """The rows of asynchronous runs on a clock."""
    rounds, every, order = fixed
    for slow in (1.0, slowness):
        pace = [slow if i == SLOW else 1.0 for i in range(count)]
        (versions, times), trajectory = simulate_pace(rounds, pace, order), Trajectory(count)
        replay_sites(count, every, order, versions, trajectory.record)
        reached, value = trajectory.seconds_to(target, times)
        print(
            f"{f'slow site {slow:g} times':>22}{reached:>11.1f}{'':>12}{value:>11.5f}", flush=True
        )


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--work", type=float, default=0.1)
    parser.add_argument("--slowness", type=float, default=10)
    parser.add_argument("--order", default="paper")
    parser.add_argument("--deadline", default='"1.5 median"')
    parser.add_argument("--simulated", action="store_true", help="asynchronous runs on a clock")
    parser.add_argument("--only", nargs="*", help="these runs alone")
    options = parser.parse_args()
    every, fast = 5, [options.work] * options.sites
    slow = [options.work * (options.slowness if i == SLOW else 1) for i in range(options.sites)]
    count, fixed = options.sites, (options.rounds, every, options.order)
    cases = {"all fast": (fast, ""), "asynchronous, all fast": (fast, ASYNCHRONOUS)}
    terms = f'missing = "continue"\ndeadline = {options.deadline}'
    cases |= {"asynchronous": (slow, ASYNCHRONOUS), "deadline": (slow, terms), "waits": (slow, "")}
    undisturbed, _ = simulate(count, *fixed)
    losses = undisturbed.history["upper_loss"]
    target = losses[-1] + 0.1 * (losses[0] - losses[-1])
    print(f"{len(os.sched_getaffinity(0))} cores; the target is {target:.5f}")
    print(f"{'run':>22}{'to target':>11}{'all rounds':>12}{'objective':>11}{'x - replay':>12}")
    if options.simulated:
        reached = undisturbed.history["round"][losses <= target][0]
        print(f"{'rounds in step':>22}{reached:>11}{'':>12}{losses[-1]:>11.5f}")
        return print_simulated(count, fixed, options.slowness, target)
    for name in options.only or cases:
        seconds, more = cases[name]
        with tempfile.TemporaryDirectory() as root:
            folders, times, x = run_sites(Path(root) / "run", seconds, *fixed, more)
            run, network, trajectory = undisturbed, None, Trajectory(count)
            if more == ASYNCHRONOUS:
                versions = read_versions(folders)
                replay_sites(count, every, options.order, versions, trajectory.record)
            elif more:
                run, network = simulate(count, *fixed, folders)
        others = [own for i, own in enumerate(times) if i != SLOW]
        spent = max(own[max(own)] for own in others)
        if more == ASYNCHRONOUS:
            reached, value = trajectory.seconds_to(target, times)
            states = np.stack([own[-1] for own in trajectory.x])
        else:
            reached, value = seconds_to(target, run, others), run.history["upper_loss"][-1]
            states = run.state.x
        numbers = f"{reached:>11.2f}{spent:>12.2f}{value:>11.5f}{np.abs(x - states).max():>12.1e}"
        print(f"{name:>22}{numbers}  (load {os.getloadavg()[0]:.1f})", flush=True)
        if more == ASYNCHRONOUS:
            print(f"{'':>22} rounds of each site: {[max(own) for own in times]}", flush=True)
        elif network is not None:
            rests = [sum(i in p.skipping for p in network.phases) for i in range(count)]
            print(f"{'':>22} rounds skipped by each site: {rests}", flush=True)


if __name__ == "__main__":
    main()
