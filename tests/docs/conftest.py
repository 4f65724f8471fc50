"""What tests of the documentation share."""

import importlib.util

import pytest
from pages import DOCS


@pytest.fixture(scope="session")
def hooks():
    pytest.importorskip("latex2mathml", reason="the extra docs is not installed")
    spec = importlib.util.spec_from_file_location("hooks", DOCS / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
