"""What `auto.py` measured, as gaps, and what they say."""

import numpy as np

CLOSED = 0.01
FAR = 1e3  # from this condition on, the lower level is hard
KINDS = ("chain", "factored", "CG", "Nesterov")


def gap(row, loss):
    first = row["auto"]["losses"][0]
    least = min(
        [row["lowest"], *(row[name][0] for name in ("chain grid", "own grid") if name in row)]
    )
    return (loss - least) / max(first - least, 1e-30)


def at_equal_samples(row):
    """Gaps of auto and of the chain where the one that draws fewer ends."""
    both = [row[name] for name in ("auto", "chain")]
    until = min(run["drawn"][-1] for run in both)
    finite = lambda run: np.nan_to_num(run["losses"], nan=np.inf, posinf=1e30)
    each = (np.interp(until, run["drawn"], finite(run)[: len(run["drawn"])]) for run in both)
    return [gap(row, float(loss)) for loss in each]


def share_until(row, other):
    """The share of its rounds after which auto's gap is `other`, or closed; infinite if never."""
    rounds = [*range(0, row["rounds"], max(1, row["rounds"] // 12)), row["rounds"]]
    near = (
        t for t, loss in zip(rounds, row["auto"]["losses"]) if gap(row, loss) <= max(other, CLOSED)
    )
    return next(near, float("inf")) / row["rounds"]


def judged(row):
    """Gaps of auto, of the chain with its own steps, and of both grids; what they say of auto."""
    found = {name: gap(row, row[name]["losses"][-1]) for name in ("auto", "chain")}
    found |= {name: gap(row, row[name][0]) for name in ("chain grid", "own grid") if name in row}
    grids = [found[name] for name in ("chain grid", "own grid") if name in found]
    if grids:
        found["ratio"] = max(found["auto"], CLOSED) / max(min(grids), CLOSED)
    found["condition"] = row["auto"]["found"].get("condition", 1.0)
    found["equal"] = at_equal_samples(row)
    return found


def table(rows):
    """Of every problem, gaps seed by seed; then what was met."""
    names = ("auto", "chain", "chain grid", "own grid")
    shown = ("auto", "chain", "auto, equal", "chain, equal", "chain grid", "own grid", "ratio")
    print(f"| problem | condition | chosen | {' | '.join(shown)} |")
    print("| --- " * (3 + len(shown)) + "|")
    for problem in dict.fromkeys(row["problem"] for row in rows):
        mine = sorted((r for r in rows if r["problem"] == problem), key=lambda row: row["seed"])
        found = [judged(row) for row in mine]
        kinds = dict.fromkeys(KINDS[int(row["auto"]["found"].get("inverse", 0))] for row in mine)
        listed = lambda each: ", ".join("-" if v is None else f"{v:.2g}" for v in each)
        told = lambda name: listed(f.get(name) for f in found)
        equal = [listed(f["equal"][i] for f in found) for i in (0, 1)]
        columns = [*map(told, names[:2]), *equal, *map(told, (*names[2:], "ratio"))]
        print(
            f"| {problem} | {max(f['condition'] for f in found):.0f} | {', '.join(kinds)} | "
            f"{' | '.join(columns)} |"
        )
    each = [judged(row) for row in rows]
    against = [f for f in each if "ratio" in f]
    near = sum(f["ratio"] <= 2 for f in against)
    print(f"\n{near} of {len(against)} within a factor 2 of the better grid")
    above = [f"{row['problem']} ({row['seed']})" for row, f in zip(rows, each) if f["auto"] > 1]
    print(
        f"{len(above)} of {len(each)} end above their start{': ' * bool(above)}{', '.join(above)}"
    )
    hard = [f for f in each if f["condition"] >= FAR]
    fifth = lambda auto, chain: chain >= 5 * max(auto, CLOSED)
    better = sum(fifth(f["auto"], f["chain"]) for f in hard)
    equal = sum(fifth(*f["equal"]) for f in hard)
    print(
        f"{better} of {len(hard)} of condition 1,000 and more: gap a fifth of the chain's or less; "
        f"{equal} at equal samples"
    )
    fewer = sum(f["equal"][0] <= max(f["equal"][1], CLOSED) for f in each)
    print(f"{fewer} of {len(each)} at equal samples: closed, or a gap no larger than the chain's")
    slow, there = {}, {}
    for row, f in zip(rows, each):
        if "ratio" not in f:
            continue
        best = min(f[name] for name in names[2:])
        if max(f["chain"], CLOSED) <= 2 * max(best, CLOSED):  # the chain was good enough
            name = f"{row['problem']} ({row['seed']})"
            slow[name] = row["auto"]["seconds"] / row["chain"]["seconds"]
            there[name] = slow[name] * share_until(row, f["chain"])
    most = lambda times: ", ".join(f"{n} {times[n]:.2g}" for n in sorted(times, key=times.get)[-3:])
    quick = lambda times: sum(v <= 1.3 for v in times.values())
    print(
        f"{len(slow)} where the chain is within a factor 2: {quick(slow)} take at most 1.3 times "
        f"its seconds (most: {most(slow)}); {quick(there)} until they are where it ends, or "
        f"closed (most: {most(there)})"
    )
