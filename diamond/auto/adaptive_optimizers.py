"""Optimizers that need no step size: Adam for networks, and distance over gradients for x.

Each has the interface of optax: `init(parameters)`, and `update(direction, state, parameters)`,
which returns the update to add, and the next state. optax itself is not needed.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from ..core import pytrees
from ..core.pytrees import Number, Tree
from .step_learning import TINY

REST = 20  # rounds in which y and z move alone
FIRST_LENGTH = 1e-2  # of the first step, relative to unit + ||x_0||
# x sees the effect of a step only after y has followed, in some 20 rounds.
CAP = 0.05  # longest step relative to the distance from the start
DAMPING = 0.3  # ratio of the step size to distance over gradients
RATE, RATE_SIZE, LARGEST_RATE = 1e-3, 1e6, 3e-3  # of Adam for a network of RATE_SIZE numbers


def adam_rate(size: int) -> float:
    """Return the rate of Adam for y of `size` numbers: it falls with the cube root of the size."""
    return min(LARGEST_RATE, RATE * (RATE_SIZE / max(size, 1)) ** (1 / 3))


class Optimizer:
    """Optimizer of one variable, with the interface of optax."""

    has_step_size: ClassVar[bool] = False  # whether `step_size` exists, which a prox needs
    learns_step: ClassVar[bool] = False  # whether it finds its step size during the run

    def init(self, parameters: Tree) -> Any:
        """Return the state before the first update."""
        raise NotImplementedError

    def update(self, direction: Tree, state: Any, parameters: Tree) -> tuple[Tree, Any]:
        """Return the update to add to the parameters, and the next state."""
        raise NotImplementedError

    def step_size(self, direction: Tree, state: Any, parameters: Tree) -> Number:
        """Return the step size of the next update."""
        raise NotImplementedError


class AdamState(NamedTuple):
    """Number of updates, and moving averages of gradients and of their squares."""

    updates: jax.Array
    mean: Tree
    square: Tree


@pytrees.pytree
class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015); its averages of squares forget faster than by default."""

    rate: Number
    mean_decay: Number = 0.9
    square_decay: Number = 0.99
    epsilon: Number = 1e-8

    def init(self, parameters: Tree) -> AdamState:
        zero = pytrees.zeros(parameters)
        return AdamState(jnp.zeros((), jnp.int32), zero, zero)

    def update(self, direction: Tree, state: AdamState, parameters: Tree) -> tuple[Tree, AdamState]:
        b, c = self.mean_decay, self.square_decay
        count = state.updates + 1
        mean = jax.tree.map(lambda m, d: _mix(b, m, d), state.mean, direction)
        square = jax.tree.map(lambda v, d: _mix(c, v, d * d), state.square, direction)

        def step(m: jax.Array, v: jax.Array) -> jax.Array:
            power = count.astype(m.dtype)
            corrected = m / (1 - jnp.asarray(b, m.dtype) ** power)
            spread = jnp.sqrt(v / (1 - jnp.asarray(c, m.dtype) ** power))
            return jnp.asarray(-self.rate, m.dtype) * corrected / (spread + self.epsilon)

        return jax.tree.map(step, mean, square), AdamState(count, mean, square)


def _mix(decay: Number, old: jax.Array, new: jax.Array) -> jax.Array:
    weight = jnp.asarray(decay, old.dtype)
    return weight * old + (1 - weight) * new


class DistanceState(NamedTuple):
    """Number of updates, the start, the largest distance from it, and the sum of squares."""

    updates: jax.Array
    start: Tree
    distance: jax.Array
    gradient_sum: jax.Array
    alpha: jax.Array  # the last step size


@pytrees.pytree
class DistanceOverGradients(Optimizer):
    """Step size c max_s ||x_s - x_0|| / sqrt(sum_s ||u_s||^2) (DoG: Ivgi, Hinder, Carmon, 2023).

    x rests for the first rounds, in which y and z approach their solutions. The first step has the
    length 0.01 (unit + ||x_0||), later steps at most 0.05 of the largest distance from the start.
    c = 0.3: a network follows x in some 20 rounds, and longer steps overshoot.
    """

    rest: Number = REST
    unit: Number = 1.0  # 0 if x does not start at zero
    has_step_size = learns_step = True

    def init(self, parameters: Tree) -> DistanceState:
        zero = jnp.zeros((), jnp.result_type(*jax.tree.leaves(parameters)))
        return DistanceState(jnp.zeros((), jnp.int32), parameters, zero, zero, zero)

    def step_size(self, direction: Tree, state: DistanceState, parameters: Tree) -> jax.Array:
        """Return the step size of this round."""
        return self._next(direction, state, parameters).alpha

    def update(
        self, direction: Tree, state: DistanceState, parameters: Tree
    ) -> tuple[Tree, DistanceState]:
        """Return the update of this round, and the next state."""
        following = self._next(direction, state, parameters)
        return pytrees.scale(-following.alpha, direction), following

    def _next(self, direction: Tree, state: DistanceState, parameters: Tree) -> DistanceState:
        size, moves = pytrees.norm(direction), state.updates >= self.rest
        distance = jnp.maximum(state.distance, pytrees.norm(pytrees.sub(parameters, state.start)))
        gradient_sum = jnp.where(moves, state.gradient_sum + size**2, 0.0)
        first = FIRST_LENGTH * (self.unit + pytrees.norm(state.start))
        whole = jnp.maximum(distance, first) * size / jnp.sqrt(gradient_sum + TINY)
        longest = jnp.maximum(CAP * distance, first)
        length = jnp.minimum(jnp.minimum(whole, longest), jnp.maximum(DAMPING * whole, first))
        alpha = jnp.where(moves, length / (size + TINY), 0.0)
        return DistanceState(state.updates + 1, state.start, distance, gradient_sum, alpha)
