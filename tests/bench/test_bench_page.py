"""The page of a benchmark as a reader meets it, its numbers worked out again by a few lines."""

import csv
import json
import re
from pathlib import Path

import benchmark_results
import browser_pages
import numpy as np
import pytest
from browser_pages import chart_data
from scipy import stats

from diamond.bench import leaderboard_page as pages
from diamond.bench import statistics
from diamond.bench.leaderboard_page import TAUS

pytestmark = browser_pages.needs_browser

CASES, METHODS, CHARTS = (
    list(benchmark_results.CASES),
    list(benchmark_results.COSTS_PER_ROUND),
    ["profile", "ranks", "curves"],
)
HOSTILE = "</script><img src=x onerror=alert(1)><b>A & B"
DASH, TIMES = "\N{EN DASH}", "\N{MULTIPLICATION SIGN}"


@pytest.fixture(scope="module")
def visit(browser):
    with browser_pages.open_pages(browser) as opened:
        yield lambda path, **options: opened(path.as_uri(), **options)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return pages.build_leaderboard(
        benchmark_results.make_results(), tmp_path_factory.mktemp("bench") / "page.html"
    )


@pytest.fixture(scope="module")
def shared(visit, built):
    return visit(built)


CHOICES = ("cost", "tau", "kind", "level", "oracle", "topology")


@pytest.fixture
def opened(shared):
    """The page as it opens."""
    choose(shared, cost="samples", tau="0.1", kind="tuned", level="", oracle="", topology="")
    choose(shared, case="smooth")
    return shared


def choose(page, **choices):
    for name, value in choices.items():
        if page.locator(f"#{name}").input_value() != value:
            page.locator(f"#{name}").select_option(value)


def grid(page, name):
    """The head of a table, and its rows."""
    text = "rows => rows.map(row => [...row.cells].map(cell => cell.innerText))"
    head, *rows = page.locator(f"#{name} tr").evaluate_all(text)
    return head, [[cell.strip() for cell in row] for row in rows]


def reached(kind, case, method, tau, cost):
    """What each seed had spent when it got to the target: by numpy, from the runs alone."""
    pairs = benchmark_results.make_results()["pairs"]
    case_pairs = [p for p in pairs if p["case"] == case]
    runs = [
        run["history"]["upper_loss"] for p in case_pairs for run in (*p["tuned"], *p["untuned"])
    ]
    lowest = np.nanmin(np.concatenate(runs))
    target = lowest + tau * (np.median([losses[0] for losses in runs]) - lowest)
    (pair,) = [p for p in case_pairs if p["method"] == method]
    costs = []
    for run in pair[kind]:
        is_reached = np.asarray(run["history"]["upper_loss"]) <= target
        costs.append(run["history"][cost][is_reached.argmax()] if is_reached.any() else np.inf)
    return np.array(costs)


def medians(kind="tuned", tau=0.1, cost="samples", cases=CASES, methods=METHODS):
    """(cases, methods)."""
    costs = [[reached(kind, case, name, tau, cost) for name in methods] for case in cases]
    return np.median(costs, 2)


def spoken(cost, value):
    """A cost as the page says it."""
    if np.isinf(value):
        return "never"
    if cost != "bytes":
        return f"{value:.0f}"
    return f"{value / 1000:.3g} kB" if value >= 1000 else f"{value:.0f} B"


def filtered(rows, cases, methods):
    """The matrix that statistics.py makes of these cases and methods only."""
    shown_rows = [row for row in rows if row["case"] in cases and row["method"] in methods]
    return statistics.cost_matrix(shown_rows, "samples")[2]


