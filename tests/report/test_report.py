"""The report as a file: whole, harmless, small; and the server of the live page."""

import hashlib
import http.client
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import small_run_folders

from diamond import network, report
from diamond.records.folder_reader import StoredRun
from diamond.records.plot_colors import OKABE_ITO, assign_colours
from diamond.report import figures, report_page
from diamond.report.graph_layout import layout_agents
from diamond.report.report_payload import collect_report_data
from diamond.report.thinning import choose_thinning

HOSTILE = "</script><script>alert(1)</script><!-- {{data}} & \u2028"


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    return small_run_folders.write_comparison(tmp_path_factory.mktemp("runs") / "small")


@pytest.mark.wide
def test_the_solution_is_shown(compared):
    """Three numbers of x, and the round of the smallest upper loss."""
    run = collect_report_data([compared / "diamond-seed0"])["runs"][0]
    losses = {
        e["round"]: e["upper_loss"]
        for e in small_run_folders.read_lines(compared / "diamond-seed0")
    }
    best = min(losses, key=losses.get)
    first, *_ = run["answer"]["sentences"]
    assert first.endswith(f"{losses[0]:.4g} at the start, {losses[best]:.4g} in round {best}.")
    x, y, agents, cost = run["answer"]["sections"]
    assert [line[0] for line in x["cells"]] == ["entry", "x[0]", "x[1]", "x[2]"]
    assert len(agents["cells"]) == len(y["cells"][0]) and cost["cells"][1][0] == f"{max(losses):,}"
    entries = run["answer"]["models"]["values"].items()
    assert [[name, *(f"{v:.4g}" for v in row)] for name, row in entries] == y["cells"][1:]


@pytest.fixture
def runs(compared, tmp_path):
    """A copy to spoil."""
    return shutil.copytree(compared, tmp_path / "small")


