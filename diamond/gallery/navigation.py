"""Cooperative navigation on a plane: an actor-critic problem with a stream of transitions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree
from ..core.validation import as_int
from ..problem import Problem, stream

PATH_STEPS = 60  # steps of a path for a return
LANDMARK_RANGE = 0.8  # landmarks are in [-0.8, 0.8]^2, agents start in [-1, 1]^2


class Navigation(Problem):
    """m agents on a plane, and a landmark l_i known to agent i alone, which defines its reward.

    s holds the positions p_1 .. p_m of all agents. Agent j moves by u_j = x_j (s, 1), and

        r_i(s, u) = -|p_{i+1} - l_i|^2 - effort |u_i|^2,    s' = s + u, within walls at -1 and 1

    so the reward of agent i depends on the position of the next agent, not on its own.
    """

    landmarks: np.ndarray  # (agents, 2)
    discount: float
    effort: float

    def path(self, x: Any, start: Any, steps: int = PATH_STEPS) -> jax.Array:
        """Return the positions of the agents (2 m numbers) after 0, 1, ... steps from `start`."""
        return _path(x, jnp.asarray(start), steps)

    def returns(self, x: Any, starts: Any) -> jax.Array:
        """Return every agent's discounted return, the mean over `starts`."""
        return _returns(x, jnp.asarray(starts), self.landmarks, self.discount, self.effort)

    def optimal_policy(self) -> tuple[float, np.ndarray]:
        """Return the largest mean return of all policies, and its x, by the Riccati equation.

        Optimal paths go straight to the landmarks, so the walls do not matter.
        """
        m = self.agents
        n = 2 * m
        Q, R = np.zeros((n + 1, n + 1)), self.effort / m * np.eye(n)
        for i, landmark in enumerate(self.landmarks):
            C = np.zeros((2, n + 1))
            C[:, 2 * ((i + 1) % m) : 2 * ((i + 1) % m) + 2] = np.eye(2)
            C[:, -1] = -landmark
            Q += C.T @ C / m
        B, P = np.eye(n + 1, n), Q
        for _ in range(10_000):
            gain = self.discount * np.linalg.solve(R + self.discount * B.T @ P @ B, B.T @ P)
            next_P = Q + self.discount * (P - P @ B @ gain)
            if np.abs(next_P - P).max() < 1e-12:
                break
            P = next_P
        second_moment = np.diag(
            [*np.full(n, 1 / 3), 1.0]
        )  # E (s, 1) (s, 1)' of the initial positions
        return -float(np.trace(P @ second_moment)), -gain.reshape(m, 2, n + 1)


