"""Template experiments that run as they are, one for each problem of the gallery."""

import inspect
from typing import Any, NamedTuple

from .. import gallery
from ..config.options import parameters, parse_options
from ..config.validation_errors import BadExperiment, Mistake
from ..core.suggestions import did_you_mean
from .template_files import SITES

ROW_ARGUMENTS = ("train", "valid", "test", "classes")  # arguments that a data set provides


class TemplateSettings(NamedTuple):
    """Settings of a template that differ from the problem's defaults."""

    agents: int
    problem: dict[str, Any]
    algorithm: dict[str, Any]
    rounds: int = 500


DIGITS = {"dataset": "digits", "agents": 5}
TABLES = {"dataset": "NAME_{agent}.csv", "label": "target", "scale": "standard"}
FUNCTIONS = {"kind": "NAME.py:make", "agents": 5, "regularizer": 0.1}
PERSONAL = {"name": "diamond", "batch": 16}
COMMON = {"name": "diamond_common", "batch": 32}
LEARNED = {"name": "solve", "batch": 16}
TRACKED_STEPS = {"beta": 0.3, "delta": 0.3, "eta": 0.2, "gamma": 0.2}
CONJUGATE_GRADIENT = {"hypergradient": {"name": "conjugate_gradient", "steps": 10}}
TEMPLATE_SETTINGS = {
    "actor_critic": TemplateSettings(
        9,
        {},
        {"name": "diamond", "batch": 6}
        | {"hypergradient": {"name": "conjugate_gradient", "steps": 6}},
    ),
    "architecture_search": TemplateSettings(5, DIGITS, LEARNED, rounds=600),
    "distillation": TemplateSettings(5, DIGITS, PERSONAL, rounds=300),
    "domain_weights": TemplateSettings(8, {}, LEARNED, rounds=300),
    "fair_weights": TemplateSettings(
        5,
        DIGITS | {"partition": "dirichlet:concentration=0.3"},
        COMMON | {"order": "atc", "alpha": 0.01} | TRACKED_STEPS,
    ),
    "hyper_cleaning": TemplateSettings(5, DIGITS, COMMON | {"alpha": 10.0} | TRACKED_STEPS),
    "hyperparameter": TemplateSettings(5, DIGITS, PERSONAL),
    "meta_learning": TemplateSettings(5, DIGITS, PERSONAL),
    "navigation": TemplateSettings(
        4, {}, {"name": "diamond", "batch": 64} | CONJUGATE_GRADIENT, rounds=300
    ),
    "network_cleaning": TemplateSettings(5, DIGITS, LEARNED, rounds=400),
    "personal_lora": TemplateSettings(
        6,
        {},
        {"name": "f2sa_fused", "batch": 16, "alpha": 0.1, "beta": 0.05, "delta": 0.05},
        rounds=1500,
    ),
    "policy_evaluation": TemplateSettings(5, {}, COMMON),
    "portfolio": TemplateSettings(5, {}, {"name": "scgd", "batch": 16}),
    "quadratic": TemplateSettings(5, {}, PERSONAL),
    "regression": TemplateSettings(SITES, TABLES, PERSONAL),
    "representation": TemplateSettings(5, FUNCTIONS, PERSONAL, rounds=300),
    "rlhf": TemplateSettings(4, {}, LEARNED),
    "robust_regression": TemplateSettings(
        SITES, TABLES, {"name": "gda", "lower_level": "common", "batch": 16}
    ),
    "support_vectors": TemplateSettings(5, DIGITS, PERSONAL),
}
EXPERIMENT_TEXT = """\
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


def experiment_text(name: str, kind: str) -> str:
    """Return NAME.toml of an experiment on the problem `kind`, with all its options."""
    import tomli_w

    if kind not in TEMPLATE_SETTINGS:
        reason = f"no problem {kind!r} to start from; {did_you_mean(kind, TEMPLATE_SETTINGS)}"
        raise BadExperiment("diamond new", [Mistake("--problem", reason)])
    agents, options, algorithm, rounds = TEMPLATE_SETTINGS[kind]
    make = getattr(gallery, kind)
    problem_options = {
        k: v.replace("NAME", name) if isinstance(v, str) else v for k, v in options.items()
    }
    is_own_function = "kind" in options  # options are those of the user's function
    default_options = (
        {}
        if is_own_function
        else parse_options(kind, parameters(make, without=ROW_ARGUMENTS), {}).toml_values
    )
    tables = {"problem": {"kind": kind} | problem_options | default_options, "algorithm": algorithm}
    docstring = (inspect.getdoc(make) or "").split("\nArgs:\n")[0]  # options are in the file
    lines = docstring.strip().splitlines()
    return EXPERIMENT_TEXT.format(
        kind=kind,
        name=name,
        formula="\n".join(f"# {line}".rstrip() for line in lines),
        rounds=rounds,
        every=rounds // 20,
        agents=agents,
        tables=tomli_w.dumps(tables),
    )