@pytest.mark.wide
@pytest.mark.parametrize("kind", ["tuned", "untuned"])
def test_costs_are_medians_with_the_seeds_that_got_there(opened, kind):
    for tau, cost in zip(TAUS, ("round", "bytes", "samples", "calls")):
        choose(opened, cost=cost, tau=str(tau), kind=kind)
        head, rows = grid(opened, "costs")
        assert head == ["Method", *CASES]
        expected = medians(kind, tau, cost)
        for title, *cells in rows:
            name = title.split()[-1]
            for i, (case, cell) in enumerate(zip(CASES, cells)):
                value, *more = cell.replace(",", "").split("\n")
                seed_costs = reached(kind, case, name, tau, cost)
                middle, best = np.median(seed_costs), expected[i].min()
                if np.isinf(middle):
                    assert value == DASH and "of 3" in more[0]
                    continue
                low, high = (spoken(cost, value) for value in (min(seed_costs), max(seed_costs)))
                factor = 1 if middle == best else middle / best if best else None
                text = "" if factor is None else f" \u00b7 {factor:.2f}{TIMES}"
                text = [f"{low} {DASH} {high}", f"{np.isfinite(seed_costs).sum()} of 3{text}"]
                assert value == spoken(cost, middle) and more[:2] == text


@pytest.mark.wide
def test_the_best_are_bold_and_ties_share_it(opened):
    choose(opened, cost="round")
    bold = opened.locator("#costs td.best").all_inner_texts()
    assert [cell.split("\n")[0] for cell in bold] == ["20", "30", "20", "10"]
    assert (
        opened.locator("#costs td.best").first.evaluate("e => getComputedStyle(e).fontWeight")
        == "600"
    )
    verdict = opened.locator("#verdict").inner_text()
    assert verdict == "Fewest rounds, tuned: diamond on 2 cases, dsgd on 2."
    choose(opened, tau="0.01", kind="untuned")
    assert "No method reaches any target" in opened.locator("#verdict").inner_text()


@pytest.mark.wide
def test_a_dash_says_why(opened):
    cells = {row[0].split()[-1]: row[1:] for row in grid(opened, "costs")[1]}
    assert cells["dsgd"][1] == f"{DASH}\n3 of 3 not yet there"
    assert cells["k_free"][1] == f"{DASH}\n2 of 3 diverged"
    assert cells["diamond"][0].endswith("\n1 of 3 diverged")  # after it was there
    choose(opened, kind="untuned")
    cells = {row[0].split()[-1]: row[1:] for row in grid(opened, "costs")[1]}
    assert cells["dsgd"][2] == f"{DASH}\n3 of 3 ended above the start"
    choose(opened, kind="tuned", cost="network_seconds")
    cells = {row[0].split()[-1]: row[1:] for row in grid(opened, "costs")[1]}
    assert cells["dsgd"][0] == f"{DASH}\nnot counted"
    assert cells["dsgd"][2].startswith("0.5 s\n")


@pytest.mark.wide
@pytest.mark.parametrize(
    ("choices", "cases", "methods"),
    [
        ({}, CASES, METHODS),
        ({"level": "personal"}, ["smooth", "noisy"], METHODS),
        ({"topology": "star"}, ["noisy"], METHODS),
        ({"oracle": "neumann"}, CASES, ["diamond", "dsgd"]),
        ({"oracle": "neumann", "topology": "ring"}, ["smooth", "linked"], ["diamond", "dsgd"]),
    ],
)
@pytest.mark.parametrize("kind", ["tuned", "untuned"])
def test_profiles_and_ranks_are_those_of_what_is_left_by_filters(
    opened, kind, choices, cases, methods
):
    choose(opened, kind=kind, **choices)
    costs = medians(kind, cases=cases, methods=methods)
    rows = statistics.cost_table(benchmark_results.make_results()["pairs"], ["samples"], kind=kind)
    np.testing.assert_array_equal(filtered(rows, cases, methods), costs)
    traces = chart_data(opened, "profile")["data"]
    assert {trace["name"] for trace in traces} == set(methods)
    best = costs.min(1, keepdims=True)
    for trace in traces:
        method_costs = costs[:, methods.index(trace["name"])]
        shares = [
            np.mean((method_costs <= f * best[:, 0]) & np.isfinite(method_costs))
            for f in trace["x"]
        ]
        np.testing.assert_allclose(trace["y"], shares)
    average = stats.rankdata(costs, axis=1).mean(0)
    chart = chart_data(opened, "ranks")
    (dots,) = [t for t in chart["data"] if t["mode"] == "markers+text"]
    np.testing.assert_allclose(dots["x"], np.sort(average))
    order = [re.sub(r"^\S+\s+", "", row[0]) for row in grid(opened, "costs")[1]]
    np.testing.assert_allclose([average[methods.index(name)] for name in order], dots["x"])
    theirs, difference = statistics.average_ranks(costs)
    np.testing.assert_allclose(theirs, average)
    assert f"Critical difference {difference:.2f}" in opened.locator("#ranks-verdict").inner_text()