class Page(HTMLParser):
    """The elements of a page, and the text of its scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self.open = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.open = (tag, dict(attrs), [])
            self.texts.append(self.open)

    def handle_endtag(self, tag):
        self.open = None

    def handle_data(self, data):
        if self.open:
            self.open[2].append(data)

    def text(self, tag, **attrs):
        parts_found = [t for name, a, t in self.texts if name == tag and attrs.items() <= a.items()]
        return ["".join(parts) for parts in parts_found]


def build_page(folder, tmp_path):
    text = report.build([folder], tmp_path / "report.html").read_text(encoding="utf-8")
    return text, Page(text)


@pytest.mark.wide
def test_it_is_one_small_file_that_asks_for_nothing(compared, tmp_path):
    text, page = build_page(compared, tmp_path)
    assert len(text.encode()) < 2_000_000
    for tag, attrs in page.elements:
        for name in ("src", "href", "action", "data", "srcset", "poster"):
            assert attrs.get(name, "#").startswith(("#", "data:,")), (tag, attrs)
    assert not re.search(r"@import|url\(", page.text("style")[0])
    own_text = text.replace(page.text("script")[1], "")
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", own_text)


def test_it_runs_the_two_scripts_it_came_with_and_no_other(compared, tmp_path):
    _, page = build_page(compared, tmp_path)
    (policy,) = [a["content"] for tag, a in page.elements if a.get("http-equiv")]
    scripts = [text for tag, attrs, parts in page.texts for text in ["".join(parts)]]
    _, _, plotly, own_script = scripts
    assert policy == report_page.security_policy([plotly, own_script], live=False)
    assert "'none'" in policy and "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]
    assert plotly == (report_page.HERE / "vendor/plotly-basic.min.js").read_text()


@pytest.mark.quick
def test_the_vendored_script_is_the_one_that_is_noted_with_its_licence():
    folder = report_page.HERE / "vendor"
    noted = re.search(r"`([0-9a-f]{64})`", (folder / "README.md").read_text())[1]
    assert hashlib.sha256((folder / "plotly-basic.min.js").read_bytes()).hexdigest() == noted
    assert "MIT License" in (folder / "LICENSE").read_text()


def test_every_number_of_every_run_is_in_it(compared, tmp_path):
    _, page = build_page(compared, tmp_path)
    data = json.loads(page.text("script", id="data")[0])
    assert len(data["runs"]) == 6 and data["thinned"] == 1
    for run in data["runs"]:
        path = compared / run["name"]
        lines, manifest = (
            small_run_folders.read_lines(path),
            small_run_folders.change_manifest(path),
        )
        assert set(run["history"]) == set(lines[0]) - {"agents"}
        for key, values in run["history"].items():
            np.testing.assert_allclose(values, [line[key] for line in lines], rtol=1e-5)
        for key, table in run["agents"].items():
            np.testing.assert_allclose(table, [line["agents"][key] for line in lines], rtol=1e-3)
        assert run["frames"] == [0, 10, 20, 30, 40]
        for key in ("digest", "command", "costs", "seed", "rounds", "traffic", "status"):
            assert run[key] == manifest[key]
        assert data["machines"][run["machine"]]["versions"] == manifest["versions"]
        assert set(run["agents"]) == set(lines[0]["agents"]) - {"solver_error"}
        assert run["config"] == (path / "config.toml").read_text()
        assert data["groups"][run["group"]]["label"] == manifest["algorithm"]["label"]
        assert data["problems"][run["problem"]] == manifest["problem"]
    assert [m["key"] for m in data["measures"]][:2] == ["upper_loss", "metric"]
    assert {"key": "moved", "title": "moved", "part": "your metrics"} in data["measures"]
    (drawn,) = data["networks"]
    assert drawn["edges"] == [list(edge) for edge in network.ring(5).edges]


def test_names_and_texts_cannot_break_out_of_their_place(runs, tmp_path):
    path = runs / "diamond-seed0"
    manifest = small_run_folders.change_manifest(path)
    algorithm = manifest["algorithm"] | {"label": HOSTILE, "options": {HOSTILE: HOSTILE}}
    small_run_folders.change_manifest(
        path, experiment=HOSTILE, algorithm=algorithm, message=HOSTILE
    )
    (path / "config.toml").write_text(HOSTILE)
    text, page = build_page(path, tmp_path)
    assert [tag for tag, _ in page.elements].count("script") == 3
    raw = page.text("script", id="data")[0]
    assert "<" not in raw
    data = json.loads(raw)
    assert data["title"] == data["runs"][0]["config"] == data["groups"][0]["label"] == HOSTILE
    assert "alert(1)</script>" not in text.replace(raw, "")


@pytest.mark.wide
def test_it_needs_no_jax(compared, tmp_path):
    code = (
        "import sys; from pathlib import Path; from diamond import report\n"
        "from diamond.report import figures\n"
        f"report.build([Path({str(compared)!r})], Path({str(tmp_path / 'r.html')!r}))\n"
        f"figures.draw_convergence([Path({str(compared)!r})], Path({str(tmp_path)!r}))\n"
        "assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / "r.html").exists() and (tmp_path / "convergence.pdf").exists()


def test_numbers_that_are_none_stay_gaps(runs):
    path = runs / "dsgd-seed0"
    entries = small_run_folders.read_lines(path)
    entries[2] |= {"metric": math.nan, "upper_loss": math.inf}
    entries[2]["agents"]["consensus"][1] = -math.inf
    (path / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    unknown = small_run_folders.change_manifest(path)["network"] | {"lam": None}
    small_run_folders.change_manifest(path, resolved={"lipschitz": math.inf}, network=unknown)
    data = collect_report_data([path])
    text = report_page.dump_compact(data)
    assert "NaN" not in text and "Infinity" not in text
    (run,) = data["runs"]
    assert run["history"]["metric"][2] is run["history"]["upper_loss"][2] is None
    assert run["history"]["metric"][1] is not None
    assert run["agents"]["consensus"][2][1] is None
    assert run["resolved"] == {"lipschitz": "inf"}


def test_a_killed_run_is_read_up_to_its_last_whole_line(runs, tmp_path):
    path = runs / "dsgd-seed0"
    small_run_folders.cut_like_a_kill(path, keep=3)
    _, page = build_page(path, tmp_path)
    (run,) = json.loads(page.text("script", id="data")[0])["runs"]
    assert run["status"] == "running" and run["history"]["round"] == [0, 10, 20]
    assert run["traffic"] == [] and run["digest"] is None


def test_a_run_that_has_measured_nothing_yet_is_shown_too(runs, tmp_path):
    path = runs / "dsgd-seed0"
    small_run_folders.cut_like_a_kill(path)
    (path / "metrics.jsonl").unlink()
    _, page = build_page(path, tmp_path)
    data = json.loads(page.text("script", id="data")[0])
    assert data["measures"] == [] and data["runs"][0]["frames"] == []


@pytest.mark.parametrize("kind", ["manifest", "empty", "absent"])
def test_what_cannot_be_read_is_named(runs, kind):
    path = runs / "dsgd-seed0"
    if kind == "manifest":
        (path / "manifest.json").write_text("{")
        message = r"dsgd-seed0.manifest\.json is damaged .*; run it again"
    elif kind == "empty":
        path = path / "checkpoint"
        path.mkdir()
        message = "dsgd-seed0.checkpoint: no run found"
    else:
        path, message = path / "nowhere", "nowhere: no run found"
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        collect_report_data([path])


def test_runs_are_found_once_wherever_they_are_named(compared):
    for named in ([compared.parent], [compared, compared / "dsgd-seed0"]):
        assert len(collect_report_data(named)["runs"]) == 6


@pytest.mark.wide
def test_much_data_is_thinned_alike_in_all_runs_and_stays_small(runs, tmp_path):
    for path in runs.iterdir():
        entry = small_run_folders.read_lines(path)[1]
        lines = [json.dumps(entry | {"round": t, "metric": 1 / (t + 1)}) for t in range(0, 4001)]
        (path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    text, page = build_page(runs, tmp_path)
    assert len(text.encode()) < 2_000_000
    data = json.loads(page.text("script", id="data")[0])
    step = data["thinned"]
    assert step > 1
    for run in data["runs"]:
        assert run["history"]["round"] == sorted({*range(0, 4001, step), 4000})
        assert run["frames"][0] == 0 and run["frames"][-1] == 4000


def test_of_very_many_runs_the_first_of_every_group_are_kept_in_detail():
    entry = {"round": 0, "metric": 1.0, "agents": {"consensus": [0.0] * 1000}}
    runs = [StoredRun(Path(), {}, [entry] * 50) for _ in range(20)]
    thinning = choose_thinning(runs, [i // 4 for i in range(20)])  # four seeds of five groups
    assert thinning.detailed_runs == {0, 4, 8}  # 10 evaluations of 1,000 agents take 80 kB each
    assert thinning.step == 1 and 50 / thinning.agent_step >= 8
    assert choose_thinning(runs[:1], [0]).detailed_runs == {0} and choose_thinning([], []).step == 1


def test_runs_that_differ_in_their_seed_only_make_one_curve(compared):
    data = collect_report_data([compared])
    assert [group["title"] for group in data["groups"]] == ["DIAMOND", "D-SGD", "GT-SGD"]
    assert sorted(run["group"] for run in data["runs"]) == [0, 0, 1, 1, 2, 2]
    assert data["swept"] == {"diamond": [], "dsgd": [], "gt_sgd": []}


def test_networks_and_options_that_differ_make_curves_of_their_own(runs):
    manifest = small_run_folders.change_manifest(runs / "dsgd-seed0")
    small_run_folders.change_manifest(
        runs / "dsgd-seed0", network=manifest["network"] | {"name": "star(5)"}
    )
    steps = manifest["algorithm"] | {"options": {"alpha": 0.8, "inner": {"terms": 3}}}
    small_run_folders.change_manifest(runs / "dsgd-seed1", algorithm=steps)
    data = collect_report_data([runs])
    titles = [group["title"] for group in data["groups"]]
    assert titles[1:3] == ["D-SGD \u00b7 alpha=0.05, star(5)", "D-SGD \u00b7 alpha=0.8, ring(5)"]
    assert data["groups"][1]["colour"] == data["groups"][2]["colour"]
    assert data["groups"][1]["dash"] != data["groups"][2]["dash"]
    assert data["swept"]["dsgd"] == ["alpha"]
    assert data["runs"][3]["options"] == {"alpha": 0.8, "inner.terms": 3}


def test_a_label_has_the_same_colour_whatever_stands_beside_it():
    assert (
        assign_colours(["GT-SGD"])["GT-SGD"]
        == assign_colours(["gt_sgd", "DIAMOND"])["gt_sgd"]
        == OKABE_ITO[1]
    )
    colours = assign_colours(["DIAMOND", "mine", "yours"])
    assert colours["mine"] == OKABE_ITO[1] and len(set(colours.values())) == 3
    assert len(assign_colours([f"a{i}" for i in range(20)])) == 20


@pytest.mark.quick
@pytest.mark.parametrize(
    "graph",
    [network.ring(6), network.complete(5), network.star(7), network.erdos_renyi(90, 0.1, seed=0)],
    ids=str,
)
def test_agents_are_drawn_apart_and_always_at_the_same_place(graph):
    edges = [list(edge) for edge in graph.edges]
    positions = np.array(layout_agents(graph.agents, edges))
    assert positions.tolist() == layout_agents(graph.agents, edges)
    assert positions.shape == (graph.agents, 2) and np.abs(positions).max() < 1.2
    between = np.linalg.norm(positions[:, None] - positions[None], axis=-1)
    assert between[~np.eye(graph.agents, dtype=bool)].min() > 0.01


@pytest.mark.parametrize("graph", [network.erdos_renyi(9, p=0.3, seed=0), network.torus(4, 5)])
def test_agents_are_as_far_apart_as_there_are_hops_between_them(graph):
    """No worse than networkx's layout by the same measure, each at its best scale."""
    hops = np.array(nx.floyd_warshall_numpy(graph.graph))
    weights = 1 / np.where(hops, hops, np.inf) ** 2

    def stress(points):
        apart = np.linalg.norm(points[:, None] - points[None], axis=-1)
        scale = (weights * apart * hops).sum() / (weights * apart**2).sum()
        return (weights * (scale * apart - hops) ** 2).sum()

    theirs = nx.kamada_kawai_layout(graph.graph)
    expected_stress = stress(np.array([theirs[i] for i in range(graph.agents)]))
    positions = np.array(layout_agents(graph.agents, [list(edge) for edge in graph.edges]))
    assert stress(positions) < 1.001 * expected_stress


