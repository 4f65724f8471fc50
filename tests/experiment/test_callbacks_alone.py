"""What the trackers of experiments are told, without their packages: by stand-ins that note it."""

import sys
from types import SimpleNamespace
from typing import ClassVar

import pytest

from diamond import callbacks

ENTRIES = [{"round": t, "metric": 2.0**-t, "bytes": 8 * t} for t in (0, 10, 20)]


class Store:
    """The part of MLflow's client that is used: experiments, runs, and batches of metrics."""

    experiments: ClassVar[dict] = {}

    def __init__(self, tracking_uri):
        self.uri = tracking_uri
        self.known = self.experiments.setdefault(tracking_uri, {})

    def get_experiment_by_name(self, name):
        return SimpleNamespace(experiment_id=name) if name in self.known else None

    def create_experiment(self, name):
        self.known[name] = {}
        return name

    def create_run(self, number, run_name):
        self.known[number][run_name] = {"metrics": [], "status": "RUNNING"}
        return SimpleNamespace(info=SimpleNamespace(run_id=run_name))

    def _run(self, run):
        return next(runs[run] for runs in self.known.values() if run in runs)

    def log_batch(self, run, metrics):
        self._run(run)["metrics"] += metrics

    def set_terminated(self, run, status="FINISHED"):
        self._run(run)["status"] = status


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr(Store, "experiments", {})
    metric = lambda key, value, timestamp, step: (key, value, step)
    package = SimpleNamespace(MlflowClient=Store, entities=SimpleNamespace(Metric=metric))
    monkeypatch.setitem(sys.modules, "mlflow", package)
    return Store.experiments


def test_every_entry_is_a_batch_of_metrics_at_its_round(store):
    with callbacks.mlflow("study", "somewhere", "first") as log:
        for entry in ENTRIES:
            log(entry)
    run = store["somewhere"]["study"]["first"]
    assert run["status"] == "FINISHED"
    wanted = [(k, float(e[k]), e["round"]) for e in ENTRIES for k in ("metric", "bytes")]
    assert run["metrics"] == wanted


def test_a_second_run_joins_the_experiment_and_one_that_raises_has_failed(store):
    with callbacks.mlflow("study", "somewhere", "first"):
        pass
    with pytest.raises(ZeroDivisionError), callbacks.mlflow("study", "somewhere", "second"):
        _ = 1 / 0
    with pytest.raises(KeyboardInterrupt), callbacks.mlflow("study", "somewhere", "third"):
        raise KeyboardInterrupt
    ends = {name: run["status"] for name, run in store["somewhere"]["study"].items()}
    assert ends == {"first": "FINISHED", "second": "FAILED", "third": "FAILED"}


class Run:
    """A run of Weights & Biases: a block, and what is logged in it."""

    def __init__(self, **given):
        self.given, self.logged, self.open = given, [], False

    def __enter__(self):
        self.open = True

    def __exit__(self, *raised):
        self.open = False

    def log(self, values, step):
        assert self.open
        self.logged.append((step, values))


@pytest.mark.parametrize("options, mode", [({}, "offline"), ({"online": True}, "online")])
def test_nothing_leaves_the_machine_unless_asked(monkeypatch, tmp_path, options, mode):
    made = []
    init = lambda **given: made.append(Run(**given)) or made[-1]
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    with callbacks.wandb("study", tmp_path, **options) as log:
        for entry in ENTRIES:
            log(entry)
    (run,) = made
    assert run.given == {"project": "study", "dir": str(tmp_path), "mode": mode} and not run.open
    wanted = [(e["round"], {"metric": e["metric"], "bytes": e["bytes"]}) for e in ENTRIES]
    assert run.logged == wanted


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_a_package_that_is_not_there_is_named_with_its_extra(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match=rf"install 'diamond-bilevel\[{name}\]'"):
        with getattr(callbacks, name)("study"):
            pass
