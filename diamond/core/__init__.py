"""Arithmetic on trees, linear solvers by products, sampling, counting: what all else stands on."""