def test_one_agent_and_agents_without_edges_have_a_place():
    assert len(layout_agents(1, [])) == 1 and len(layout_agents(6, [[0, 1]])) == 6


@pytest.mark.wide
def test_figures_are_made_from_the_folder_alone_and_always_the_same(compared, tmp_path):
    png, pdf = figures.draw_convergence([compared], tmp_path / "a")
    assert png.read_bytes().startswith(b"\x89PNG") and pdf.read_bytes().startswith(b"%PDF")
    for again, first in zip(figures.draw_convergence([compared], tmp_path / "b"), (png, pdf)):
        assert again.read_bytes() == first.read_bytes()
    beside = figures.draw_convergence([compared], tmp_path / "a", "D-SGD")
    assert [path.name for path in beside] == [
        "convergence-relative.png",
        "convergence-relative.pdf",
    ]
    with pytest.raises(ValueError, match=r"no curve 'X'.* there are DIAMOND, D-SGD, GT-SGD"):
        figures.draw_convergence([compared], tmp_path, "X")


@pytest.mark.wide
def test_a_figure_is_drawn_in_the_formats_asked_for_from_several_folders(compared, tmp_path):
    folders = [compared / "dsgd-seed0", compared / "gt_sgd-seed0"]
    (svg,) = figures.draw_convergence(folders, tmp_path / "a", formats=["svg"])
    text = svg.read_text()
    assert "<svg" in text and "D-SGD" in text and "GT-SGD" in text and "DIAMOND" not in text
    (again,) = figures.draw_convergence(folders, tmp_path / "b", formats=["svg"])
    assert again.read_text() == text


