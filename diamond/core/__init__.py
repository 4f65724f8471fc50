"""Foundations: arithmetic on trees, linear solvers, sampling, cost counters."""
