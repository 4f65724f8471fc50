"""The report and the live page as a reader meets them, in a real browser."""

import csv
import io
import json
import re
import shutil

import browser_pages
import numpy as np
import pytest
import small_run_folders
from browser_pages import chart_data, needs_browser, table_rows

from diamond import network, report

api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = needs_browser

CHARTS = ["curves", "network", "heat", "oracle", "traffic", "shares", "sensitivity"]
HOSTILE = "</script><img src=x onerror=alert(1)><b>A & B"


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    return small_run_folders.write_comparison(tmp_path_factory.mktemp("runs") / "small")


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Step sizes of one algorithm, the largest of which blows up."""
    folder = tmp_path_factory.mktemp("runs") / "sweep"
    for alpha in (0.01, 0.1, 1.0):
        small_run_folders.write_run(folder / f"a{alpha}", "dsgd", "D-SGD", alpha=alpha, every=20)
    small_run_folders.write_run(
        folder / "a50", "dsgd", "D-SGD", alpha=50.0, beta=1e3, rounds=400, every=20
    )
    return folder


@pytest.fixture(scope="module")
def built(compared, tmp_path_factory):
    return report.build([compared], tmp_path_factory.mktemp("report") / "report.html").as_uri()


@pytest.fixture(scope="module")
def shared(browser, built):
    """The page of all that is compared, loaded once."""
    with browser_pages.open_pages(browser) as visit:
        yield visit(built)


# Controls as they were at first, those of the target by the measure, which sets it.
AS_IT_OPENS = """() => {
  const kept = (e) => (["checkbox", "radio"].includes(e.type) ? "checked" : "value");
  const controls = [...document.querySelectorAll("select, input")];
  const values = () => JSON.stringify(controls.map((e) => e[kept(e)]));
  window.first ??= { each: controls.map((e) => e[kept(e)]), values: values() };
  controls.forEach((e, i) => {
    const was = window.first.each[i];
    if (e[kept(e)] === was || e.id.startsWith("target")) return;
    e[kept(e)] = was;
    if (e.type === "radio") was && e.dispatchEvent(new Event("change"));
    else e.dispatchEvent(new Event("input"));
  });
  for (const e of document.querySelectorAll("#measure, #run")) e.dispatchEvent(new Event("input"));
  return values() === window.first.values;
}"""


@pytest.fixture
def opened(shared):
    """The page as it opens; nothing was complained of meanwhile."""
    assert shared.evaluate(AS_IT_OPENS)
    assert shared.locator("#measure").input_value() == "upper_loss"
    shared.locator("#measure").select_option("metric")
    yield shared
    assert shared.complaints == []


def axis(page, name):
    page.get_by_role("radio", name=name).check(force=True)


def history(folder, name, key):
    """(seeds, evaluations)."""
    paths = [folder / f"{name}-seed{seed}" for seed in small_run_folders.SEEDS]
    return np.array(
        [[line[key] for line in small_run_folders.read_lines(path)] for path in paths], float
    )


def line_of(chart, title):
    """The drawn line of a curve, without its band and marks."""
    (line,) = [t for t in chart["data"] if t["name"] == title and t.get("showlegend", True)]
    return np.array(line["x"], float), np.array(line["y"], float)


@pytest.mark.wide
def test_curves_are_medians_over_seeds_against_each_cost(opened, compared):
    for key in ("rounds", "samples", "bytes", "seconds"):
        axis(opened, key)
        column = {"rounds": "round"}.get(key, key)
        x, y = line_of(chart_data(opened), "GT-SGD")
        spent, metric = (history(compared, "gt_sgd", name) for name in (column, "metric"))
        np.testing.assert_allclose(x, np.median(spent, 0), rtol=1e-4)
        np.testing.assert_allclose(y, np.median(metric, 0), rtol=1e-4)
        assert key.rstrip("s") in opened.locator("#curves-chart .xtitle").text_content()


@pytest.mark.wide
def test_links_are_an_axis_and_drawn_by_their_load(visit, tmp_path):
    """A slow link is busy for longer with the same bytes: it is thicker, and says what it lost."""
    linked = network.ring(5).with_links({(0, 1): 1e3, "other": 4e3}, 0.01, 0.5)
    folder = small_run_folders.write_run(
        tmp_path / "runs" / "linked", "dsgd", "D-SGD", network=linked
    )
    page = visit(report.build([folder], tmp_path / "report.html").as_uri())
    page.get_by_role("radio", name="network seconds").check(force=True)
    x, _ = line_of(chart_data(page), "D-SGD")
    spent = [line["network_seconds"] for line in small_run_folders.read_lines(folder)]
    np.testing.assert_allclose(x, spent, rtol=1e-4)
    assert "network seconds" in page.locator("#runs thead").text_content()
    traces = chart_data(page, "network")["data"]
    widths = {
        t["line"]["width"]: np.isin(t["x"], None).sum() for t in traces if t["mode"] == "lines"
    }
    assert widths == {5: 1, 2: 4}
    assert "the thicker, the longer sending took" in page.locator("main").text_content()
    (middles,) = [t for t in traces if t["mode"] == "markers" and t["marker"].get("opacity") == 0]
    sent = small_run_folders.change_manifest(folder)["traffic"][0][2]
    assert middles["text"][0] == (
        f"edge 0\u20131: {sent / 1000:.3g} kB, {sent / 1000:.3g} kB sent again, "
        f"{8 * sent / 1e3 / 0.5:.3g} s at 1000 bit/s"
    )


@pytest.mark.wide
def test_bands_reach_from_the_smallest_to_the_largest_seed(opened, compared):
    bands = [t for t in chart_data(opened)["data"] if t.get("fill") == "toself"]
    (band,) = [t for t in bands if t["name"] == "D-SGD"]
    metric = history(compared, "dsgd", "metric")
    around = [*metric.max(0), *metric.min(0)[::-1]]
    np.testing.assert_allclose(np.array(band["y"], float), around, rtol=1e-4)
    opened.get_by_label("Seeds").select_option("each")
    lines = [t for t in chart_data(opened)["data"] if t["name"] == "D-SGD" and t["mode"] == "lines"]
    np.testing.assert_allclose(np.array([t["y"] for t in lines], float), metric, rtol=1e-4)


@pytest.mark.wide
def test_every_measure_can_be_drawn_on_either_scale(opened):
    select = opened.locator("#measure")
    values = [option.get_attribute("value") for option in select.locator("option").all()]
    names = "upper_loss metric stationarity consensus lower_error local_loss moved definition1"
    assert values[:8] == names.split()
    for value in values:
        select.select_option(value)
        title = select.locator(f"option[value={value}]").inner_text()
        assert chart_data(opened)["layout"]["yaxis"]["title"]["text"] == title
        assert title in opened.locator("#target-label").inner_text()
    for box, name in (("log measure", "yaxis"), ("log cost", "xaxis")):
        before = chart_data(opened)["layout"][name]["type"]
        opened.get_by_label(box).click()
        assert {before, chart_data(opened)["layout"][name]["type"]} == {"log", "linear"}


def test_curves_relative_to_one_are_divided_by_it(opened, compared):
    opened.get_by_label("Relative to").select_option("D-SGD")
    _, y = line_of(chart_data(opened), "GT-SGD")
    ratio = np.median(history(compared, "gt_sgd", "metric"), 0) / np.median(
        history(compared, "dsgd", "metric"), 0
    )
    np.testing.assert_allclose(y, ratio, rtol=1e-4)


@pytest.fixture(scope="module")
def lost_again(compared, browser, tmp_path_factory):
    """Folder and page of the same, but that D-SGD is there at once and loses it again."""
    folder = tmp_path_factory.mktemp("lost")
    compared = shutil.copytree(compared, folder / "small")
    for seed in small_run_folders.SEEDS:
        entries = small_run_folders.read_lines(compared / f"dsgd-seed{seed}")
        entries[1]["metric"] *= 1e-3
        text = "".join(json.dumps(entry) + "\n" for entry in entries)
        (compared / f"dsgd-seed{seed}" / "metrics.jsonl").write_text(text)
    with browser_pages.open_pages(browser) as visit:
        page = visit(report.build([compared], folder / "report.html").as_uri())
        page.locator("#measure").select_option("metric")
        yield compared, page


@pytest.mark.wide
@pytest.mark.parametrize("keep", [True, False])
def test_the_target_says_what_each_algorithm_needed(lost_again, keep):
    compared, opened = lost_again
    target = float(1.001 * history(compared, "dsgd", "metric")[:, -1].max())
    opened.get_by_label("Reached").select_option("keep" if keep else "first")
    opened.get_by_label("exactly").fill(str(target))
    rounds_by_label = {}
    for label, name in small_run_folders.METHODS.items():
        below = history(compared, name, "metric") <= target
        if keep:
            below = np.logical_and.accumulate(below[:, ::-1], axis=1)[:, ::-1]
        rounds = history(compared, name, "round")
        rounds_by_label[label] = np.median(np.where(below, rounds, np.inf).min(1))
    best = min(rounds_by_label.values())
    assert (rounds_by_label["D-SGD"] == 10) is not keep and np.isfinite(rounds_by_label["D-SGD"])
    for label, _, text, *_ in table_rows(opened, "reached"):
        if np.isinf(rounds_by_label[label]):
            assert text == "not reached"
        else:
            rounds = rounds_by_label[label]
            assert text == f"{rounds:.0f} ({rounds / best:.2f}\N{MULTIPLICATION SIGN})"
    verdict = opened.locator("#verdict").inner_text()
    assert (
        verdict.startswith(min(rounds_by_label, key=rounds_by_label.get))
        and f"{best:.0f} rounds" in verdict
    )


@pytest.mark.wide
def test_the_slider_moves_the_target_by_key_and_by_hand(opened):
    opened.get_by_label("Reached").select_option("first")
    slider = opened.locator("#target")
    slider.focus()
    before = float(opened.get_by_label("exactly").input_value())
    opened.keyboard.press("Home")
    assert "not reached" in opened.locator("#reached").inner_text()
    assert "1 of 2" in opened.locator("#reached").inner_text()  # the best seed has it
    opened.keyboard.press("End")
    highest = float(opened.get_by_label("exactly").input_value())
    assert highest > before
    assert all(row[1] == "2 of 2" for row in table_rows(opened, "reached"))
    assert chart_data(opened)["layout"]["shapes"][0]["y0"] == pytest.approx(highest, rel=1e-3)
    assert "≤" in slider.get_attribute("aria-valuetext")


def test_a_metric_that_rises_is_reached_from_below(opened):
    opened.locator("#measure").select_option("moved")
    assert "moved ≥" in opened.locator("#target-label").inner_text()


@pytest.mark.wide
def test_the_network_is_drawn_and_follows_the_rounds(opened, compared):
    chart = chart_data(opened, "network")
    (nodes,) = [t for t in chart["data"] if "text" in t["mode"]]
    assert nodes["text"] == list("01234")
    assert opened.locator("#network-chart .points path.point").count() >= 5
    (edges,) = [t for t in chart["data"] if t["mode"] == "lines"]
    points = list(zip(nodes["x"], nodes["y"]))
    ends = [points[i] for edge in network.ring(5).edges for i in edge]
    drawn = [p for p in zip(edges["x"], edges["y"]) if p[0] is not None]
    assert drawn == ends
    assert nodes["customdata"][0] != "0"
    opened.locator("#frame").focus()
    opened.keyboard.press("Home")
    assert opened.locator("#frame-label").inner_text() == "Round 0 of 40"
    (first,) = [t for t in chart_data(opened, "network")["data"] if "text" in t["mode"]]
    assert first["marker"]["color"] != nodes["marker"]["color"]
    assert first["customdata"] == ["0"] * 5  # all agents start at one point
    opened.get_by_label("Agents by").select_option("upper_loss")
    (losses,) = [t for t in chart_data(opened, "network")["data"] if "text" in t["mode"]]
    expected = small_run_folders.read_lines(compared / "diamond-seed0")[0]["agents"]["upper_loss"]
    np.testing.assert_allclose([float(v) for v in losses["customdata"]], expected, rtol=1e-3)


def test_the_heat_map_has_a_cell_for_every_agent_and_evaluation(opened, compared):
    (cells,) = [t for t in chart_data(opened, "heat")["data"] if t.get("type") == "bar"]
    assert len(cells["x"]) == 5 * 5
    assert opened.locator("#heat-chart .bars path").count() == 25
    expected = [
        line["agents"]["consensus"]
        for line in small_run_folders.read_lines(compared / "diamond-seed0")
    ]
    shown = {(c[1], c[0]): float(c[2]) for c in cells["customdata"]}
    assert shown[40, "agent 3"] == pytest.approx(expected[4][3], rel=1e-2)
    most = np.unravel_index(np.argmax(expected), (5, 5))
    assert cells["marker"]["color"][5 * most[0] + most[1]] == "rgb(253,231,37)"


@pytest.mark.wide
def test_each_agent_has_its_rows_labels_and_loss(opened, compared):
    rows = table_rows(opened, "agents")
    names = [th.inner_text() for th in opened.locator("#agents thead th").all()]
    assert [row[names.index("train rows")] for row in rows] == ["24", "20", "20", "16", "16"]
    bars = opened.locator("#agents svg").all()
    labels = small_run_folders.change_manifest(compared / "diamond-seed0")["problem"]["labels"]
    for svg, counts in zip(bars, labels, strict=True):
        assert svg.locator("rect").count() == len(counts)
        assert ", ".join(map(str, counts)) in svg.get_attribute("aria-label")
    final = small_run_folders.read_lines(compared / "diamond-seed0")[-1]["agents"]["upper_loss"]
    shown = [float(row[names.index("upper loss")]) for row in rows]
    np.testing.assert_allclose(shown, final, rtol=1e-3)


@pytest.mark.wide
def test_another_run_can_be_looked_at(opened, compared):
    opened.locator("#run").select_option(label="D-SGD, seed 1")
    names = [th.inner_text() for th in opened.locator("#agents thead th").all()]
    final = small_run_folders.read_lines(compared / "dsgd-seed1")[-1]["agents"]["local_loss"]
    shown = [float(row[names.index("local loss")]) for row in table_rows(opened, "agents")]
    np.testing.assert_allclose(shown, final, rtol=1e-3)


def test_costs_are_broken_down(opened, compared):
    kinds = {t["name"]: t for t in chart_data(opened, "oracle")["data"]}
    for key, title in (("gradients", "gradients"), ("hvps", "Hessian-vector products")):
        spent = [history(compared, name, key)[:, -1] for name in ("diamond", "dsgd", "gt_sgd")]
        np.testing.assert_allclose(np.array(kinds[title]["x"], float), np.median(spent, 1))
    (sent,) = chart_data(opened, "traffic")["data"]
    assert sent["x"][0] == history(compared, "diamond", "bytes")[0, -1]
    (shares,) = chart_data(opened, "shares")["data"]
    assert sum(shares["y"]) == 2 * sent["x"][0]  # every edge is counted at both its ends


@pytest.mark.wide
def test_each_chart_can_be_saved_in_each_form(opened, compared):
    for chart in CHARTS[:-1]:
        for kind in ("PNG", "SVG", "CSV"):
            opened.wait_for_timeout(150)  # Chromium drops downloads beyond ten a second
            with opened.expect_download() as started:
                opened.get_by_label(f"Save the chart {chart} as {kind}").click()
            saved = started.value
            assert saved.suggested_filename == f"small-{chart}.{kind.lower()}"
            content = saved.path().read_bytes()
            assert content.startswith({"PNG": b"\x89PNG", "SVG": b"<svg"}.get(kind, b""))
            if kind == "CSV":
                rows = list(csv.DictReader(io.StringIO(content.decode())))
                assert len(rows) >= 3 and all(None not in row for row in rows)
            if chart == "curves" and kind == "CSV":
                metrics = [float(row["metric"]) for row in rows if row["algorithm"] == "D-SGD"]
                expected = history(compared, "dsgd", "metric").ravel()
                np.testing.assert_allclose(metrics, expected, rtol=1e-4)


@pytest.mark.wide
def test_colours_follow_the_system_and_the_button(visit, compared, tmp_path):
    address = report.build([compared], tmp_path / "report.html").as_uri()
    page = visit(address, color_scheme="dark")
    shade = lambda: page.evaluate("getComputedStyle(document.body).backgroundColor")
    dark = shade()
    assert sum(int(v) for v in dark[4:-1].split(",")) < 150
    assert chart_data(page)["layout"]["paper_bgcolor"] == dark
    page.get_by_role("button", name="Light colours").click()
    assert shade() == "rgb(255, 255, 255)" == chart_data(page)["layout"]["paper_bgcolor"]
    assert page.get_by_role("button", name="Dark colours").is_visible()


@pytest.mark.wide
def test_it_fits_a_phone(visit, compared, tmp_path):
    runs = shutil.copytree(compared, tmp_path / "small")
    long = small_run_folders.change_manifest(runs / "dsgd-seed0")["network"] | {
        "name": "erdos_renyi(5, p=0.5, seed=0)"
    }
    small_run_folders.change_manifest(runs / "dsgd-seed0", network=long)
    address = report.build([runs], tmp_path / "report.html").as_uri()
    screen = {"viewport": {"width": 360, "height": 780}, "is_mobile": True, "has_touch": True}
    page = visit(address, **screen)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    for chart in CHARTS[:-1]:
        box = page.locator(f"#{chart}-chart").bounding_box()
        assert box["width"] > 300 and box["height"] > 150
    for control in page.locator("select:visible, #theme").all():
        assert control.bounding_box()["height"] >= 44
    page.get_by_role("radio", name="bytes").tap(force=True)
    assert "bytes" in page.locator("#curves-chart .xtitle").text_content()


@pytest.mark.wide
def test_all_controls_have_names_and_can_be_reached_by_key(opened):
    named = "e.ariaLabel || (e.tagName == 'BUTTON' ? e.textContent : e.labels[0]?.innerText)"
    controls = "[...document.querySelectorAll('input, select, button')]"
    assert opened.evaluate(f"{controls}.filter(e => !({named})).map(e => e.id)") == []
    assert opened.evaluate("[...document.querySelectorAll('.plot:not([aria-label])')].length") == 1
    visited = []
    opened.locator("body").press("Tab")
    for _ in range(60):
        visited.append(opened.evaluate("document.activeElement.id || document.activeElement.name"))
        opened.keyboard.press("Tab")
    for name in ("theme", "measure", "axis", "log-y", "target", "keep", "run", "own", "frame"):
        assert name in visited


@pytest.mark.wide
def test_the_configuration_and_the_way_to_repeat_it_are_there(opened, compared):
    manifest = small_run_folders.change_manifest(compared / "dsgd-seed1")
    box = opened.locator("details", has_text="D-SGD, seed 1")
    box.locator("summary").click()
    text = box.inner_text()
    parts = [
        manifest["digest"],
        manifest["command"],
        manifest["versions"]["jax"],
        "0.7454",
        "seed = 1",
    ]
    assert all(part in text for part in parts)
    assert "alpha\n0.05" in text


@pytest.mark.wide
def test_a_sweep_shows_how_sensitive_the_result_is(visit, swept, opened, tmp_path):
    assert not opened.locator("#sensitivity-section").is_visible()
    page = visit(report.build([swept], tmp_path / "sweep.html").as_uri())
    assert page.locator("#option").input_value() == "alpha"
    line, good, bad = chart_data(page, "sensitivity")["data"]
    ends = [
        small_run_folders.read_lines(swept / f"a{a}")[-1]["upper_loss"] for a in (0.01, 0.1, 1.0)
    ]
    assert line["x"] == good["x"] == [0.01, 0.1, 1] and bad["x"] == [50]
    np.testing.assert_allclose(np.array(good["y"], float), ends, rtol=1e-4)
    assert {line["name"], good["name"], bad["name"]} == {"D-SGD"}


@pytest.mark.wide
def test_runs_that_diverged_or_did_not_finish_are_told_of(visit, swept, compared, tmp_path):
    assert small_run_folders.change_manifest(swept / "a50")["status"] == "diverged"
    runs = shutil.copytree(compared, tmp_path / "small")
    small_run_folders.cut_like_a_kill(runs / "gt_sgd-seed0")
    small_run_folders.change_manifest(runs / "gt_sgd-seed1", status="interrupted")
    page = visit(report.build([runs, swept / "a50"], tmp_path / "report.html").as_uri())
    alerts = page.locator("#alerts").inner_text()
    assert "1 run diverged: D-SGD \u00b7 alpha=50.0" in alerts
    assert "stopped before the end: GT-SGD, seed 1" in alerts
    assert "unfinished when this was written: GT-SGD, seed 0" in alerts
    marks = [t for t in chart_data(page)["data"] if t["mode"] == "markers" and t["x"]]
    assert [t["marker"]["symbol"] for t in marks] == ["x"]
    assert {row[1] for row in table_rows(page, "runs")} == {
        "finished",
        "running",
        "interrupted",
        "diverged",
    }


@pytest.mark.wide
def test_a_run_without_evaluations_gives_a_page_all_the_same(visit, compared, tmp_path):
    path = shutil.copytree(compared / "dsgd-seed0", tmp_path / "early")
    small_run_folders.cut_like_a_kill(path)
    (path / "metrics.jsonl").unlink()
    address = report.build([path], tmp_path / "report.html").as_uri()
    page = visit(address, ready="#network-chart .main-svg")
    assert "unfinished" in page.locator("#alerts").inner_text()
    assert page.locator("#network-chart .points path.point").count() >= 5


@pytest.mark.wide
def test_hostile_names_are_shown_as_they_are(visit, compared, tmp_path):
    runs = shutil.copytree(compared, tmp_path / "small")
    for seed in small_run_folders.SEEDS:
        path = runs / f"dsgd-seed{seed}"
        algorithm = small_run_folders.change_manifest(path)["algorithm"] | {"label": HOSTILE}
        small_run_folders.change_manifest(path, algorithm=algorithm, experiment=HOSTILE)
    page = visit(report.build([runs], tmp_path / "report.html").as_uri())
    assert page.locator("h1").inner_text().startswith("small, </script>")
    assert any(row[0].strip() == HOSTILE for row in table_rows(page, "reached"))
    assert page.locator("img").count() == 0
    assert HOSTILE in page.locator("#curves-chart .legend").text_content()


@pytest.mark.wide
def test_a_line_over_several_labels_has_the_name_of_the_algorithm(visit, swept, tmp_path):
    """A sweep's labels say one value each; the line goes over all."""
    runs = shutil.copytree(swept, tmp_path / "sweep")
    for path in runs.iterdir():
        algorithm = small_run_folders.change_manifest(path)["algorithm"]
        small_run_folders.change_manifest(
            path, algorithm=algorithm | {"label": f"D-SGD, {path.name}"}
        )
    page = visit(report.build([runs], tmp_path / "sweep.html").as_uri())
    assert {trace["name"] for trace in chart_data(page, "sensitivity")["data"]} == {"dsgd"}


