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


def compare_methods(results, method, baseline, cost=COST):
    """How two methods do on the cases that both met: who wins, and by how much."""
    costs = {(r["case"], r["method"]): r[cost] for r in results["costs"]["tuned"]}
    met = [case for case in results["cases"] if {(case, method), (case, baseline)} <= {*costs}]
    pairs = [(costs[case, method], costs[case, baseline]) for case in met]
    ratios = [a / b for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
    return {
        "cases": len(met),
        "wins": sum(a < b for a, b in pairs),
        "losses": sum(a > b for a, b in pairs),
        "solved": [sum(map(math.isfinite, costs)) for costs in zip(*pairs)] or [0, 0],
        "ratio": float(np.median(ratios)) if ratios else math.nan,
    }


def verdict(comparison):
    """Whether an order holds on the cases that decide between the two.

    For certain where a sign test passes at 5 %, perhaps where two thirds of the cases agree.
    """
    wins, decided = comparison["wins"], comparison["wins"] + comparison["losses"]
    if not decided:
        return "nothing decides"
    answer = "yes" if wins >= SHARE * decided else "no" if wins <= (1 - SHARE) * decided else ""
    certain = stats.binomtest(wins, decided).pvalue <= LEVEL
    return answer + "," * (not certain) + " perhaps" * (not certain) if answer else "it depends"


def comparison_row(suite, results, method, baseline):
    """One comparison as a line of a table."""
    by_calls = compare_methods(results, method, baseline)
    ratio = "" if math.isnan(by_calls["ratio"]) else f"{by_calls['ratio']:.2g}"
    solved = " and ".join(map(str, by_calls["solved"]))
    by_rounds = compare_methods(results, method, baseline, "round")
    won = " | ".join(
        f"{comparison['wins']} to {comparison['losses']}" for comparison in (by_calls, by_rounds)
    )
    cells = f"{suite} | {solved} of {by_calls['cases']} | {ratio} | {won}"
    return f"| {method} | {baseline} | {cells} | {verdict(by_calls)} | {verdict(by_rounds)} |"


COLUMNS = "suite | solved | cost | won, calls | won, rounds"
RULE = f"|{' --- |' * 9}"


def orderings_table(suites):
    """What papers say of others: a row each."""
    lines = [f"| said to be better | than | {COLUMNS} | in calls | in rounds |", RULE]
    rows = [(s, a, b) for s, a, b in PUBLISHED if s in suites and _has_methods(suites[s], a, b)]
    return "\n".join([*lines, *(comparison_row(s, suites[s], a, b) for s, a, b in rows)])


def parts_table(suites):
    """What parts are worth: a row for each pair that differs in one."""
    lines = [f"| part | with | without | {COLUMNS} | in calls | in rounds |", f"| --- {RULE}"]
    for part, pairs in PARTS.items():
        for suite, method, baseline in pairs:
            if suite in suites and _has_methods(suites[suite], method, baseline):
                lines.append(f"| {part} {comparison_row(suite, suites[suite], method, baseline)}")
    return "\n".join(lines)


def links_table(suites):
    """How the order of the methods on every kind of link compares with that on perfect ones."""
    suite = suites["links"]
    cases, methods, costs = statistics.cost_matrix(suite["costs"]["tuned"], COST)
    perfect = costs[cases.index("links-perfect")]
    lines = ["| link | order by calls | pairs that change places |", "| --- | --- | ---: |"]
    for case, case_costs in zip(cases, costs):
        present = [j for j in range(len(methods)) if not math.isnan(case_costs[j])]
        order = sorted(
            (j for j in present if math.isfinite(case_costs[j])), key=lambda j: case_costs[j]
        )
        solved = ", ".join(methods[j] for j in order)
        unsolved = ", ".join(methods[j] for j in present if math.isinf(case_costs[j]))
        comparable = [j for j in present if not math.isnan(perfect[j])]
        pairs = [(i, j) for i in comparable for j in comparable if i < j]
        swapped = sum(
            _sign(case_costs[i], case_costs[j]) * _sign(perfect[i], perfect[j]) < 0
            for i, j in pairs
        )
        failed = f"; not solved: {unsolved}" if unsolved else ""
        lines.append(f"| {case} | {solved}{failed} | {swapped} of {len(pairs)} |")
    return "\n".join(lines)


def _sign(a, b):
    return int(a > b) - int(a < b)


def _has_methods(results, *names):
    return {*names} <= {r["method"] for r in results["costs"]["tuned"]}


def rank_methods(results):
    """Every method of a suite: cases met and solved, tuned and not, all-case rank; best first.

    First those that solve most as they come, then by their rank among tuned ones.
    """
    _, methods, medians = statistics.cost_matrix(results["costs"]["tuned"], COST)
    average, _ = statistics.average_ranks(_unmet_as_infinite(medians))
    rows = []
    for j, name in enumerate(methods):
        met = ~np.isnan(medians[:, j])
        untuned = [r[COST] for r in results["costs"]["untuned"] if r["method"] == name]
        rows.append(
            {
                "method": name,
                "cases": int(met.sum()),
                "solved": int(np.isfinite(medians[met, j]).sum()),
                "untuned": sum(map(math.isfinite, untuned)),
                "rank": round(float(average[j]), 2),
            }
        )
    return sorted(rows, key=lambda m: (-m["untuned"], m["rank"]))


SITUATIONS = {
    "personal": "a lower level of each agent's own",
    "common": "a lower level in common",
    "one-agent": "one agent",
    "links": "links that lose, compress or go one way",
}


def choice_table(standings_by_suite):
    """Which method to use, by the kind of problem: as it comes, and tuned."""
    lines = ["| your problem | as it comes | tuned | evidence |", "| --- | --- | --- | --- |"]
    for name, words in SITUATIONS.items():
        if name in standings_by_suite:
            untuned = standings_by_suite[name][0]
            tuned = min(standings_by_suite[name], key=lambda m: (-m["solved"], m["rank"]))
            evidence = (
                f"{untuned['method']} solves {untuned['untuned']} of {untuned['cases']} cases "
                f"untuned; {tuned['method']} {tuned['solved']} of {tuned['cases']} tuned"
            )
            ranks = f"all-case rank {tuned['rank']:.1f}"
            cells = (
                f"| `{untuned['method']}` | `{tuned['method']}` | {evidence}, {ranks} (`{name}`) |"
            )
            lines.append(f"| {words} {cells}")
    return "\n".join(lines)


def _unmet_as_infinite(costs):
    """Cases that a method did not meet count as not solved: all have a rank."""
    return np.where(np.isnan(costs), np.inf, costs)
