"""An experiment that is over in a blink, and one who watches it."""

from pathlib import Path

from diamond.config.experiment_file import validate
from diamond.experiment import jobs
from diamond.experiment.execution import execute

TINY = {
    "name": "tiny",
    "rounds": 24,
    "every": 3,
    "network": "ring:3",
    "problem": {"kind": "quadratic", "agents": 3, "upper": 2, "lower": 2, "rows": 6},
    "algorithm": {
        "name": "diamond",
        "batch": 2,
        "steps": {"alpha": 0.05, "beta": 0.2, "eta": 0.3, "gamma": 0.3},
        "hypergradient": {"name": "neumann", "terms": 3},
    },
}
TOML = """
rounds = 24
every = 3
network = "ring:3"
problem = {kind = "quadratic", agents = 3, upper = 2, lower = 2, rows = 6}
[algorithm]
name = "diamond"
batch = 2
steps = {alpha = 0.05, beta = 0.2, eta = 0.3, gamma = 0.3}
hypergradient = {name = "neumann", terms = 3}
"""


def tiny(**changes):
    """The experiment, with top-level keys changed."""
    return validate(TINY | changes, Path(), "tiny.toml")


class RecordingListener:
    """Watches, and remembers what was said."""

    def __init__(self, on_progress=lambda entries: None):
        self.messages, self.on_progress = [], on_progress

    def begin(self, name, rounds):
        self.name = name, rounds

    def stage(self, name, messages):
        pass

    def progress(self, name, entries):
        self.on_progress(entries)

    def say(self, name, message):
        self.messages.append(message)

    def end(self, name, manifest):
        self.messages.append(manifest["status"])


def run_experiment(experiment, path, listener=None, stopped=lambda: False, problem=None):
    """Run the one job of `experiment` in the folder `path`."""
    with jobs.use_precision(experiment):
        problem = problem or jobs.build_problem(experiment, "tiny.toml")
        (job,) = jobs.expand_jobs(experiment)
        return execute(job, problem, path, listener or RecordingListener(), stopped)
