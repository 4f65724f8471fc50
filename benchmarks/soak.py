"""A thousand rounds with a site killed every few seconds: `python benchmarks/soak.py [ROUNDS]`.

Three sites, or so many as `--sites` says, on a path, as real processes over mutual TLS. All but the
first are killed in turns and started again at once; the first one is left alone, and its open files
and memory are watched. The end must have the bits of the run without kills; exits with 1 if it has
not, or if the first site mostly has more open files in the second half than in the first (one that
is being written is open for a moment), or 5 % more memory. `--calm`: no kills, for memory alone. A
run too short for ten looks at the first site, one a second from its first checkpoint on, says
nothing of open files and memory.
"""

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from site_faults import NAMES, Site, Trial

PAUSES = 5.0, 9.0  # seconds between two kills
EVERY = 20
PATIENCE = 10  # times as long as usual that anything may take
GROWTH = 1.05  # of memory from the first half to the second, at most
LOOKS = 10  # fewer at open files and memory do not tell a leak from a start


async def main(rounds: int, names: list[str], kills: bool) -> bool:
    """Whether all went well."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        started = time.perf_counter()
        end, deaths, seen = await run(root, "soak", rounds, names, kills)
        seconds = time.perf_counter() - started
        undisturbed = (await run(root, "calm", rounds, names, False))[0] if kills else end
    print(f"{rounds} rounds, {len(names)} sites, {deaths} kills, {seconds:.0f} s", end="")
    print(f"; the same bits: {end == undisturbed}" if kills else "")
    return is_steady(seen) and end == undisturbed


def is_steady(seen: list[tuple[int, float]]) -> bool:
    """Whether open files and memory do not grow, as far as so many looks can tell."""
    if len(seen) < LOOKS:
        print(f"open files and memory: not judged, {len(seen)} looks are fewer than {LOOKS}")
        return True
    files, memory = zip(*seen)
    half = len(seen) // 2  # the second half must not have more
    growth = max(memory[half:]) / max(memory[:half])
    usual_before, usual_after = map(statistics.median_low, (files[:half], files[half:]))
    print(f"the site left alone, once a second: open files {min(files)} to {max(files)}, ", end="")
    print(f"mostly {usual_before} in the first half and {usual_after} in the second, ", end="")
    print(f"at the end {files[-1]}; memory {max(memory[:half]):.0f} MB at most in the first half, ")
    print(f"{max(memory[half:]):.0f} MB in the second")
    return usual_after <= usual_before and growth <= GROWTH


async def run(
    root: Path, name: str, rounds: int, names: list[str], kills: bool
) -> tuple[list[str], int, list]:
    """The digests of x at the end, the kills, and what was seen of the first site."""
    (root / name).mkdir()
    terms = {"rounds": rounds, "every": EVERY}
    async with Trial(root / name, root / "cache", terms, PATIENCE, names) as trial:
        for site in trial.sites.values():
            await site.start()
        first, *others = trial.sites.values()
        watching = asyncio.ensure_future(watch(first))
        deaths = await kill_in_turns(others, first) if kills else 0
        ends = [await site.wait_for_end(120 + rounds) for site in trial.sites.values()]
        seen = await watching
    assert [end["round"] for end in ends] == [rounds] * len(names)
    return [end["x"] for end in ends], deaths, seen


async def kill_in_turns(victims: list[Site], until: Site) -> int:
    """Kills in turns until a checkpoint of the last rounds is there; how many."""
    chance, deaths = random.Random(0), 0
    while True:
        await asyncio.sleep(chance.uniform(*PAUSES))
        victim = victims[deaths % len(victims)]
        if until.process.returncode is not None or victim.process.returncode is not None:
            return deaths
        await victim.kill()
        deaths += 1
        await victim.start()


async def watch(site: Site) -> list[tuple[int, float]]:
    """Open files and MB of the site's process, every second from its first checkpoint on."""
    seen, folder = [], Path(f"/proc/{site.process.pid}")
    while site.process.returncode is None:
        try:
            pages = int((folder / "statm").read_text().split()[1])
            if any(site.folder.glob("checkpoint/*.json")):
                seen.append((len(list((folder / "fd").iterdir())), pages * 4096 / 1e6))
        except OSError:
            break
        await asyncio.sleep(1.0)
    return [entry for entry in seen if entry[0]]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rounds", type=int, nargs="?", default=1000)
    parser.add_argument("--sites", type=int, default=len(NAMES))
    parser.add_argument("--calm", action="store_true")
    options = parser.parse_args()
    names = [*NAMES, *(f"site{i}" for i in range(len(NAMES), options.sites))][: options.sites]
    sys.exit(not asyncio.run(main(options.rounds, names, not options.calm)))
