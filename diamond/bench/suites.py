"""Suites of the benchmark: methods, cases and rules."""

import math
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import catalogue
from ..core.suggestions import did_you_mean
from ..network import Network
from ..problem import Problem
from . import cases, unseen_cases
from .cases import Case

TUNING = 100  # first seed of the trials; seeds of the runs start at 0
SHORT, KEPT = 1 / 4, 1 / 4  # share of rounds in a first trial; share of settings that continue
UNTUNED = 5  # maximum number of seeds without tuning
KEYS = ("methods", "settings", "seeds", "tuning_seeds", "cases")


@dataclass(frozen=True)
class Suite:
    """Suite in which every method is tuned on every case with the same number of trials."""

    name: str
    cases: tuple[Case, ...]
    methods: tuple[str, ...]
    settings: int = 16  # per method and case
    seeds: int = 10  # of the final runs
    tuning_seeds: int = 2  # per trial
    source: str = ""  # name or file, from which other processes rebuild the suite
    changes: tuple[tuple[str, Any], ...] = ()  # applied to `source`

    @property
    def pairs(self) -> list[tuple[Case, str]]:
        """List (case, method) for the methods that solve the case."""
        return [(case, m) for case in self.cases for m in self.methods if m in meeting(case)]

    @property
    def untuned_seeds(self) -> int:
        """Return the number of seeds of the runs without tuning."""
        return min(UNTUNED, self.seeds)

    @property
    def runs(self) -> int:
        """Return the number of runs, including trials and runs without tuning."""
        longer = math.ceil(KEPT * self.settings) * self.tuning_seeds
        return len(self.pairs) * (self.settings + longer + self.seeds + self.untuned_seeds)


PERSONAL = "diamond gt_sgd dsgd m_sgd interact svr_interact k_free lopa prometheus extra"
PERSONAL += " exact_diffusion f2sa solve"
COMMON = "diamond_common sparkle d_soba ma_dsbo dsbo gossip_dsbo mdbo vrdbo dsgda_gt fab adasdbo"
COMMON += " sldbo solve"
ALONE = "diamond aid amigo bsa f2sa itd k_free ma_soba mrbo rsvrb saba soba stable stocbio sustain"
ALONE += " ttsa vrbo solve"
LINKS = "diamond gt_sgd dsgd m_sgd k_free push_diging sgp solve"
PAPER = "diamond gt_sgd dsgd m_sgd"
SUITES: dict[str, Suite] = {
    "personal": Suite(
        "personal",
        (
            cases.quadratic,
            cases.quadratic_noisy,
            cases.quadratic_stiff,
            cases.ridge,
            cases.penalties,
            cases.support_vectors,
            cases.meta_learning,
            cases.actor_critic,
        ),
        tuple(PERSONAL.split()),
    ),
    "common": Suite(
        "common",
        (
            cases.common_quadratic,
            cases.common_noisy,
            cases.common_wide,
            cases.hyper_cleaning,
            cases.hyper_cleaning_skewed,
            cases.policy_evaluation,
        ),
        tuple(COMMON.split()),
    ),
    "one-agent": Suite(
        "one-agent",
        (
            cases.alone_quadratic,
            cases.alone_stiff,
            cases.alone_ridge,
            cases.alone_penalties,
            cases.alone_cleaning,
            cases.alone_meta_learning,
        ),
        tuple(ALONE.split()),
    ),
    "links": Suite(
        "links",
        (
            cases.links_perfect,
            cases.links_dropping,
            cases.links_four_bits,
            cases.links_one_way,
            cases.links_one_peer,
        ),
        tuple(LINKS.split()),
    ),
    "unseen": Suite(  # drawn before the method `solve` was written
        "unseen",
        (
            unseen_cases.network_below,
            unseen_cases.condition_10000,
            unseen_cases.sparse_64,
            unseen_cases.heavy_tails,
            unseen_cases.uneven,
            unseen_cases.tiny_x,
        ),
        tuple(PERSONAL.split()),
    ),
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


def meeting(case: Case) -> list[str]:
    """List the methods that can solve the case.

    Methods that store g_yy as a matrix, or a table of all batches, are listed if these fit.
    """
    right = catalogue.solving(case.level, case.kind)
    return [name for name in right if case.tables or not _keeps(catalogue.row(name))]


def _keeps(row: catalogue.Row) -> bool:
    return row.directions == "matrices" or row.estimator == "saga"


def suite(source: str, **changes: Any) -> Suite:
    """Return a suite by its name or TOML file, with `changes` of its fields that are not None."""
    if source in SUITES:
        found = SUITES[source]
    elif source.endswith(".toml"):
        found = _read(Path(source))
    else:
        raise ValueError(f"no suite {source!r}; {did_you_mean(source, SUITES)}, or a file x.toml")
    given = {name: value for name, value in changes.items() if value is not None}
    made = replace(found, **{k: v for k, v in given.items() if k != "cases"})
    if names := given.get("cases"):
        known = {case.name: case for case in made.cases}
        made = replace(made, cases=tuple(_chosen("case", known, name) for name in names))
    for name in made.methods:
        _chosen("method", dict.fromkeys(catalogue.names(), name), name)
    return replace(made, source=source, changes=tuple(given.items()))


def _chosen(kind: str, known: dict[str, Any], name: str) -> Any:
    if name not in known:
        raise ValueError(f"no {kind} {name!r}; {did_you_mean(name, known)}")
    return known[name]


def _read(path: Path) -> Suite:
    """Read a suite from a file: `cases` are names of cases, or tables as in `diamond run`."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as cause:
        raise ValueError(f"{path} is not valid TOML: {cause}") from None
    if unknown := set(raw) - {*KEYS, "name"}:
        first = min(unknown)
        raise ValueError(f"{path}: no key {first!r} of a suite; {did_you_mean(first, KEYS)}")
    for key in ("methods", "cases"):
        if not isinstance(raw.get(key), list) or not raw[key]:
            raise ValueError(f"{path}: {key} must be a list of at least one")
    for key in ("settings", "seeds", "tuning_seeds"):
        if not isinstance(raw.get(key, 1), int) or raw.get(key, 1) < 1:
            raise ValueError(f"{path}: {key} = {raw[key]!r} must be a whole number, at least 1")
    known = {case.name: case for found in SUITES.values() for case in found.cases}
    made = [
        _chosen("case", known, one) if isinstance(one, str) else _own(one, path, i)
        for i, one in enumerate(raw["cases"])
    ]
    numbers = {key: raw[key] for key in ("settings", "seeds", "tuning_seeds") if key in raw}
    return Suite(raw.get("name", path.stem), tuple(made), tuple(raw["methods"]), **numbers)


def _own(table: dict[str, Any], path: Path, place: int) -> Case:
    """Read a user's case: `problem`, `network`, `rounds`, `batch`, and perhaps a `name`."""
    from ..config.experiment_file import read  # only needed for files

    table = dict(table)
    name, batch = table.pop("name", f"case-{place}"), table.pop("batch", 16)
    if table.keys() & {"algorithm", "seed"}:
        raise ValueError(f"{path}, case {name}: methods and seeds are the suite's, not a case's")
    experiment = read({"algorithm": "diamond", "name": name} | table, path.parent, str(path))
    part = experiment.network[0]

    def make() -> tuple[Problem, Network]:
        return experiment.problem.build(), part.build()

    level, kind = experiment.problem.build().lower_level, part.build().kind
    about = {"toml": experiment.toml(path.parent), "sources": experiment.sources}
    return Case(name, name, make, experiment.rounds, batch, part.label, level, kind, about)