def test_a_curve_is_the_median_and_the_range_of_its_seeds(compared):
    seeds = [
        small_run_folders.read_lines(compared / f"dsgd-seed{seed}")
        for seed in small_run_folders.SEEDS
    ]
    curve = figures.aggregate_seeds(seeds, "metric", "samples")
    metrics = np.array([[line["metric"] for line in entries] for entries in seeds])
    np.testing.assert_allclose(curve["y"], np.median(metrics, 0))
    np.testing.assert_allclose(curve["low"], metrics.min(0))
    np.testing.assert_allclose(curve["high"], metrics.max(0))
    spent = [[line["samples"] for line in entries] for entries in seeds]
    np.testing.assert_allclose(curve["x"], np.median(spent, 0))
    np.testing.assert_allclose(figures.divide_curves(curve, curve)["y"], 1.0)


@pytest.fixture
def live(runs):
    with small_run_folders.serve_live_page(runs) as port:
        yield runs, port


def request(port, path, **headers):
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()


def test_the_live_page_sends_what_is_new_and_only_that(live):
    runs, port = live
    status, headers, text = request(port, "/data.json")
    assert status == 200 and json.loads(text) == collect_report_data([runs])
    assert request(port, "/data.json", **{"If-None-Match": headers["ETag"]})[0] == 304
    entry = small_run_folders.read_lines(runs / "dsgd-seed0")[-1] | {"round": 50}
    with (runs / "dsgd-seed0" / "metrics.jsonl").open("a") as stream:
        stream.write(json.dumps(entry) + "\n")
    status, _, text = request(port, "/data.json", **{"If-None-Match": headers["ETag"]})
    rounds = {run["name"]: run["history"]["round"][-1] for run in json.loads(text)["runs"]}
    assert status == 200 and rounds["dsgd-seed0"] == 50 and rounds["dsgd-seed1"] == 40


