"""Every entry of the gallery runs from the file that `diamond new` writes, at a tiny size."""

import inspect
import json
import math
import re

import pytest
from fast_compilation import measure_losses_only, skip_loss_checks, without_optimizations
from pages import ROOT
from tiny_experiment import run_experiment

from diamond import gallery
from diamond.config.experiment_file import load
from diamond.templates.experiment_template import write_experiment
from diamond.templates.problem_templates import TEMPLATE_SETTINGS

ROWS = ("problem.rows=60", "problem.agents=2")
STEPS = ("algorithm.alpha=0.01", "algorithm.beta=0.01")
MOMENTUM = ("algorithm.eta=0.5", "algorithm.gamma=0.5")
CHAIN = ('algorithm.hypergradient={name="neumann",terms=2,lipschitz=9.0}',)
SMALL = {
    "actor_critic": ("problem.agents=2", "problem.states=2", "problem.actions=2"),
    "architecture_search": (*ROWS, "problem.channels=1", "problem.layers=1"),
    "distillation": ROWS,
    "domain_weights": (
        *("problem.agents=2", "problem.width=8", "problem.layers=1", "problem.heads=2"),
        *("problem.length=6", "problem.vocabulary=8", "problem.rows=8"),
    ),
    "fair_weights": (*ROWS, 'problem.partition="iid"'),
    "hyper_cleaning": ROWS,
    "hyperparameter": ROWS,
    "meta_learning": (*ROWS, "problem.widths=[2]"),
    "navigation": ("problem.agents=2", "problem.evaluation=8"),
    "network_cleaning": (*ROWS, "problem.channels=[2]"),
    "personal_lora": ("problem.agents=2", "problem.widths=[4]", "problem.rows=8"),
    "policy_evaluation": ("problem.agents=2", "problem.states=3", "problem.features=2"),
    "portfolio": ("problem.agents=2", "problem.assets=2"),
    "quadratic": ("problem.agents=2",),
    "regression": (),
    "representation": ("problem.agents=2",),
    "rlhf": (
        *("problem.agents=2", "problem.prompts=3", "problem.answers=2"),
        *('algorithm.name="dsgd"', *STEPS, *CHAIN),  # two rounds of solve move nothing
    ),
    "robust_regression": (),
    "support_vectors": ROWS,
}


def changes(kind):
    """The entry made small; steps are given, since finding them is compiled too."""
    steps = {
        "diamond": (*STEPS, *MOMENTUM, *CHAIN),
        "diamond_common": (*STEPS, *MOMENTUM, "algorithm.delta=0.01"),
        "f2sa_fused": STEPS,
        "gda": STEPS,
        "scgd": STEPS,
        "solve": (),
    }[TEMPLATE_SETTINGS[kind].algorithm["name"]]
    network = () if "regression" in kind else ('network="ring:2"',)
    return ["rounds=2", "every=2", "algorithm.batch=2", *network, *steps, *SMALL[kind]]


@pytest.mark.wide(keep=["distillation", "fair_weights", "navigation"])
@pytest.mark.parametrize("kind", TEMPLATE_SETTINGS)
def test_an_entry_runs(kind, tmp_path, monkeypatch, float32):
    skip_loss_checks(monkeypatch)
    measure_losses_only(monkeypatch)
    monkeypatch.chdir(tmp_path)
    path, *_ = write_experiment(tmp_path, "mine", kind)
    with without_optimizations():
        run_experiment(load(path, changes(kind)), tmp_path / "run")
    first, last = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    assert (first["round"], last["round"]) == (0, 2)
    assert math.isfinite(last["upper_loss"]) and last["upper_loss"] != first["upper_loss"]


@pytest.mark.quick
def test_every_problem_is_an_entry_with_its_own_section_and_picture():
    kinds = {name for name in gallery.__all__ if inspect.isfunction(getattr(gallery, name))}
    page = (ROOT / "docs" / "reference" / "gallery.md").read_text()
    assert (
        kinds == set(TEMPLATE_SETTINGS) == set(SMALL) == set(re.findall(r"^## (\w+)$", page, re.M))
    )
    assert "`diamond new NAME --problem KIND`" in page
    for kind in kinds:
        section = page.split(f"\n## {kind}\n")[1].split("\n## ")[0]
        (picture,) = re.findall(r"!\[[^]]+\]\(([^)]+\.png)\)", section)
        assert (ROOT / "docs" / "reference" / picture).is_file()
