"""Every fault over real processes and sockets, again and again: `faults.py --repeats 20`.

Three sites on a path, mutual TLS, every link through a proxy that can cut, stall, delay, double,
swap, truncate and corrupt; real SIGKILL and SIGSTOP; a damaged newest checkpoint. Each run must
end in the bits of the run without a fault. Prints a table, and exits with 1 if one did not. How
long sites wait, and are waited for, goes by what a run without a fault takes here.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from site_faults import LINK_FAULTS, PHASES, PROCESS_FAULTS, run_trial

USUAL = 6.0  # seconds that a run without a fault takes, all compiled, on a machine at rest


def main() -> None:
    """All cases, or those asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--kinds", nargs="*", default=[*PROCESS_FAULTS, *LINK_FAULTS])
    parser.add_argument("--phases", nargs="*", default=list(PHASES))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        calm, begun = trial(root, "calm", patience=10), time.perf_counter()
        assert calm == trial(root, "calm again", patience=10), "two runs without a fault differ"
        patience = max(1.0, (time.perf_counter() - begun) / USUAL)
        print(f"{patience:.1f} times as long as usual", flush=True)
        print(f"{'fault':<16}{'when':<12}{'the same bits':>14}{'s a run':>9}")
        bad = sum(
            repeated(root, calm, kind, phase, options.repeats, patience)
            for kind in options.kinds
            for phase in options.phases
        )
    sys.exit(bad > 0)


def repeated(
    root: Path, calm: list[str], kind: str, phase: str, repeats: int, patience: float
) -> int:
    """How many of the runs with that fault did not end as they should."""
    good, begun = 0, time.perf_counter()
    for n in range(repeats):
        try:
            good += trial(root, f"{kind} {phase} {n}", kind, phase, patience) == calm
        except Exception as error:
            print(f"{kind} {phase} {n}: {error!r}", file=sys.stderr)
    took = (time.perf_counter() - begun) / repeats
    print(f"{kind:<16}{phase:<12}{good:>8} of {repeats:<2}{took:>9.1f}", flush=True)
    return repeats - good


def trial(
    root: Path, name: str, kind: str = "", phase: str = "", patience: float = 1.0
) -> list[str]:
    """One run in a folder of its own."""
    (root / name).mkdir()
    return asyncio.run(run_trial(root / name, root / "cache", kind, phase, patience))


if __name__ == "__main__":
    main()
