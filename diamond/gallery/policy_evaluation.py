"""Policy evaluation: agents with private rewards estimate the value of a policy together."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree
from ..core.validation import as_int
from ..problem import Problem

SPARSE = 0.3  # concentration of transition laws: few likely successors per state


class Evaluation(Problem):
    """A problem with its closed form on the observed transitions, and the true values."""

    features: np.ndarray  # phi: (states, features)
    next_features: np.ndarray  # mean of phi(s') after each s: (states, features)
    reward: np.ndarray  # mean reward of each s over all agents: (states,)
    values: np.ndarray  # true V(s) = r(s) + discount E[V(s')]: (states,)
    discount: float

    def lower_solution(self, x: np.ndarray) -> np.ndarray:
        """Return y*(x)_s = mean reward of s + discount x'(mean of phi(s') after s)."""
        return self.reward + self.discount * self.next_features @ x

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Return grad l(x) = mean_s (phi(s)'x - y*_s(x)) (phi(s) - discount mean phi(s'))."""
        residuals = self.features @ x - self.lower_solution(x)
        return (self.features - self.discount * self.next_features).T @ residuals / len(residuals)

    def minimizer(self) -> np.ndarray:
        """Return the x of the least mean squared Bellman error."""
        design = self.features - self.discount * self.next_features
        return np.linalg.lstsq(design, self.reward, rcond=None)[0]


def policy_evaluation(
    agents: int = 5,
    states: int = 20,
    features: int = 5,
    visits: int = 10,
    discount: float = 0.8,
    noise: float = 0.1,
    seed: int = 0,
) -> Evaluation:
    """Make a policy evaluation problem.

        f_i = mean_s 1/2 (phi(s)'x - y_s)^2 over all states
        g_i = mean 1/2 (y_s - r_i(s, s') - discount phi(s')'x)^2 over the transitions agent i saw

    The lower level is common: y*_s(x) is the value of s from all agents' transitions, given the
    next state's value by x, and phi(s)'x = y*_s(x) is the Bellman equation of the mean reward
    (Yang, Zhang and Wang, 2022). y stands for the expectation inside the square.

    Args:
        agents, states: sizes.
        features: number of standard normal features phi.
        visits: observed transitions per state and agent.
        discount: discount factor.
        noise: deviation of rewards about r_i(s, s'), which has deviation 1 about 0.
        seed: seed of the process.

    Returns:
        The problem; its metric is the mean squared error of phi'x about the true values, limited by
        the features and the observed transitions.
    """
    sizes = {"agents": agents, "states": states, "features": features, "visits": visits}
    for name, size in sizes.items():
        as_int(name, size, 1)
    if not 0 <= discount < 1:
        raise ValueError(f"discount = {discount}; give 0 to below 1")
    if features > states:
        raise ValueError(f"features = {features} of {states} states; give at most one a state")
    random = np.random.default_rng(as_int("seed", seed, 0))
    P = random.dirichlet(np.full(states, SPARSE), size=states)
    phi = random.normal(size=(states, features))
    means = random.normal(size=(agents, states, states))
    truth = np.linalg.solve(np.eye(states) - discount * P, (P * means.mean(0)).sum(1))
    s = np.repeat(np.arange(states, dtype=np.int32), visits)
    train, next_features, reward = [], np.zeros_like(phi), np.zeros(states)
    for means_of_agent in means:
        next_states = np.concatenate([random.choice(states, visits, p=law) for law in P])
        rewards = means_of_agent[s, next_states] + noise * random.normal(size=len(s))
        train.append({"s": s, "reward": rewards, "next": phi[next_states]})
        next_features += phi[next_states].reshape(states, visits, features).mean(1) / agents
        reward += rewards.reshape(states, visits).mean(1) / agents
    valid_rows = {"s": np.arange(states, dtype=np.int32), "phi": phi, "value": truth}

    def init(key: jax.Array) -> tuple[Tree, Tree]:
        return jnp.zeros(features), jnp.zeros(states)

    def upper(x: Tree, y: Tree, rows: Any) -> jax.Array:
        return jnp.mean((rows["phi"] @ x - y[rows["s"]]) ** 2) / 2

    def lower(x: Tree, y: Tree, rows: Any) -> jax.Array:
        target = rows["reward"] + discount * rows["next"] @ x
        return jnp.mean((y[rows["s"]] - target) ** 2) / 2

    def error(x: Tree, y: Tree, rows: Any) -> jax.Array:
        return jnp.mean((rows["phi"] @ x - rows["value"]) ** 2)

    valid, metrics = [valid_rows] * agents, {"value_error": error}
    problem = Evaluation(upper, lower, init, train, valid, metrics=metrics, lower_level="common")
    problem.features, problem.next_features, problem.reward = phi, next_features, reward
    problem.values, problem.discount = truth, discount
    return problem
