"""Benchmark of all methods on all problems by the same rules."""

from .cases import Case
from .suites import SUITES, Suite, suite

__all__ = ["SUITES", "Case", "Suite", "suite"]
