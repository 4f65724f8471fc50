"""The benchmark of the field: every method, every problem, the same rules, on one page."""

from .cases import Case
from .suites import SUITES, Suite, suite

__all__ = ["SUITES", "Case", "Suite", "suite"]
