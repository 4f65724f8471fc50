"""Suites of the benchmark: methods, cases and rules."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import catalogue
from ..core.suggestions import did_you_mean
from ..network import Network
from ..problem import Problem
from . import cases, unseen_cases
from .cases import BenchmarkCase

FIRST_TUNING_SEED = 100  # first seed of the trials; seeds of the runs start at 0
SHORT_TRIAL_SHARE = 1 / 4  # share of rounds in a first trial
CONTINUED_SHARE = 1 / 4  # share of settings that continue
MAX_UNTUNED_SEEDS = 5  # maximum number of seeds without tuning
SUITE_KEYS = ("methods", "settings", "seeds", "tuning_seeds", "cases")


@dataclass(frozen=True)
class Suite:
    """Suite in which every method is tuned on every case with the same number of trials."""

    name: str
    cases: tuple[BenchmarkCase, ...]
    methods: tuple[str, ...]
    settings: int = 16  # per method and case
    seeds: int = 10  # of the final runs
    tuning_seeds: int = 2  # per trial
    source: str = ""  # name or file, from which other processes rebuild the suite
    changes: tuple[tuple[str, Any], ...] = ()  # applied to `source`

    @property
    def pairs(self) -> list[tuple[BenchmarkCase, str]]:
        """List (case, method) for the methods that solve the case."""
        suitable = [suitable_methods(case) for case in self.cases]
        return [
            (case, m) for case, fit in zip(self.cases, suitable) for m in self.methods if m in fit
        ]

    @property
    def untuned_seeds(self) -> int:
        """Return the number of seeds of the runs without tuning."""
        return min(MAX_UNTUNED_SEEDS, self.seeds)

    @property
    def runs(self) -> int:
        """Return the number of runs, including trials and runs without tuning."""
        longer = math.ceil(CONTINUED_SHARE * self.settings) * self.tuning_seeds
        return len(self.pairs) * (self.settings + longer + self.seeds + self.untuned_seeds)


PERSONAL = "diamond gt_sgd dsgd m_sgd interact svr_interact k_free lopa prometheus extra"
PERSONAL += " exact_diffusion f2sa solve"
COMMON = "diamond_common sparkle d_soba ma_dsbo dsbo gossip_dsbo mdbo vrdbo dsgda_gt fab adasdbo"
COMMON += " sldbo s3ldbo sun_dsbo c2dfb solve"
ONE_AGENT = (
    "diamond aid amigo bsa f2sa fsla itd k_free ma_soba mrbo pzobo rsvrb saba soba srba stable"
)
ONE_AGENT += " stocbio sustain ttsa vrbo solve"
LINKS = "diamond gt_sgd dsgd m_sgd k_free push_diging sgp solve"
PAPER = "diamond gt_sgd dsgd m_sgd"
SUITES: dict[str, Suite] = {
    "personal": Suite("personal", cases.PERSONAL, tuple(PERSONAL.split())),
    "common": Suite("common", cases.COMMON, tuple(COMMON.split())),
    "one-agent": Suite("one-agent", cases.ONE_AGENT, tuple(ONE_AGENT.split())),
    "links": Suite("links", cases.LINKS, tuple(LINKS.split())),
    # Drawn before the method `solve` was written.
    "unseen": Suite("unseen", unseen_cases.CASES, tuple(PERSONAL.split())),
    "paper": Suite("paper", (cases.meta_learning, cases.penalties), tuple(PAPER.split())),
}
SUITES["quick"] = Suite(
    "quick",
    tuple(
        replace(case, rounds=400) for case in (cases.quadratic, cases.quadratic_noisy, cases.ridge)
    ),
    tuple(PAPER.split()),
    settings=8,
    seeds=3,
    tuning_seeds=1,
)
SUITES["full"] = Suite(
    "full",
    tuple(
        case for name in ("personal", "common", "one-agent", "links") for case in SUITES[name].cases
    ),
    tuple(name for name in catalogue.names() if name != catalogue.COMPOSED),
)


def suitable_methods(case: BenchmarkCase) -> list[str]:
    """List the methods that can solve the case.

    Methods that store g_yy as a matrix, or a table of all batches, are listed if these fit.
    """
    rows = {n: catalogue.describe_method(n) for n in catalogue.methods_for(case.level, case.kind)}
    stores_tables = lambda row: row.directions == "matrices" or row.estimator == "saga"
    return [name for name, row in rows.items() if case.tables_fit or not stores_tables(row)]


def load_suite(source: str, **changes: Any) -> Suite:
    """Return a suite by its name or TOML file, with `changes` of its fields that are not None."""
    if source in SUITES:
        base = SUITES[source]
    elif source.endswith(".toml"):
        base = _read_suite(Path(source))
    else:
        raise ValueError(f"no suite {source!r}; {did_you_mean(source, SUITES)}, or a file x.toml")
    overrides = {name: value for name, value in changes.items() if value is not None}
    suite = replace(base, **{k: v for k, v in overrides.items() if k != "cases"})
    if names := overrides.get("cases"):
        cases_by_name = {case.name: case for case in suite.cases}
        suite = replace(suite, cases=tuple(_look_up("case", cases_by_name, name) for name in names))
    for name in suite.methods:
        _look_up("method", dict.fromkeys(catalogue.names(), name), name)
    return replace(suite, source=source, changes=tuple(overrides.items()))


def _look_up(kind: str, choices: dict[str, Any], name: str) -> Any:
    if name not in choices:
        raise ValueError(f"no {kind} {name!r}; {did_you_mean(name, choices)}")
    return choices[name]


def _read_suite(path: Path) -> Suite:
    """Read a suite from a file: `cases` are names of cases, or tables as in `diamond run`."""
    from ..config.experiment_file import read_toml  # only needed for files

    raw = read_toml(path)
    if unknown := set(raw) - {*SUITE_KEYS, "name"}:
        first = min(unknown)
        raise ValueError(f"{path}: no key {first!r} of a suite; {did_you_mean(first, SUITE_KEYS)}")
    for key in ("methods", "cases"):
        if not isinstance(raw.get(key), list) or not raw[key]:
            raise ValueError(f"{path}: {key} must be a list of at least one")
    for key in ("settings", "seeds", "tuning_seeds"):
        if not isinstance(raw.get(key, 1), int) or raw.get(key, 1) < 1:
            raise ValueError(f"{path}: {key} = {raw[key]!r} must be a whole number, at least 1")
    cases_by_name = {case.name: case for suite in SUITES.values() for case in suite.cases}
    look_up = lambda name: _look_up("case", cases_by_name, name)
    chosen_cases = [
        look_up(entry) if isinstance(entry, str) else _read_case(entry, path, i)
        for i, entry in enumerate(raw["cases"])
    ]
    numbers = {key: raw[key] for key in ("settings", "seeds", "tuning_seeds") if key in raw}
    return Suite(raw.get("name", path.stem), tuple(chosen_cases), tuple(raw["methods"]), **numbers)


def _read_case(table: dict[str, Any], path: Path, index: int) -> BenchmarkCase:
    """Read a user's case: `problem`, `network`, `rounds`, `batch`, and perhaps a `name`."""
    from ..config.experiment_file import validate  # only needed for files

    table = dict(table)
    name, batch = table.pop("name", f"case-{index}"), table.pop("batch", 16)
    if table.keys() & {"algorithm", "seed"}:
        raise ValueError(f"{path}, case {name}: methods and seeds are the suite's, not a case's")
    experiment = validate({"algorithm": "diamond", "name": name} | table, path.parent, str(path))
    part = experiment.network[0]

    def make() -> tuple[Problem, Network]:
        return experiment.problem.build(), part.build()

    level, kind = experiment.problem.build().lower_level, part.build().kind
    description = {"toml": experiment.to_toml(path.parent), "sources": experiment.sources}
    return BenchmarkCase(
        name, name, make, experiment.rounds, batch, part.label, level, kind, description
    )
