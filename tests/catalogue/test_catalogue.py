"""Every method by its name: the table says what each is made of, and packages add to it."""

import pytest
from helpers import METHODS

import diamond
from diamond import catalogue
from diamond.catalogue import registry

pytestmark = pytest.mark.quick


def test_every_method_says_where_it_is_from_and_how_far_it_was_checked():
    for row in catalogue.methods_table():
        assert all(row), row
    shown = catalogue.markdown()
    assert all(f"| {name} |" in shown for name in METHODS)


def test_packages_bring_methods_by_entry_points(monkeypatch):
    from importlib.metadata import EntryPoint, EntryPoints

    from diamond.config.components import read_algorithm

    group = "diamond.algorithms"
    brought = EntryPoint("theirs", "diamond.algorithms.personal_methods.gt_sgd:gt_sgd", group)
    monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints([brought]))
    monkeypatch.setattr(registry, "_entry_point_methods", registry._entry_point_methods.__wrapped__)
    assert "theirs" in catalogue.names() and catalogue.maker("theirs") is diamond.gt_sgd
    assert read_algorithm({"name": "theirs", "alpha": 0.1}).build() == diamond.gt_sgd(alpha=0.1)
