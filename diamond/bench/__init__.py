"""Benchmark of all methods on all problems by the same rules."""

from .cases import BenchmarkCase
from .suites import SUITES, Suite, load_suite

__all__ = ["SUITES", "BenchmarkCase", "Suite", "load_suite"]
