"""An experiment that is over in a blink, and one who watches it."""

from pathlib import Path

from diamond.config.experiment_file import read
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
    return read(TINY | changes, Path(), "tiny.toml")


class Silent:
    """Watches, and remembers what was said."""

    def __init__(self, on_progress=lambda entries: None):
        self.said, self.on_progress = [], on_progress

    def begin(self, name, rounds):
        self.name = name, rounds

    def stage(self, name, said):
        pass

    def progress(self, name, entries):
        self.on_progress(entries)

    def say(self, name, message):
        self.said.append(message)

    def end(self, name, manifest):
        self.said.append(manifest["status"])


def run(experiment, path, watch=None, stopped=lambda: False, problem=None):
    """Run the one job of `experiment` in the folder `path`."""
    with jobs.precision(experiment):
        problem = problem or jobs.build(experiment, "tiny.toml")
        (job,) = jobs.jobs(experiment)
        return execute(job, problem, path, watch or Silent(), stopped)
