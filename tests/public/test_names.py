"""The names of the package: one list, for users and for type checkers."""

import re
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

import diamond
from diamond import catalogue

MODULES = {"algorithms", "callbacks", "cost", "data", "estimators", "gallery", "hypergradient"}
PLUGINS = {point.name for point in entry_points(group="diamond.algorithms")}
MODULES |= {"implicit", "network", "prox", "report", "schedules", "interface", "theory"}
MODULES |= {"torch", "tree"}


def test_every_public_name_is_imported_on_first_access():
    code = "from diamond import *; print(simulate.__name__, Problem.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["simulate", "Problem"]
    for name in diamond.__all__:
        value = getattr(diamond, name)
        assert value.__name__.split(".")[-1] == name
        assert callable(value) == (name not in MODULES)
    with pytest.raises(AttributeError, match="module 'diamond' has no attribute 'dimond'"):
        _ = diamond.dimond
    with pytest.raises(AttributeError, match="no attribute 'gtsgd'; did you mean gt_sgd"):
        _ = diamond.gtsgd


def test_a_listing_shows_the_public_names_alone():
    assert [name for name in dir(diamond) if not name.startswith("__")] == diamond.__all__


def test_every_method_of_the_catalogue_is_a_public_name():
    methods = {*catalogue.names()} - PLUGINS
    assert methods <= {*diamond.__all__}
    others = {name for name in diamond.__all__ if hasattr(getattr(diamond, name), "__module__")}
    made_of_files = {
        n
        for n in others
        if re.fullmatch(
            rf"diamond\.algorithms(\.\w+_methods)?\.{n}", getattr(diamond, n).__module__
        )
    }
    assert made_of_files == methods - {"solve"}  # `diamond.solve` runs the method of that name


@pytest.mark.parametrize("earlier, name", [("schedule", "schedules"), ("algorithm", "interface")])
def test_earlier_names_of_modules_warn(earlier, name):
    sys.modules.pop(f"diamond.{earlier}", None)
    vars(diamond).pop(earlier, None)
    with pytest.warns(FutureWarning, match=f"diamond.{earlier} is diamond.{name} now"):
        module = getattr(diamond, earlier)
    assert {*getattr(diamond, name).__dict__} >= {n for n in vars(module) if n[0].isupper()} > set()


def test_public_modules_are_modules():
    code = (
        "import diamond.schedules; from diamond.prox import box; print(diamond.schedules.power(1))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Power(c=1.0")
    assert diamond.schedules.power is sys.modules["diamond.schedules"].power
