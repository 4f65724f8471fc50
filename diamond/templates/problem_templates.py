"""Template experiments that run as they are, one for each problem of the gallery."""

import inspect
from typing import Any, NamedTuple

from .. import gallery
from ..config.options import parameters, parse_options
from ..config.validation_errors import BadExperiment, Mistake
from ..core.suggestions import did_you_mean
from .template_files import SITES

ROWS = ("train", "valid", "test", "classes")  # arguments that a data set provides


class Start(NamedTuple):
    """Settings of a template that differ from the problem's defaults."""

    agents: int
    problem: dict[str, Any]
    algorithm: dict[str, Any]
    rounds: int = 500


DIGITS = {"dataset": "digits", "agents": 5}
TABLES = {"dataset": "NAME_{agent}.csv", "label": "target", "scale": "standard"}
FUNCTIONS = {"kind": "NAME.py:make", "agents": 5, "regularizer": 0.1}
OWN = {"name": "diamond", "batch": 16}
COMMON = {"name": "diamond_common", "batch": 32}
TRACKED = {"beta": 0.3, "delta": 0.3, "eta": 0.2, "gamma": 0.2}
SOLVED = {"hypergradient": {"name": "conjugate_gradient", "steps": 10}}
STARTS = {
    "actor_critic": Start(
        9,
        {},
        {"name": "diamond", "batch": 6}
        | {"hypergradient": {"name": "conjugate_gradient", "steps": 6}},
    ),
    "distillation": Start(5, DIGITS, OWN, rounds=300),
    "fair_weights": Start(
        5,
        DIGITS | {"partition": "dirichlet:concentration=0.3"},
        COMMON | {"order": "atc", "alpha": 0.01} | TRACKED,
    ),
    "hyper_cleaning": Start(5, DIGITS, COMMON | {"alpha": 10.0} | TRACKED),
    "hyperparameter": Start(5, DIGITS, OWN),
    "meta_learning": Start(5, DIGITS, OWN),
    "navigation": Start(4, {}, {"name": "diamond", "batch": 64} | SOLVED, rounds=300),
    "policy_evaluation": Start(5, {}, COMMON),
    "quadratic": Start(5, {}, OWN),
    "regression": Start(SITES, TABLES, OWN),
    "representation": Start(5, FUNCTIONS, OWN, rounds=300),
    "support_vectors": Start(5, DIGITS, OWN),
}
TEXT = """\
# {kind}:
#
{formula}
#
#   diamond check {name}.toml      report all mistakes and estimate the cost
#   diamond run {name}.toml        run it once, into runs/{name}/
#
# `diamond compare` runs all combinations of lists:  seed = [0, 1, 2]
# Step sizes that are not given are learned.

rounds = {rounds}
every = {every}
seed = 0
network = "er:{agents},p=0.5,seed=0"

{tables}"""


def text(name: str, kind: str) -> str:
    """Return NAME.toml of an experiment on the problem `kind`, with all its options."""
    import tomli_w

    if kind not in STARTS:
        said = f"no problem {kind!r} to start from; {did_you_mean(kind, STARTS)}"
        raise BadExperiment("diamond new", [Mistake("--problem", said)])
    agents, given, algorithm, rounds = STARTS[kind]
    make = getattr(gallery, kind)
    mine = {k: v.replace("NAME", name) if isinstance(v, str) else v for k, v in given.items()}
    own = "kind" in given  # options are those of the user's function
    spelled = {} if own else parse_options(kind, parameters(make, without=ROWS), {}).toml_values
    tables = {"problem": {"kind": kind} | mine | spelled, "algorithm": algorithm}
    text = (inspect.getdoc(make) or "").split("\nArgs:\n")[0]  # options are in the file
    lines = text.strip().splitlines()
    return TEXT.format(
        kind=kind,
        name=name,
        formula="\n".join(f"# {line}".rstrip() for line in lines),
        rounds=rounds,
        every=rounds // 20,
        agents=agents,
        tables=tomli_w.dumps(tables),
    )
