"""Entries reach the real trackers, kept in a temporary folder, and are read back by them."""

import sqlite3
import sys

import pytest
from fast_compilation import measure_losses_only, without_optimizations

import diamond
from diamond import callbacks

ENTRIES = [{"round": t, "metric": 2.0**-t, "bytes": 8 * t} for t in (0, 10, 20)]


def tell(log):
    for entry in ENTRIES:
        log(entry)


def installed(package, extra):
    return pytest.importorskip(package, reason=f"the extra {extra} is not installed")


def test_tensorboard_reads_the_history_of_a_run(tmp_path, monkeypatch):
    measure_losses_only(monkeypatch)
    installed("tensorboardX", "tensorboard")
    from tensorboardX.proto.event_pb2 import Event

    problem = diamond.gallery.quadratic(agents=2, upper=2, lower=2, rows=6)
    chain = diamond.hypergradient.neumann(3, 9.0)
    algorithm = diamond.dsgd(0.01, 0.1, batch=2, hypergradient=chain)
    with without_optimizations(), callbacks.tensorboard(tmp_path) as log:
        network = diamond.network.path(2)
        run = diamond.simulate(problem, network, algorithm, 6, every=3, on_evaluation=log)
    (path,) = tmp_path.iterdir()
    events = [Event.FromString(record) for record in records(path.read_bytes())]
    found = {(v.tag, e.step): v.simple_value for e in events for v in e.summary.value}
    assert {tag for tag, _ in found} == {*run.history} - {"round"}
    for name in ("metric", "upper_loss", "bytes"):
        for t, value in zip(run.history["round"], run.history[name]):
            assert found[name, t] == pytest.approx(value)


def records(content):
    """The records of an event file: length, its checksum, the record, its checksum."""
    while content:
        length = int.from_bytes(content[:8], "little")
        yield content[12 : 12 + length]
        content = content[16 + length :]


@pytest.mark.filterwarnings("ignore")  # of the package's own
def test_mlflow_keeps_every_entry_and_how_the_run_ended(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("DO_NOT_TRACK", "true")
    package = installed("mlflow", "mlflow")
    installed("sqlalchemy", "mlflow")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    with callbacks.mlflow("study", uri, "first") as log:
        tell(log)
    with pytest.raises(ZeroDivisionError), callbacks.mlflow("study", uri, "second"):
        _ = 1 / 0
    client = package.MlflowClient(tracking_uri=uri)
    number = client.get_experiment_by_name("study").experiment_id
    runs = {run.info.run_name: run.info for run in client.search_runs([number])}
    assert {name: run.status for name, run in runs.items()} == {
        "first": "FINISHED",
        "second": "FAILED",
    }
    history = client.get_metric_history(runs["first"].run_id, "metric")
    assert [(m.step, m.value) for m in history] == [(t, 2.0**-t) for t in (0, 10, 20)]
    with sqlite3.connect(tmp_path / "mlflow.db") as store:
        assert store.execute("select count(*) from metrics").fetchone() == (6,)


@pytest.mark.filterwarnings("ignore")  # of the package's own
def test_wandb_writes_offline(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "own"))
    installed("wandb", "wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    with callbacks.wandb("study", tmp_path) as log:
        tell(log)
    (path,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    found = []
    for content in logged(path.read_bytes()):
        record = Record.FromString(content)
        if record.HasField("history"):
            items = {i.key or i.nested_key[0]: i.value_json for i in record.history.item}
            found.append((int(items["_step"]), float(items["metric"]), float(items["bytes"])))
    assert found == [(e["round"], e["metric"], e["bytes"]) for e in ENTRIES]


def logged(content):
    """The records of a log in LevelDB's format: blocks of 32 kB, a record in one or more pieces."""
    place, whole, block = 7, b"", 32768
    while place < len(content):
        if block - place % block < 7:
            place += block - place % block  # no room for a header: padding
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        whole += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield whole
            whole = b""


def test_a_package_that_is_not_there_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ModuleNotFoundError, match=r"diamond-bilevel\[tensorboard\]"):
        with callbacks.tensorboard("events"):
            pass