def navigation(
    agents: int = 4,
    discount: float = 0.6,
    effort: float = 0.3,
    evaluation: int = 500,
    *,
    seed: int = 0,
) -> Navigation:
    """Make a cooperative navigation problem.

        f_i = -E_start V_y(s),  V_y(s) = phi(s)'y, the policy's value by agent i's critic y
        g_i = E_s 1/2 (V_y(s) - r_i(s, u) - discount V_y(s'))^2, its Bellman error, u = x (s, 1)

    x (agents, 2, 2 agents + 1) is the shared linear policy of all; the rewards are those of
    `Navigation`. phi are all products of two coordinates, orthonormal over the plane, so that away
    from walls V_y* is the value of the policy for agent i, and the hypergradient the exact policy
    gradient. States are a stream: each is drawn afresh, and the simulator computes its successor
    under the current policy, with gradients through the simulator.

    Args:
        agents: number of agents.
        discount: discount factor.
        effort: weight of |u_i|^2.
        evaluation: evaluation states per agent.
        seed: seed of the landmarks and states.

    Returns:
        The problem; its metric `return` is the mean return of the agents from the evaluation
        states.
    """
    as_int("agents", agents, 2)
    if not 0 <= discount < 1:
        raise ValueError(f"discount = {discount}; give 0 to below 1")
    if not effort > 0:
        raise ValueError(f"effort = {effort} must be positive: moves would have no limit")
    random = np.random.default_rng(as_int("seed", seed, 0))
    landmarks = random.uniform(-LANDMARK_RANGE, LANDMARK_RANGE, (agents, 2))
    width = _features(jnp.zeros(2 * agents)).shape[0]

    def draw(key: jax.Array, agent: jax.Array) -> Tree:
        s = jax.random.uniform(key, (2 * agents,), minval=-1.0, maxval=1.0)
        return {"s": s, "agent": agent, "landmark": jnp.asarray(landmarks, s.dtype)[agent]}

    def init(key: jax.Array) -> tuple[Tree, Tree]:
        return jnp.zeros((agents, 2, 2 * agents + 1)), jnp.zeros(width)

    def upper(x: Tree, y: Tree, rows: Any) -> jax.Array:
        return -jnp.mean(_features(rows["s"]) @ y)

    def lower(x: Tree, y: Tree, rows: Any) -> jax.Array:
        s = rows["s"]
        u = policy_moves(x, s)
        target = reward(rows, s, u) + discount * _features(_next_state(s, u)) @ y
        return jnp.mean((_features(s) @ y - target) ** 2) / 2

    def reward(rows: Any, s: jax.Array, u: jax.Array) -> jax.Array:
        """Return the agent's own reward, from the next agent's position and its landmark."""
        positions, agent_moves = (
            s.reshape(*s.shape[:-1], agents, 2),
            u.reshape(*u.shape[:-1], agents, 2),
        )
        select = lambda a, i: jnp.take_along_axis(a, i[:, None, None], 1)[:, 0]
        offset = select(positions, (rows["agent"] + 1) % agents) - rows["landmark"]
        return -jnp.sum(offset**2, -1) - effort * jnp.sum(
            select(agent_moves, rows["agent"]) ** 2, -1
        )

    def value(x: Tree, y: Tree, rows: Any) -> jax.Array:
        return jnp.mean(_returns(x, rows["s"], *parameters))

    parameters = landmarks, discount, effort
    states = stream(draw, agents, evaluation=evaluation, seed=seed)
    problem = Navigation(upper, lower, init, states, states, metrics={"return": value})
    problem.landmarks, problem.discount, problem.effort = parameters
    return problem


def policy_moves(x: Any, s: jax.Array) -> jax.Array:
    """Return u = x (s, 1) of all agents."""
    policy = jnp.asarray(x).reshape(-1, s.shape[-1] + 1)
    return s @ policy[:, :-1].T + policy[:, -1]


def _next_state(s: jax.Array, u: jax.Array) -> jax.Array:
    return jnp.clip(s + u, -1.0, 1.0)


def _path(x: Any, start: jax.Array, steps: int) -> jax.Array:
    x = jnp.asarray(x)
    step = lambda s, _: (_next_state(s, policy_moves(x, s)), s)
    return jax.lax.scan(step, start.astype(jnp.result_type(start, x)), None, steps)[1]


def _returns(
    x: Any, starts: jax.Array, landmarks: np.ndarray, discount: float, effort: float
) -> jax.Array:
    path = jax.vmap(lambda s: _path(x, s, PATH_STEPS))(starts)  # (starts, steps, 2 m)
    rewards = _rewards(policy_moves(x, path), path, landmarks, effort)
    return jnp.einsum("nti,t->i", rewards, discount ** jnp.arange(PATH_STEPS)) / len(path)


def _rewards(u: jax.Array, s: jax.Array, landmarks: np.ndarray, effort: float) -> jax.Array:
    """Return r_i of every agent, along the last axis."""
    as_pairs = lambda a: a.reshape(*a.shape[:-1], -1, 2)
    offsets = jnp.roll(as_pairs(s), -1, axis=-2) - landmarks
    return -jnp.sum(offsets**2, -1) - effort * jnp.sum(as_pairs(u) ** 2, -1)


def _features(s: jax.Array) -> jax.Array:
    """Return 1, each coordinate, and each product of two, of mean square 1 on [-1, 1]^n."""
    a, b = np.triu_indices(s.shape[-1], 1)
    squares = (3 * s**2 - 1) * np.sqrt(5) / 2
    products = 3 * s[..., a] * s[..., b]
    return jnp.concatenate([jnp.ones_like(s[..., :1]), np.sqrt(3) * s, squares, products], -1)
