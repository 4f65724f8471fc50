"""What run folders and the report take of a comparison of ten runs of a few seconds each.

    python benchmarks/run_folders.py [--small]

Nine agents on the embedded digits, DIAMOND from ten seeds, an evaluation every 25 rounds, as
`diamond compare` runs them. Counted: everything that writes or reads the folders (metrics,
manifest, checkpoints, digest) and the building of report.html, beside computing and compiling.
"""

import sys
import tempfile
import time
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path

from diamond.config.experiment_file import validate
from diamond.experiment import execution, job_runner
from diamond.metrics.display import QuietDisplay
from diamond.report import build
from diamond.templates import demo_experiment

SEEDS, ROUNDS = (2, 50) if "--small" in sys.argv else (10, 400)
METHODS = ("__init__", "begin", "update_manifest", "record_snapshot", "restore", "final_digest")
FUNCTIONS = {
    "initial_manifest": execution,
    "final_fields": execution,
    "check_unchanged": execution,
    "finished_manifest": job_runner,
}


class Stopwatch:
    """Seconds by name; what is called inside what is already counted is not counted again."""

    def __init__(self):
        self.seconds, self.inside = defaultdict(float), False

    @contextmanager
    def counting(self, name):
        if self.inside:
            yield
            return
        self.inside, begun = True, time.perf_counter()
        try:
            yield
        finally:
            self.inside = False
            self.seconds[name] += time.perf_counter() - begun

    def around(self, owner, name):
        """Count every call of `owner.name`."""
        real = getattr(owner, name)

        def counted(*arguments, **options):
            with self.counting(name):
                return real(*arguments, **options)

        setattr(owner, name, counted)


def main():
    watch = Stopwatch()
    for name in METHODS:
        watch.around(execution.Writer, name)
    for name, module in FUNCTIONS.items():
        watch.around(module, name)
    settings = demo_experiment.experiment_tables() | {
        "rounds": ROUNDS,
        "every": 25,
        "seed": list(range(SEEDS)),
    }
    settings |= {"algorithm": demo_experiment.algorithm_table("DIAMOND")}
    with tempfile.TemporaryDirectory() as folder:
        plan = job_runner.plan_comparison(
            validate(settings, Path(), "the benchmark"), Path(folder), ""
        )
        job_runner.write_comparison_file(plan)
        begun = time.perf_counter()
        plan.execute(QuietDisplay([job.name for job, _ in plan.jobs], ROUNDS))
        with watch.counting("report"):
            build([plan.path], plan.path / "report.html")
        total_seconds = time.perf_counter() - begun
    print(f"{SEEDS} runs of {ROUNDS} rounds: {total_seconds:.1f} s, of which")
    for name, seconds in sorted(watch.seconds.items(), key=lambda item: -item[1]):
        print(f"  {name:17} {1000 * seconds:7.1f} ms  {seconds / total_seconds:6.2%}")
    total = sum(watch.seconds.values())
    print(f"  {'together':17} {1000 * total:7.1f} ms  {total / total_seconds:6.2%}")


if __name__ == "__main__":
    sys.exit(main())