@pytest.mark.wide
def test_too_few_cases_for_ranks_to_mean_much_are_told_of(opened):
    choose(opened, topology="star")
    verdict = opened.locator("#ranks-verdict").inner_text()
    assert "differ by 2 at most: with so few cases nothing can be told apart" in verdict
    choose(opened, topology="", oracle="differences")
    assert "one method is left" in opened.locator("#ranks-verdict").inner_text()
    assert not opened.locator("#ranks-chart").is_visible()


@pytest.mark.wide
def test_bars_join_methods_that_do_not_differ(visit, tmp_path):
    """On 16 cases, where a and b take turns to be first, c is always third and d the last."""
    results = benchmark_results.make_results()
    methods, cases = ["a", "b", "c", "d"], [f"case{i}" for i in range(16)]
    arrival = {"a": [10, 2, 0, 0, 0], "b": [10, 9, 0, 0, 0], "c": [10, 9, 9, 0, 0]}
    arrival["d"] = [10, 9, 9, 9, 0]
    make_runs = lambda name: [benchmark_results.make_run("dsgd", arrival[name])]
    base = {k: results["pairs"][0][k] for k in ("numbers", "best", "tried")}
    results["pairs"] = [
        base | {"case": case, "method": name, "tuned": make_runs(name), "untuned": make_runs(name)}
        for case in cases
        for name in methods
    ]
    for pair in results["pairs"][:32]:
        pair["tuned"] = make_runs({"a": "b", "b": "a"}.get(pair["method"], pair["method"]))
    results["cases"] = {case: results["cases"]["smooth"] for case in cases}
    results["methods"] = {name: results["methods"]["dsgd"] for name in methods}
    page = visit(pages.build_leaderboard(results, tmp_path / "page.html"))
    choose(page, cost="round")
    costs = statistics.cost_matrix(statistics.cost_table(results["pairs"], ["round"]), "round")[2]
    average, difference = statistics.average_ranks(costs)
    traces = chart_data(page, "ranks")["data"]
    critical, *bars, dots = traces
    np.testing.assert_allclose(critical["x"], [1, 1 + difference])
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    alike = {(i, j) for i, j in pairs if abs(average[i] - average[j]) < difference}
    ranks = np.sort(average)
    joined = {
        (i, j) for i, j in pairs for b in bars if b["x"][0] <= ranks[i] and ranks[j] <= b["x"][1]
    }
    assert joined == alike == {(0, 1), (2, 3)}
    verdict = page.locator("#ranks-verdict").inner_text()
    assert "a ranks first, and differs from c, d." in verdict
    assert dots["x"] == list(ranks)


@pytest.mark.wide
def test_curves_are_the_gaps_of_the_runs(opened):
    for case, start, lowest in (("smooth", 10, 0.0), ("noisy", 4, 1.0)):
        opened.locator("#case").select_option(case)
        for name in METHODS:
            traces = [t for t in chart_data(opened, "curves")["data"] if t["name"] == name]
            band, line, last_points = traces
            losses = np.full((3, 5), np.nan)
            for row, values in zip(losses, benchmark_results.LOSSES[case][name]):
                row[: len(values)] = values
            gaps = (losses - lowest) / (start - lowest)
            middle = np.sort(np.where(np.isnan(gaps), np.inf, gaps), 0)[1]
            shown = np.isfinite(middle) & (middle > 0)
            np.testing.assert_allclose(line["y"], middle[shown], rtol=1e-3)
            spent = 10 * np.arange(5) * benchmark_results.COSTS_PER_ROUND[name][0]
            np.testing.assert_allclose(line["x"], spent[shown])
            np.testing.assert_allclose(band["y"][:5], np.nanmax(gaps, 0), rtol=1e-3)
            diverged = [values for values in losses if np.isnan(values).any()]
            ends = [values[~np.isnan(values)][-1] for values in diverged]
            np.testing.assert_allclose(
                last_points["y"], [(end - lowest) / (start - lowest) for end in ends]
            )
            assert line["line"]["dash"] == "solid"
    assert "start 4, lowest 1" in opened.locator("#curves-note").inner_text()


