"""Run folders: what is written, read back, and made a table of."""

import csv
import io
import json
import subprocess
import sys

import numpy as np
import pytest
from fast_compilation import without_optimizations
from tiny_experiment import run_experiment, tiny

import diamond
from diamond.problem.agent_rows import count_labels
from diamond.records import folder_reader
from diamond.records.folder_writer import Writer
from diamond.records.manifest import tabulate_labels
from diamond.records.metrics_file import MetricsFile
from diamond.records.result_table import average_over_seeds, format_csv, format_latex, make_rows
from diamond.records.trajectory_digest import digest_checkpoint, digest_trajectory

PER_AGENT = {"consensus": np.array([0.25, 0.5], np.float32)}


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two seeds of one experiment, below one folder."""
    path = tmp_path_factory.mktemp("runs")
    with without_optimizations():
        for seed in (0, 1):
            run_experiment(tiny(seed=seed), path / "both" / f"seed{seed}")
    return path


def test_the_manifest_says_what_the_run_was(two):
    manifest = folder_reader.open_run(two / "both" / "seed1").manifest
    assert (manifest["format"], manifest["status"], manifest["message"]) == (1, "finished", "")
    assert manifest["versions"]["diamond"] == diamond.__version__
    assert manifest["precision"] == "float32" and manifest["seed"] == 1 and manifest["batch"] == 2
    assert (manifest["rounds"], manifest["every"], manifest["sampling"]) == (24, 3, "blocks")
    ring = manifest["network"]
    assert ring["edges"] == [[0, 1], [0, 2], [1, 2]] and ring["mixing"] == "laplacian"
    assert ring["lam"] == diamond.network.ring(3).lam
    problem = manifest["problem"]
    assert (problem["agents"], problem["x_size"], problem["y_size"]) == (3, 2, 2)
    assert problem["rows"] == {"train": [6, 6, 6], "valid": [6, 6, 6]}
    assert manifest["algorithm"]["options"]["hypergradient"] == {"name": "neumann", "terms": 3}
    assert manifest["resolved"] == {}  # nothing is measured before the first round
    lines = folder_reader.open_run(two / "both" / "seed1").lines
    assert np.mean(manifest["costs"]["samples"]) == lines[-1]["samples"]
    assert sum(sent for *_, sent in manifest["traffic"]) == lines[-1]["bytes"]
    assert manifest["started"] <= manifest["finished"] and manifest["wall_seconds"] > 0


def test_the_lines_are_the_history_of_the_run(two):
    """The same run by `diamond.simulate`, number for number."""
    experiment = tiny(seed=1)
    with without_optimizations(), diamond.experiment.jobs.use_precision(experiment):
        parts = experiment.problem.build(), experiment.network[0].build()
        expected = diamond.simulate(*parts, experiment.algorithm[0].build(), 24, 1, 3)
    lines = folder_reader.open_run(two / "both" / "seed1").lines
    assert {*lines[0]} == {*expected.history, "agents"}
    for name, values in expected.history.items():
        if name != "seconds":
            np.testing.assert_array_equal([line[name] for line in lines], values)
    for name, values in expected.per_agent.items():
        np.testing.assert_array_equal([line["agents"][name] for line in lines], values)
    stored_run = folder_reader.open_run(two / "both" / "seed1")
    assert (
        digest_trajectory(lines, expected.last_x, expected.last_y) == stored_run.manifest["digest"]
    )


def test_the_digest_knows_every_bit_but_the_clock():
    lines = [{"round": 0, "metric": 0.1, "seconds": 3.0}]
    x, y = {"w": np.arange(4.0)}, np.zeros((2, 2))
    first = digest_trajectory(lines, x, y)
    assert digest_trajectory([{**lines[0], "seconds": 4.0}], x, y) == first
    assert (
        digest_checkpoint(lines, {".state.x['w']": x["w"], ".state.y": y, ".state.y_old": x["w"]})
        == first
    )
    nearly = {"w": np.nextafter(x["w"], 9)}
    for other in (
        digest_trajectory([{**lines[0], "metric": np.nextafter(0.1, 1)}], x, y),
        digest_trajectory(lines, nearly, y),
        digest_trajectory(lines, {"w": x["w"].astype(np.float32)}, y),
        digest_trajectory(lines, x, y.reshape(4)),
        digest_trajectory(lines * 2, x, y),
    ):
        assert other != first


def test_torn_lines_are_left_out_and_cut_off(tmp_path):
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    assert metrics.lines() == [] and metrics.truncate(5) == []
    for round in (0, 5, 10):
        metrics.append({"round": round, "metric": float("inf")}, PER_AGENT)
    content = metrics.path.read_bytes()
    for cut in range(len(content)):
        metrics.path.write_bytes(content[:cut])
        assert [line["round"] for line in metrics.lines()] == [0, 5, 10][
            : content[:cut].count(b"\n")
        ]
    metrics.path.write_bytes(content + b'{"round": 15, "agents": {}')
    assert [line["round"] for line in metrics.truncate(5)] == [0, 5]
    metrics.append({"round": 10, "metric": 1.0}, PER_AGENT)
    np.testing.assert_array_equal([line["metric"] for line in metrics.lines()], [np.nan] * 2 + [1])
    assert metrics.lines()[0]["agents"] == {"consensus": [0.25, 0.5]}


def test_what_is_not_finite_is_strict_json_and_read_as_nan(tmp_path):
    refuse = {"parse_constant": lambda name: pytest.fail(f"{name} is no JSON")}
    metrics, odd = MetricsFile(tmp_path / "metrics.jsonl"), [np.inf, -np.inf, np.nan]
    metrics.append(
        {"round": 0, "metric": np.float64(odd[0]), "loss": 1.5}, {"own": np.array(odd, np.float32)}
    )
    written = json.loads(metrics.path.read_text(), **refuse)
    assert written == {"round": 0, "metric": None, "loss": 1.5, "agents": {"own": [None] * 3}}
    (line,) = metrics.lines()
    np.testing.assert_array_equal([line["metric"], *line["agents"]["own"]], [np.nan] * 4)
    assert line["loss"] == 1.5
    with Writer(tmp_path) as writer:
        rest = dict.fromkeys(("problem", "algorithm", "network", "seed"), 0)
        numbers = {"ratio": np.inf, "beta": 0.5}
        writer.update_manifest(**rest, status="diverged", finished=None, resolved=numbers)
    json.loads((tmp_path / "manifest.json").read_text(), **refuse)
    manifest = folder_reader.open_run(tmp_path).manifest
    assert np.isnan(manifest["resolved"]["ratio"]) and manifest["resolved"]["beta"] == 0.5
    assert manifest["finished"] is None


def test_labels_are_counted_where_there_are_labels():
    rows = [{"a": np.zeros((3, 2)), "b": np.array([0, 2, 2])}, {"a": np.ones((1, 2)), "b": [7]}]
    table_of = lambda agents: tabulate_labels([count_labels(rows) for rows in agents])
    assert table_of([rows[0], {"a": rows[1]["a"], "b": np.array([7])}]) == [[1, 2, 0], [0, 0, 1]]
    assert table_of([{"a": np.zeros((3, 2))}] * 2) is None
    assert table_of([{"b": np.arange(500)}]) is None  # numbers, not classes
    assert table_of([{"b": np.arange(60)}, {"b": np.arange(60, 120)}]) is None
    assert table_of([{"b": np.arange(3), "c": np.arange(3)}]) is None


def test_tables_of_runs(two):
    table = make_rows(folder_reader.open_runs([two]))
    assert [row["run"] for row in table] == ["seed0", "seed1"]
    assert [row["seed"] for row in table] == [0, 1]
    read = list(csv.DictReader(io.StringIO(format_csv(table))))
    assert [float(line["metric"]) for line in read] == [row["metric"] for row in table]
    (mean,) = average_over_seeds(table)
    both = [row["upper_loss"] for row in table]
    assert mean["upper_loss"] == pytest.approx(np.mean(both))
    assert mean["upper_loss_sd"] == pytest.approx(np.std(both, ddof=1))
    assert (mean["seeds"], mean["diverged"]) == (2, 0)
    text = format_latex([mean | {"network": "er_9 & 100%"}], ["network", "upper_loss"])
    assert r"er\_9 \& 100\% & " in text and r" $\pm$ " in text and r"\bottomrule" in text


def test_runs_that_diverged_are_counted_apart():
    sound = {"algorithm": "a", "network": "n", "status": "finished", "metric": 1.0}
    diverged = sound | {"status": "diverged", "metric": float("inf")}
    (mean,) = average_over_seeds([sound, diverged])
    assert (mean["metric"], mean["metric_sd"], mean["diverged"]) == (1.0, 0.0, 1)
    (none,) = average_over_seeds([diverged])
    assert "metric" not in none and none["diverged"] == 1


def test_where_there_is_no_run_it_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="no run found"):
        folder_reader.open_runs([tmp_path])
    assert folder_reader.find_runs(tmp_path) == []


def test_an_altered_folder_has_another_digest(two, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(two / "both" / "seed0", copy)
    stored_run = folder_reader.open_run(copy)
    assert stored_run.digest() == stored_run.manifest["digest"]
    text = (copy / "metrics.jsonl").read_text().splitlines()
    last = json.loads(text[-1])
    last["metric"] *= 1.0000001
    (copy / "metrics.jsonl").write_text("\n".join([*text[:-1], json.dumps(last)]) + "\n")
    assert folder_reader.open_run(copy).digest() != stored_run.manifest["digest"]


def test_folders_are_read_without_jax():
    code = "import sys, diamond.records.result_table, diamond.records.folder_reader as _; "
    code += "print('jax' in sys.modules)"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == "False"
