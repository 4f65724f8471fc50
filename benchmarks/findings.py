"""What the results of the suites say, as claims that are counted and not seen.

Two methods that differ in one part meet on the same cases: the part is worth it where it solves
more of them, or costs less on those that both solve.
"""

import math

import numpy as np
from scipy import stats

from diamond.bench import statistics

COST = "calls"
SHARE, LEVEL = 2 / 3, 0.05  # of the cases decided, for an order to hold; of the sign test
# By part: suite, with it, and a method that differs in nothing else (`diamond list algorithms`).
PARTS = {
    "tracking": [
        ("personal", "gt_sgd", "dsgd"),
        ("personal", "diamond", "m_sgd"),
        ("links", "push_diging", "sgp"),
    ],
    "momentum": [
        ("personal", "diamond", "gt_sgd"),
        ("personal", "m_sgd", "dsgd"),
        ("one-agent", "sustain", "ttsa"),
        ("one-agent", "ma_soba", "soba"),
    ],
    "corrections": [
        ("personal", "extra", "dsgd"),
        ("personal", "exact_diffusion", "dsgd"),
        ("common", "sparkle", "d_soba"),
    ],
    "variance reduction": [
        ("personal", "svr_interact", "interact"),
        ("one-agent", "saba", "soba"),
    ],
    "z carried, no chain": [("personal", "k_free", "diamond"), ("one-agent", "k_free", "diamond")],
    "Hessian-free": [
        ("personal", "f2sa", "gt_sgd"),
        ("common", "dsgda_gt", "sldbo"),
        ("one-agent", "f2sa", "soba"),
    ],
}
# Suite, the better by the paper that has it, and the other.
PUBLISHED = [
    ("personal", "diamond", "gt_sgd"),
    ("personal", "diamond", "dsgd"),
    ("personal", "svr_interact", "interact"),
    ("personal", "lopa", "interact"),
    ("common", "ma_dsbo", "dsbo"),
    ("common", "ma_dsbo", "gossip_dsbo"),
    ("common", "vrdbo", "mdbo"),
    ("common", "mdbo", "dsbo"),
    ("common", "sparkle", "d_soba"),
    ("common", "sparkle", "ma_dsbo"),
    ("common", "d_soba", "ma_dsbo"),
    ("common", "adasdbo", "ma_dsbo"),
    ("one-agent", "stocbio", "bsa"),
    ("one-agent", "stocbio", "ttsa"),
    ("one-agent", "sustain", "stocbio"),
    ("one-agent", "mrbo", "stocbio"),
    ("one-agent", "vrbo", "mrbo"),
    ("one-agent", "saba", "soba"),
    ("one-agent", "soba", "amigo"),
    ("one-agent", "ma_soba", "soba"),
]