@pytest.mark.wide
def test_every_column_of_the_agents_fits_a_laptop(visit, compared, tmp_path):
    """With test rows and three metrics of the user's, as the built-in problems have them."""
    path = shutil.copytree(compared / "diamond-seed0", tmp_path / "run")
    problem = small_run_folders.change_manifest(path)["problem"]
    small_run_folders.change_manifest(
        path, problem=problem | {"rows": problem["rows"] | {"test": [100] * 5}}
    )
    lines = small_run_folders.read_lines(path)
    for line in lines:
        line["agents"] |= {name: line["agents"]["moved"] for name in ("accuracy", "test_loss")}
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (path / "metrics.jsonl").write_text(text)
    page = visit(report.build([path], tmp_path / "page.html").as_uri())
    box = page.get_by_role("region", name="Agents of the run")
    assert "bytes" in box.inner_text() and "test loss" in box.inner_text()
    assert box.evaluate("e => e.scrollWidth <= e.clientWidth")


@pytest.mark.wide
def test_on_a_phone_the_legend_of_costs_leaves_its_axis_alone(visit, compared, tmp_path):
    page = visit(
        report.build([compared / "diamond-seed0"], tmp_path / "page.html").as_uri(),
        viewport={"width": 390, "height": 844},
    )
    place = lambda part: page.locator(f"#oracle-chart {part}").first.bounding_box()
    legend, title, bars = place(".legend"), place(".xtitle"), place(".bars")
    assert legend["y"] + legend["height"] <= bars["y"]
    assert bars["y"] + bars["height"] < title["y"]
    buttons = page.locator('[data-chart="oracle"] .exports').bounding_box()
    assert title["y"] + title["height"] <= buttons["y"] + 1