def test_the_live_page_is_for_this_machine_and_gives_no_other_file(live):
    _, port = live
    status, _, text = request(port, "/")
    assert status == 200 and "connect-src 'self'" in text and 'data-live="true"' in text
    assert request(port, "/../small/dsgd-seed0/config.toml")[0] == 404
    assert request(port, "/", Host="elsewhere.example")[0] == 403
    assert request(port, "/", Host=f"localhost:{port}")[0] == 200


def test_the_live_page_reports_a_damaged_folder_too(live):
    runs, port = live
    (runs / "dsgd-seed0" / "manifest.json").write_text("{")
    status, _, text = request(port, "/data.json")
    assert status == 500 and "is damaged" in text


def test_ctrl_c_ends_the_server(compared):
    # A shell that starts tests in the background has them ignore SIGINT, and so their children.
    code = "import pathlib, signal, diamond; signal.signal(2, signal.default_int_handler); "
    code += f"diamond.report.serve(pathlib.Path({str(compared)!r}))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        port = int(re.fullmatch(r"http://127\.0\.0\.1:(\d+)/  \(Ctrl-C ends\)\n", line)[1])
        assert request(port, "/data.json")[0] == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_command_tells_the_address_once_it_serves(compared, tmp_path):
    """The browser is a script that asks for the page it is told to open."""
    browser = tmp_path / "browser"
    fetch = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).status)"
    browser.write_text(f'#!/bin/sh\n"{sys.executable}" -c "{fetch}" "$1" > "{tmp_path}/seen"\n')
    browser.chmod(0o755)
    code = "import signal; signal.signal(2, signal.default_int_handler); "
    code += "from diamond.cli import app; app()"
    words = [sys.executable, "-c", code, "live", str(compared), "--json", "--open"]
    env = os.environ | {"BROWSER": f"{browser} %s &"}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env)
    try:
        text = "".join(iter(process.stdout.readline, "}\n")) + "}"
        answer = json.loads(text)
        port = int(re.fullmatch(r"http://127\.0\.0\.1:(\d+)/", answer["address"])[1])
        assert request(port, "/data.json")[0] == 200 and answer["folder"] == str(compared)
        until = time.monotonic() + 20
        while time.monotonic() < until and not read_if_exists(tmp_path / "seen"):
            time.sleep(0.05)
        assert read_if_exists(tmp_path / "seen") == "200\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def read_if_exists(path):
    return path.read_text() if path.exists() else ""


def test_a_folder_without_runs_is_refused_before_serving(tmp_path):
    with pytest.raises(FileNotFoundError, match="no run found"):
        report.serve(tmp_path)
