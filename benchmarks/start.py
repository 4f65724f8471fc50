"""What is compiled before the first answer: which programs, how often, how long.

    python benchmarks/start.py [readme] [demo] [run] [check]

Each is run three times, in a process of its own: first to leave its programs in a cache of its own,
and Python's bytecode where an installation has it; then without the cache, and then with it:
processor seconds, wall seconds, number of programs, and the largest of them. The table of
docs/results/speed.md. Take an idle machine.
"""

import json
import logging
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
LARGEST = 6


def readme() -> None:
    """The example of the README, as it stands there."""
    text = (ROOT / "README.md").read_text()
    exec(re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1), {})


def demo() -> None:
    """`diamond demo`, four methods."""
    from diamond.cli import app

    app(["demo"], standalone_mode=False)


SMALL = """rounds = 200
network = "ring:5"
problem = {kind = "quadratic", agents = 5}
[algorithm]
name = "diamond"
batch = 4
"""


def run() -> None:
    """`diamond run` of a small file with learned steps."""
    from diamond.cli import app

    Path("small.toml").write_text(SMALL)
    app(["run", "small.toml", "--quiet"], standalone_mode=False)


def check() -> None:
    """`diamond check` of the same file."""
    from diamond.cli import app

    Path("small.toml").write_text(SMALL)
    app(["check", "small.toml"], standalone_mode=False)


CASES = {"readme": readme, "demo": demo, "run": run, "check": check}


class Compilations(logging.Handler):
    """Seconds of every program, by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds_by_program: dict[str, list[float]] = defaultdict(list)

    def emit(self, record: logging.LogRecord) -> None:
        match = re.match(r"Finished XLA compilation of (.*) in ([\d.e-]+) sec", record.getMessage())
        if match:
            self.seconds_by_program[match[1]].append(float(match[2]))


def inside(case: str) -> None:
    """One case, in this process; what it took is the last line."""
    started = time.perf_counter()
    import jax

    jax.config.update("jax_log_compiles", True)
    for name in ("dispatch", "interpreters.pxla", "compiler"):
        logging.getLogger(f"jax._src.{name}").propagate = False
    compilations = Compilations()
    logging.getLogger("jax._src.dispatch").addHandler(compilations)
    warnings.simplefilter("ignore")
    CASES[case]()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    times = {"wall": time.perf_counter() - started, "cpu": usage.ru_utime + usage.ru_stime}
    print(json.dumps(times | {"programs": compilations.seconds_by_program}))


def measure(case: str, folder: str, cache: str) -> dict:
    """One case, in a process of its own."""
    command = [sys.executable, __file__, "--inside", case]
    env = os.environ | {"DIAMOND_CACHE": cache}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    process = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, check=True
    )
    return json.loads(process.stdout.splitlines()[-1])


def main(cases: list[str]) -> None:
    print("| what | processor s | wall s | programs | largest, s | again: processor s | wall s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            cache = str(Path(folder) / "cache")
            measure(case, folder, cache)
            cold, warm = measure(case, folder, "off"), measure(case, folder, cache)
        programs = {name: sum(seconds) for name, seconds in cold["programs"].items()}
        largest = sorted(programs.items(), key=lambda entry: -entry[1])[:LARGEST]
        largest_text = ", ".join(f"{n[4:-1]} {seconds:.1f}" for n, seconds in largest)
        count = sum(len(seconds) for seconds in cold["programs"].values())
        print(
            f"| {case} | {cold['cpu']:.1f} | {cold['wall']:.1f} | {count} | {largest_text} | "
            f"{warm['cpu']:.1f} | {warm['wall']:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2])
    else:
        main(sys.argv[1:] or list(CASES))