@pytest.mark.wide
def test_the_live_page_follows_a_run_to_its_end(visit, compared, tmp_path):
    runs = shutil.copytree(compared, tmp_path / "small")
    path = runs / "dsgd-seed0"
    content = (path / "metrics.jsonl").read_text()
    end = small_run_folders.change_manifest(path)
    small_run_folders.cut_like_a_kill(path, keep=2)
    with small_run_folders.serve_live_page(runs) as port:
        page = visit(f"http://127.0.0.1:{port}/")
        live_text = re.compile(r"^live: 1 running, [\d,.]+ rounds/s, about \d+ s left$")
        api.expect(page.locator("#live")).to_have_text(live_text, timeout=5000)
        page.locator("#measure").select_option("upper_loss")
        axis(page, "samples")
        row = page.locator("#runs tr", has_text="D-SGD, seed 0")
        assert "10 of 40" in row.inner_text()
        (path / "metrics.jsonl").write_text(content)
        api.expect(row).to_contain_text("40 of 40", timeout=5000)
        (path / "manifest.json").write_text(json.dumps(end))
        api.expect(page.locator("#live")).to_have_text("live: none running", timeout=5000)
        assert page.locator("#measure").input_value() == "upper_loss"  # choices are kept
        x, _ = line_of(chart_data(page), "D-SGD")
        np.testing.assert_allclose(x, np.median(history(compared, "dsgd", "samples"), 0))
    api.expect(page.locator("#live")).to_contain_text("connection lost", timeout=5000)
    assert all("ERR_CONNECTION_REFUSED" in complaint for complaint in page.complaints)
    page.complaints.clear()
