"""Step sizes without curvature, for lower levels that are large or not strongly convex.

Where y*(x) cannot be solved for, a curvature of g_yy bounds the steps of y far below what a network
needs. There, x moves by distance over gradients after a short rest, and y and z by Adam.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...auto.adaptive_optimizers import Adam, DistanceOverGradients, adam_rate
from ...schedules.learned import learned_names
from ...schedules.step_schedules import Constant

if TYPE_CHECKING:
    from .composed import ComposedAlgorithm


def with_adaptive_steps(method: "ComposedAlgorithm", problem: Any) -> Any:
    """Return the method with optimizers for the steps that it leaves open, if it needs them.

    On a problem whose lower level is solved for, only a method whose directions must not start at
    y*(x) has its x moved by distance over gradients.
    """
    if problem.lower_level == "none":
        return method
    is_solved = problem.has_lower_solution
    rate = None if is_solved else adam_rate(problem.lower_size)
    variables = {}
    for name, variable in method.variables.items():
        if variable.optimizer is not None or not learned_names(variable.step):
            continue
        if name == "x" and not (is_solved and method.directions.allows_solved_lower_level):
            variables[name] = with_optimizer(variable, DistanceOverGradients())
        elif name != "x" and not is_solved:
            variables[name] = with_optimizer(variable, Adam(rate))
    return replace(method, **variables) if variables else method


def with_optimizer(variable: Any, optimizer: Any) -> Any:
    """Return the variable with this optimizer; its step size is the factor of the updates."""
    return replace(variable, step=Constant(1.0), optimizer=optimizer)