@pytest.mark.wide
def test_curves_without_tuning_are_dashed(opened):
    opened.get_by_label("without tuning as well").check()
    lines = [t for t in chart_data(opened, "curves")["data"] if t["mode"] == "lines+markers"]
    drawn = {t["name"]: (t["line"]["dash"], t["showlegend"]) for t in lines}
    assert drawn["dsgd"] == ("solid", True) and drawn["dsgd, without tuning"] == ("dash", False)
    assert len(lines) == 6
    opened.get_by_label("without tuning as well").uncheck()
    opened.get_by_label("range over the seeds").uncheck()
    assert not [t for t in chart_data(opened, "curves")["data"] if t.get("fill")]
    opened.get_by_label("range over the seeds").check()
    opened.get_by_label("log cost").check()
    assert chart_data(opened, "curves")["layout"]["xaxis"]["type"] == "log"
    opened.get_by_label("log cost").uncheck()
    choose(opened, cost="network_seconds")
    assert "were not counted" in opened.locator("#curves-note").inner_text()
    assert not opened.locator("#curves-chart").is_visible()


@pytest.mark.wide
def test_constants_say_how_hard_was_tried(opened):
    rows = {(row[0].split()[-1], row[1]): row[2:] for row in grid(opened, "constants")[1]}
    assert len(rows) == 9
    assert rows["diamond", "smooth"] == ["alpha 0.2, beta 0.5", "3", "1", "no"]
    assert rows["k_free", "noisy"] == ["alpha 0.2, beta 0.5", "2", "0", "alpha (largest)"]


def test_what_there_is_without_tuning_is_beside_what_is_tuned(opened):
    for cost in ("round", "samples"):
        choose(opened, cost=cost)
        tuned, untuned = medians("tuned", cost=cost), medians("untuned", cost=cost)
        for name, *cells, total in grid(opened, "untuned")[1]:
            j = METHODS.index(name.split()[-1])
            for a, b, cell in zip(tuned[:, j], untuned[:, j], cells):
                if np.isinf(b):
                    assert cell == ("neither" if np.isinf(a) else "only tuned")
                else:
                    assert cell == f"{b / a:.2f}{TIMES}"
            solved = [np.isfinite(costs[:, j]).sum() for costs in (untuned, tuned)]
            assert total == f"{solved[0]}, tuned {solved[1]}"
    verdict = opened.locator("#untuned-verdict").inner_text()
    assert "4 of 9 pairs" in verdict and "tuned 6." in verdict


def test_failures_are_those_of_the_statistics(opened):
    for tau in TAUS:
        choose(opened, tau=str(tau))
        failures = statistics.list_failures(benchmark_results.make_results()["pairs"], tau)
        kinds = {"tuned": "tuned", "untuned": "without tuning"}
        expected = [
            [f["method"], f["case"], kinds[f["kind"]]]
            + [str(f[key]) for key in ("seeds", "diverged", "above_start", "short")]
            for f in failures
        ]
        rows = grid(opened, "failures")[1]
        assert [[row[0].split()[-1], *row[1:-1]] for row in rows] == expected
        np.testing.assert_allclose(
            [float(row[-1]) for row in rows], [f["left"] for f in failures], 0.05
        )


def test_the_rules_and_the_machine_are_told(opened):
    rules = opened.locator("#rules").inner_text()
    assert (
        "tuned by 3 settings" in rules and "(0 to 2) that no trial has seen (100 to 101)" in rules
    )
    summary = opened.locator("#summary").inner_text()
    assert summary.startswith("3 methods on 3 cases, 3 seeds each: 9 pairs, 114 runs")
    opened.get_by_text("The machine").click()
    assert "x86_64" in opened.locator("#machine").inner_text()
    opened.get_by_text("The cases", exact=True).click()
    assert grid(opened, "cases")[1][1][:4] == ["noisy", "noisy in words", "personal", "star"]


