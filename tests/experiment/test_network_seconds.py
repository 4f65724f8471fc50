"""Networks with links in files, folders, tables, forecasts and reports."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tiny_experiment import TINY, run_experiment, tiny
from typer.testing import CliRunner

import diamond
from diamond.cli import app
from diamond.cli.terminal_tables import select_columns
from diamond.config.experiment_file import load
from diamond.config.validation_errors import BadExperiment
from diamond.experiment.comparison_runner import compare
from diamond.records.export import export_solution
from diamond.records.folder_reader import open_run
from diamond.records.result_table import make_rows
from diamond.report import figures
from diamond.report.report_payload import AXES, collect_report_data, list_axes

LINKS = {"rate": 1e4, "latency": 0.01, "loss": 0.05, "joules_per_bit": 1e-6}
NETWORK = {"graph": "ring", "agents": 3, "links": LINKS}
SIZE = 2 * 2 * 4  # bytes of x and u
EACH = 0.01 + 8 * SIZE / 1e4 / 0.95


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("links") / "tiny"
    run_experiment(tiny(network=NETWORK), path)
    return path


def test_a_folder_keeps_links_and_counts(folder):
    found = diamond.load(folder)
    rounds = found.history["round"]
    np.testing.assert_allclose(found.history["network_seconds"], rounds * EACH, rtol=1e-9)
    np.testing.assert_allclose(found.history["joules"], rounds * 6 * SIZE * 8e-6 / 0.95, rtol=1e-9)
    assert (
        found.network.links.to_options()
        == diamond.network.ring(3).with_links(**LINKS).links.to_options()
    )
    again = load(folder / "config.toml").network[0]
    assert again.options["links"] == LINKS
    (row,) = make_rows([open_run(folder)])
    assert row["network_seconds"] == pytest.approx(24 * EACH) and row["joules"] > 0
    assert {"network_seconds", "joules"} < set(select_columns([row]))
    (history,) = [
        path for path in export_solution(open_run(folder), "csv") if path.stem == "history"
    ]
    assert "network_seconds,joules" in history.read_text().splitlines()[0]


def test_the_same_digest_as_without_links_and_after_a_stop(folder, tmp_path):
    run_experiment(tiny(), tmp_path / "plain")
    with pytest.raises(KeyboardInterrupt):
        run_experiment(tiny(network=NETWORK), tmp_path / "stopped", stopped=lambda: True)
    run_experiment(tiny(network=NETWORK), tmp_path / "stopped")
    digests = [open_run(path).manifest["digest"] for path in (folder, tmp_path / "plain")]
    assert digests[0] == digests[1] == open_run(tmp_path / "stopped").manifest["digest"]
    course = lambda path: [line["network_seconds"] for line in open_run(path).lines]
    assert course(folder) == course(tmp_path / "stopped")


def test_the_report_has_the_axis_the_places_and_the_links(folder, tmp_path):
    pytest.importorskip("matplotlib")
    found = collect_report_data([folder])
    assert list(found["axes"])[-2:] == ["network_seconds", "joules"]
    assert not {"network_seconds", "joules"} & {measure["key"] for measure in found["measures"]}
    assert found["networks"][0]["links"]["rate"] == 1e4
    plain = replace(open_run(folder), lines=[{"round": 0, "agents": {}}])
    assert list(list_axes([open_run(folder), plain])) == list(AXES) == list(list_axes([plain]))
    waiting = replace(plain, lines=[])
    assert list_axes([open_run(folder), waiting]) == found["axes"]
    assert found["runs"][0]["history"]["network_seconds"][-1] == pytest.approx(24 * EACH, rel=1e-5)
    drawn = figures.draw_convergence([folder], tmp_path, formats=["svg"])
    assert drawn[0].read_text().count("links") == 1
    figure = diamond.load(folder).plot(along="network_seconds")
    assert {axis.get_xlabel() for axis in figure.axes if axis.axison} == {"network_seconds"}
    with pytest.raises(ValueError, match="along = 'hours' is no column of the history"):
        diamond.load(folder).plot(tmp_path / "run.png", along="hours")


def test_a_run_made_in_python_is_loaded_with_its_places_and_links(folder, tmp_path, float32):
    places = [(0.0, 0.0), (0.0, 0.2), (0.3, 0.0)]
    network = diamond.network.wireless(positions=places, radius=0.5).with_links(latency=0.1)
    loaded = diamond.load(folder)
    made = compare(
        loaded.problem, network, {"mine": tiny().algorithm[0].build()}, rounds=3, every=3
    )
    heading, line = made.table().splitlines()
    assert heading.split()[-2:] == ["network", "seconds"]
    assert float(line.split()[-1]) == pytest.approx(
        made.runs["mine", 0].history["network_seconds"][-1], rel=1e-3
    )
    path = made.save(tmp_path / "made") / "mine-seed0"
    again = diamond.load(path, loaded.problem).network
    assert again.name == network.name and again.links.to_options() == network.links.to_options()
    drawn = np.array(collect_report_data([path])["networks"][0]["positions"])
    shape = lambda points: np.linalg.norm(points[1:] - points[0], axis=1)
    np.testing.assert_allclose(shape(drawn) / shape(drawn)[0], [1, 1.5], rtol=1e-3)


@pytest.mark.parametrize(
    "links, message",
    [
        ({"rate": 0}, "network.links: rate of link 0-1 is 0 bit/s; it must be above 0"),
        ({"rate": 1e6, "loss": 1}, "network.links: loss of link 0-1 is 1; it must be"),
        ({"rate": 1e6, "latency": -1}, "network.links: latency of link 0-1 is -1 s"),
        ({"rate": {"0-7": 1.0}}, "network.links: rate: the network has no link 0-7"),
        ({"rate": 1e6, "latnecy": 1}, "network.links.latnecy: is no option of links; did you mean"),
        ({"rate": 1e6, "half_duplex": 1}, "network.links.half_duplex: must be true or false"),
        ({"latency": 1}, "network.links: links need a rate"),
        (7, "network.links: must be a table, as in {rate = 1e6, latency = 0.01}, not 7"),
    ],
)
def test_mistakes_are_named(links, message):
    with pytest.raises(BadExperiment) as error:
        tiny(network={"graph": "ring", "agents": 3, "links": links})
    assert message in str(error.value)


def test_links_in_a_text_and_the_picture_of_a_network(tmp_path):
    pytest.importorskip("matplotlib")
    text = "wireless:6,radius=0.6,latency=0.01,shared_medium=true"
    part = tiny(network=text, problem=TINY["problem"] | {"agents": 6}).network[0]
    assert part.label == text and part.options["links"] == {"latency": 0.01, "shared_medium": True}
    assert part.build().links.shared_medium
    asked = ["network", text, "--picture", str(tmp_path / "n.png"), "--json"]
    shown = json.loads(CliRunner().invoke(app, asked).stdout)
    assert (
        shown["latency_most"] == 0.01 and shown["turns"] == int(part.build().links.turns.max()) + 1
    )
    assert 0 < shown["rate_least"] < shown["rate_most"] and 0 < shown["loss_most"] < 1


@pytest.mark.wide
def test_check_forecasts_the_seconds_and_a_budget_needs_links(tmp_path):
    file = tmp_path / "tiny.toml"
    text = (
        "rounds = 24\nevery = 3\nstop = {network_seconds = 1}\n"
        'problem = {kind = "quadratic", agents = 3, upper = 2, lower = 2, rows = 6}\n'
        'algorithm = {name = "diamond", batch = 2, alpha = 0.05, beta = 0.2, eta = 0.3, '
        'gamma = 0.3, hypergradient = {name = "neumann", terms = 3, lipschitz = 2.0}}\n'
    )
    links = '{graph = "ring", agents = 3, links = {rate = 1e4, latency = 0.01, loss = 0.05}}'
    file.write_text(f"network = {links}\n{text}")
    result = CliRunner().invoke(app, ["check", str(file), "--json"])
    assert result.exit_code == 0, result.output
    (shown,) = json.loads(result.stdout)["runs"]
    assert shown["network_seconds"] == pytest.approx(24 * EACH)
    file.write_text(f'network = "ring:3"\n{text}')
    refused = CliRunner().invoke(app, ["check", str(file)])
    assert refused.exit_code == 2 and "network_seconds needs a network with links" in refused.output
