"""Solvers of argmin_y g(y) by name, each ending with an estimate of its error."""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp

from ..core import linear_solvers, newton, pytrees
from ..core.newton import CG_STEPS
from ..core.pytrees import Tree
from .argument_checks import check_like_guess

LBFGS_STEPS = 500

Loss = Callable[[Tree], jax.Array]
Solver = Literal["newton", "conjugate_gradient", "lbfgs"] | Callable[[Loss, Tree], Tree]
# y, state of the optimizer, previous loss, whether the loss decreases, steps
LbfgsCarry = tuple[Tree, Tree, jax.Array, jax.Array, jax.Array]
Find = Callable[[Tree], tuple[Tree, jax.Array]]  # y0 -> y and its error


def choose_minimizer(solver: Solver, loss: Loss, tolerance: float, steps: int) -> Find:
    """Return the minimizer of `loss` that `solver` names."""

    def minimize(y0: Tree) -> tuple[Tree, jax.Array]:
        found = newton.minimize(jax.grad(loss), y0, tolerance, steps)
        return found.y, found.error

    if solver == "newton":
        return minimize
    if solver == "conjugate_gradient":
        return lambda y0: _minimize_quadratic(loss, y0, tolerance)
    if solver == "lbfgs":
        run_lbfgs = _import_lbfgs()
        return lambda y0: minimize(run_lbfgs(loss, y0))
    if not callable(solver):
        raise ValueError(
            f"solver = {solver!r}; there are 'newton', 'conjugate_gradient' and 'lbfgs', or give a "
            f"function (loss, y0) -> y"
        )

    def polish(y0: Tree) -> tuple[Tree, jax.Array]:
        check_like_guess("solver(loss, y0)", lambda y0: solver(loss, y0), y0)
        return minimize(solver(loss, y0))

    return polish


def _minimize_quadratic(loss: Loss, y0: Tree, tolerance: float) -> tuple[Tree, jax.Array]:
    """Solve one Newton system; the error is its length times the relative residual."""
    gradient = jax.grad(loss)
    value, product = jax.linearize(gradient, y0)
    scales = linear_solvers.row_scales(product, y0)
    move = linear_solvers.scaled_solve(product, value, scales, CG_STEPS, tolerance / 10)[0]
    y = pytrees.sub(y0, move)
    size, remaining = pytrees.norm(value), pytrees.norm(gradient(y))
    residual = remaining / jnp.where((size == 0) & (remaining == 0), 1, size)
    return y, residual * pytrees.norm(move) / (1 + pytrees.norm(y))


def _import_lbfgs() -> Callable[[Loss, Tree], Tree]:
    """Return L-BFGS of optax; raise ImportError with the remedy if optax is not installed."""
    try:
        import optax
    except ImportError:
        raise ImportError(
            "solver = 'lbfgs' needs optax: pip install 'diamond-bilevel[optax]'"
        ) from None

    def run_lbfgs(loss: Loss, y0: Tree) -> Tree:
        """Run L-BFGS until rounding prevents further decrease of the loss: Newton does the rest."""
        optimizer = optax.lbfgs()
        evaluate = optax.value_and_grad_from_state(loss)

        def step(carry: LbfgsCarry) -> LbfgsCarry:
            y, state, previous, _, k = carry
            value, gradient = evaluate(y, state=state)
            move, state = optimizer.update(
                gradient, state, y, value=value, grad=gradient, value_fn=loss
            )
            return optax.apply_updates(y, move), state, value, value < previous, k + 1

        unfinished = lambda carry: carry[3] & (carry[4] < LBFGS_STEPS)
        infinite = jnp.full_like(loss(y0), jnp.inf)
        start = (y0, optimizer.init(y0), infinite, infinite > 0, jnp.int32(0))
        return jax.lax.while_loop(unfinished, step, start)[0]

    return run_lbfgs
