"""All suites of docs/results/benchmark.md in one pool: `python benchmarks/all_suites.py`.

Writes a folder a suite for `benchmarks/leaderboard.py`. An interrupted command continues when it is
repeated; `--minutes` begins no pair of case and method later. Suites end at different times, so one
pool for all leaves no core waiting for the last pair of a suite.
"""

import argparse
import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path

from diamond.bench.run_suite import run_pair, run_suite
from diamond.bench.suite_results import collect_results, write_results
from diamond.bench.suites import Suite, load_suite
from diamond.hardware.cores import available_cores, pinned_process_pool

SUITES = "unseen", "personal", "common", "one-agent", "links"
COMPARED_APART = "solve"  # in benchmarks/solve.py, at every round
LONGEST = {"network-below": 0, "aid": 1, "itd": 1, "vrbo": 1}  # cases and methods to begin with


def load(name: str, seeds: int) -> Suite:
    """The suite without the method that is compared apart."""
    methods = tuple(method for method in load_suite(name).methods if method != COMPARED_APART)
    return load_suite(name, methods=methods, seeds=seeds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suites", nargs="*", default=SUITES)
    parser.add_argument("--folder", type=Path, default=Path("bench"))
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--processes", type=int, default=len(available_cores()))
    parser.add_argument("--minutes", type=float, default=float("inf"))
    options = parser.parse_args()
    start, limit = time.monotonic(), 60 * options.minutes
    suites = {name: load(name, options.seeds) for name in options.suites}
    pairs = [(name, case.name, method) for name in suites for case, method in suites[name].pairs]
    pairs.sort(key=lambda pair: min(LONGEST.get(part, 2) for part in pair))
    waiting = [pair for pair in pairs if not finished_file(options.folder, pair).exists()]
    running: dict[Future[object], tuple[str, str, str]] = {}
    total = len(waiting)
    with pinned_process_pool(options.processes) as workers:
        while running or (waiting and time.monotonic() - start < limit):
            while waiting and len(running) < options.processes:
                if time.monotonic() - start > limit:
                    break
                pair = waiting.pop(0)
                suite, case, method = suites[pair[0]], *pair[1:]
                job = suite.source, dict(suite.changes), case, method, options.folder / suite.name
                running[workers.submit(run_pair, *job)] = pair
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                future.result()
                pair = running.pop(future)
                finished_file(options.folder, pair).parent.mkdir(exist_ok=True)
                finished_file(options.folder, pair).touch()
                seconds = time.monotonic() - start
                print(f"{seconds:.0f} s, {total - len(waiting)} of {total}: {' '.join(pair)}")
    for name, suite in suites.items():
        if all(finished_file(options.folder, pair).exists() for pair in pairs if pair[0] == name):
            folder = options.folder / name
            results = run_suite(suite, folder, options.processes)  # from the files of its trials
            write_results(folder, collect_results(suite, results, options.processes))
            print(f"{name}: {folder}")


def finished_file(folder: Path, pair: tuple[str, str, str]) -> Path:
    """The file that says that a pair is complete."""
    return folder / pair[0] / "finished" / f"{pair[1]}-{pair[2]}"


if __name__ == "__main__":
    main()