def against(kept, one, other, cost=COST):
    """How two methods do on the cases that both met: who wins, and by how much."""
    costs = {(r["case"], r["method"]): r[cost] for r in kept["costs"]["tuned"]}
    met = [case for case in kept["cases"] if {(case, one), (case, other)} <= {*costs}]
    pairs = [(costs[case, one], costs[case, other]) for case in met]
    ratios = [a / b for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
    return {
        "cases": len(met),
        "wins": sum(a < b for a, b in pairs),
        "losses": sum(a > b for a, b in pairs),
        "solved": [sum(math.isfinite(c) for c in each) for each in zip(*pairs)] or [0, 0],
        "ratio": float(np.median(ratios)) if ratios else math.nan,
    }


def verdict(found):
    """Whether an order holds on the cases that decide between the two.

    For certain where a sign test passes at 5 %, perhaps where two thirds of the cases agree.
    """
    wins, decided = found["wins"], found["wins"] + found["losses"]
    if not decided:
        return "nothing decides"
    said = "yes" if wins >= SHARE * decided else "no" if wins <= (1 - SHARE) * decided else ""
    certain = stats.binomtest(wins, decided).pvalue <= LEVEL
    return said + "," * (not certain) + " perhaps" * (not certain) if said else "it depends"


def row(suite, kept, one, other):
    """One comparison as a line of a table."""
    found = against(kept, one, other)
    ratio = "" if math.isnan(found["ratio"]) else f"{found['ratio']:.2g}"
    solved = " and ".join(map(str, found["solved"]))
    rounds = against(kept, one, other, "round")
    won = " | ".join(f"{each['wins']} to {each['losses']}" for each in (found, rounds))
    said = f"| {one} | {other} | {suite} | {solved} of {found['cases']} | {ratio} | {won} |"
    return f"{said} {verdict(found)} | {verdict(rounds)} |"


COLUMNS = "suite | solved | cost | won, calls | won, rounds"
RULE = f"|{' --- |' * 9}"


def orderings(kept):
    """What papers say of others: a row each."""
    lines = [f"| said to be better | than | {COLUMNS} | in calls | in rounds |", RULE]
    known = [(s, a, b) for s, a, b in PUBLISHED if s in kept and _met(kept[s], a, b)]
    return "\n".join([*lines, *(row(s, kept[s], a, b) for s, a, b in known)])


def worth(kept):
    """What parts are worth: a row for each pair that differs in one."""
    lines = [f"| part | with | without | {COLUMNS} | in calls | in rounds |", f"| --- {RULE}"]
    for part, pairs in PARTS.items():
        for suite, one, other in pairs:
            if suite in kept and _met(kept[suite], one, other):
                lines.append(f"| {part} {row(suite, kept[suite], one, other)}")
    return "\n".join(lines)


def links(kept):
    """How the order of the methods on every kind of link compares with that on perfect ones."""
    suite = kept["links"]
    cases, methods, costs = statistics.cost_matrix(suite["costs"]["tuned"], COST)
    perfect = costs[cases.index("links-perfect")]
    lines = ["| link | order by calls | pairs that change places |", "| --- | --- | ---: |"]
    for case, here in zip(cases, costs):
        there = [j for j in range(len(methods)) if not math.isnan(here[j])]
        order = sorted((j for j in there if math.isfinite(here[j])), key=lambda j: here[j])
        named = ", ".join(methods[j] for j in order)
        lost = ", ".join(methods[j] for j in there if math.isinf(here[j]))
        both = [j for j in there if not math.isnan(perfect[j])]
        sides = [(i, j) for i in both for j in both if i < j]
        swapped = sum(_sign(here[i], here[j]) * _sign(perfect[i], perfect[j]) < 0 for i, j in sides)
        failed = f"; not solved: {lost}" if lost else ""
        lines.append(f"| {case} | {named}{failed} | {swapped} of {len(sides)} |")
    return "\n".join(lines)


def _sign(a, b):
    return int(a > b) - int(a < b)


def _met(kept, *names):
    return {*names} <= {r["method"] for r in kept["costs"]["tuned"]}


def standings(kept):
    """Every method of a suite: cases met and solved, tuned and not, all-case rank; best first.

    First those that solve most as they come, then by their rank among tuned ones.
    """
    _, methods, medians = statistics.cost_matrix(kept["costs"]["tuned"], COST)
    average, _ = statistics.average_ranks(_ranked(medians))
    found = []
    for j, name in enumerate(methods):
        met = ~np.isnan(medians[:, j])
        untuned = [r[COST] for r in kept["costs"]["untuned"] if r["method"] == name]
        found.append(
            {
                "method": name,
                "cases": int(met.sum()),
                "solved": int(np.isfinite(medians[met, j]).sum()),
                "untuned": sum(map(math.isfinite, untuned)),
                "rank": round(float(average[j]), 2),
            }
        )
    return sorted(found, key=lambda m: (-m["untuned"], m["rank"]))


SITUATIONS = {
    "personal": "a lower level of each agent's own",
    "common": "a lower level in common",
    "one-agent": "one agent",
    "links": "links that lose, compress or go one way",
}


def which(found):
    """Which method to use, by the kind of problem: as it comes, and tuned."""
    lines = ["| your problem | as it comes | tuned | evidence |", "| --- | --- | --- | --- |"]
    for name, words in SITUATIONS.items():
        if name in found:
            own = found[name][0]
            tuned = min(found[name], key=lambda m: (-m["solved"], m["rank"]))
            easy = f"{own['method']} solves {own['untuned']} of {own['cases']} cases untuned"
            best = f"{tuned['method']} {tuned['solved']} of {tuned['cases']} tuned"
            ranks = f"all-case rank {tuned['rank']:.1f}"
            said = (
                f"| `{own['method']}` | `{tuned['method']}` | {easy}; {best}, {ranks} (`{name}`) |"
            )
            lines.append(f"| {words} {said}")
    return "\n".join(lines)


def _ranked(costs):
    """Cases that a method did not meet count as not solved: all have a rank."""
    return np.where(np.isnan(costs), np.inf, costs)
