"""Implicit differentiation: minimizers, roots and fixed points as differentiable functions."""

from .hypergradient_estimate import HypergradientEstimate, hypergradient
from .solution_maps import argmin, fixed_point, root

__all__ = ["HypergradientEstimate", "argmin", "fixed_point", "hypergradient", "root"]