def test_filters_that_leave_nothing_say_so(opened):
    choose(opened, level="common", topology="star")
    assert "No method met such a case" in opened.locator("#alerts").inner_text()
    assert not opened.locator("#costs").is_visible()


@pytest.mark.wide
def test_each_chart_can_be_saved(opened):
    for chart in CHARTS:
        for kind, start in (("PNG", b"\x89PNG"), ("SVG", b"<svg"), ("CSV", b"")):
            with opened.expect_download() as started:
                opened.get_by_label(f"Save the chart {chart} as {kind}").click()
            saved = started.value
            assert saved.suggested_filename == f"Benchmark-small-{chart}.{kind.lower()}"
            content = saved.path().read_bytes()
            assert content.startswith(start)
    rows = list(csv.DictReader(content.decode().splitlines()))
    assert [float(r["median"]) for r in rows if r["method"] == "dsgd"] == [1, 0.6, 0.1, 0.09, 0.07]


@pytest.mark.wide
def test_it_fits_a_phone_in_the_dark(visit, built):
    screen = {"viewport": {"width": 360, "height": 780}, "is_mobile": True, "has_touch": True}
    page = visit(built, color_scheme="dark", **screen)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.locator("#cost").input_value() == "calls"
    for chart in CHARTS:
        box = page.locator(f"#{chart}-chart").bounding_box()
        assert box["width"] > 300 and box["height"] > 150
    for control in page.locator("select:visible, #theme").all():
        assert control.bounding_box()["height"] >= 44
    shade = lambda: page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(int(v) for v in shade()[4:-1].split(",")) < 150
    assert chart_data(page, "ranks")["layout"]["paper_bgcolor"] == shade()
    page.get_by_role("button", name="Light colours").tap()
    assert shade() == "rgb(255, 255, 255)" == chart_data(page, "profile")["layout"]["paper_bgcolor"]


@pytest.mark.wide
def test_all_controls_have_names_and_can_be_reached_by_key(opened):
    named = "e.ariaLabel || (e.tagName == 'BUTTON' ? e.textContent : e.labels[0]?.innerText)"
    controls = "[...document.querySelectorAll('input, select, button')]"
    assert opened.evaluate(f"{controls}.filter(e => !({named})).map(e => e.id)") == []
    assert opened.evaluate("[...document.querySelectorAll('.plot:not([aria-label])')].length") == 0
    visited = []
    opened.evaluate("document.activeElement.blur(), scrollTo(0, 0)")
    opened.locator(".skip").focus()
    for _ in range(40):
        visited.append(opened.evaluate("document.activeElement.id"))
        opened.keyboard.press("Tab")
    assert [name for name in visited if name in CHOICES][:6] == list(CHOICES)
    assert {"theme", "case", "range", "both", "log-x"} <= set(visited)
    opened.locator("#tau").focus()
    opened.keyboard.press("ArrowDown")
    assert "0.03" in opened.locator("#curves-note").inner_text()


def test_hostile_names_are_shown_as_they_are(visit, tmp_path):
    text = json.dumps(benchmark_results.make_results()).replace('"dsgd"', json.dumps(HOSTILE))
    results = json.loads(text.replace('"noisy"', json.dumps(f"{HOSTILE}2")))
    results["suite"] = HOSTILE
    page = visit(pages.build_leaderboard(results, tmp_path / "page.html"))
    assert page.locator("h1").inner_text() == f"Benchmark {HOSTILE}"
    head, rows = grid(page, "costs")
    assert f"{HOSTILE}2" in head and any(row[0].endswith(HOSTILE) for row in rows)
    assert HOSTILE in page.locator("#profile-chart .legend").text_content()
    assert HOSTILE in page.locator("#ranks-chart").text_content()
    page.locator("#case").select_option(f"{HOSTILE}2")
    assert HOSTILE in page.locator("#curves-chart .legend").text_content()
    assert page.locator("img").count() == 0


def test_the_page_runs_its_own_scripts_only(built):
    text = Path(built).read_text()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src 'none'" in policy and "{{" not in text.split("<script")[0]
    assert len(text) < 2e6
