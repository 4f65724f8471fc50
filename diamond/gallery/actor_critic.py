"""Actor-critic learning of networked agents: a common policy, private rewards and critics."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree
from ..core.validation import as_int
from ..problem import Problem

SPARSE = 0.3  # concentration of transition laws: few likely successors per state


class MarkovGame(Problem):
    """A random game of m agents with additive rewards and transitions.

        r_i(s, a) = 1/m sum_j rewards[i, s, j, a_j]

    is the reward of agent i in state s if agent j does a_j, and the next state is s' with
    probability P(s' | s, a) = 1/m sum_j transitions[s, j, a_j, s']. Effects of actions add up, so
    joint actions need no enumeration, and planning gives the best joint policy. The first state is
    drawn from `initial_law`.
    """

    transitions: np.ndarray  # (states, agents, actions, states)
    rewards: np.ndarray  # (agents, states, agents, actions): receiver, state, actor, action
    initial_law: np.ndarray  # (states,)
    discount: float

    def returns(self, x: Any) -> jax.Array:
        """Return initial_law' (I - discount P_x)^-1 r_i,x of the policies softmax(x), per agent."""
        return _returns(x, self.transitions, self.rewards, self.initial_law, self.discount)

    def optimal_policy(self) -> tuple[float, np.ndarray]:
        """Return the largest mean return of all joint policies, and each agent's actions.

        By policy iteration: solve V = r + discount P V, then choose the best actions in every
        state, until they stay the same. No policy does better than these functions of the state.
        """
        agents, states = self.rewards.shape[:2]
        team = self.rewards.mean(0) / agents
        policy = np.zeros((states, agents), int)
        while True:
            index = np.arange(states)[:, None], np.arange(agents)[None], policy
            P, r = self.transitions[index].mean(1), team[index].sum(1)
            V = np.linalg.solve(np.eye(states) - self.discount * P, r)
            action_values = team + self.discount / agents * self.transitions @ V
            better = action_values.max(-1) > action_values[index] + 1e-12
            if not better.any():
                return float(self.initial_law @ V), policy.T
            policy = np.where(better, action_values.argmax(-1), policy)


def actor_critic(
    agents: int = 9,
    states: int = 6,
    actions: int = 3,
    discount: float = 0.8,
    features: int | None = None,
    seed: int = 0,
) -> MarkovGame:
    """Make an actor-critic problem on a random `MarkovGame`.

        f_i = -E_start V_y(s),  V_y(s) = phi(s)'y, the policy's value by agent i's critic y
        g_i = mean_s 1/2 (V_y(s) - E_x[r_i(s, a) + discount V_y(s') | s])^2, its Bellman error

    x (agents, states, actions) is the shared joint policy: agent j does a in state s with
    probability softmax(x[j, s])_a. y_i is agent i's critic; with a tabular critic V_y* is the value
    of the policy for agent i, and the hypergradient is the exact gradient of the mean return,
    though rewards stay private. An agent's rows are the states, each with the law of what follows
    every action, because the square of an expectation is an average over states but not over single
    transitions.

    Args:
        agents, states, actions: sizes of the game.
        discount: discount factor.
        features: number of critic features; None: tabular. With fewer features than states, phi is
            random orthonormal, and V_y* is the nearest in Bellman error.
        seed: seed of the game.

    Returns:
        The problem; its metric `return` is the exact mean return of x.
    """
    for name, size, minimum in (
        ("agents", agents, 1),
        ("states", states, 1),
        ("actions", actions, 2),
    ):
        as_int(name, size, minimum)
    if not 0 <= discount < 1:
        raise ValueError(f"discount = {discount}; give 0 to below 1")
    width = states if features is None else as_int("features", features, 1)
    if width > states:
        raise ValueError(f"features = {width} of {states} states; give at most one a state")
    random = np.random.default_rng(as_int("seed", seed, 0))
    transitions = random.dirichlet(np.full(states, SPARSE), size=(states, agents, actions))
    rewards = random.normal(size=(agents, states, agents, actions))
    start = random.dirichlet(np.ones(states))
    phi = np.eye(states)
    if features is not None:
        phi = np.linalg.qr(random.normal(size=(states, states)))[0][:, :width]
    common = {"s": np.arange(states, dtype=np.int32), "phi": phi, "next": transitions @ phi}
    train = [common | {"reward": rewards_of_agent} for rewards_of_agent in rewards]
    valid = [{"phi": phi, "start": states * start}] * agents

    def init(key: jax.Array) -> tuple[Tree, Tree]:
        return jnp.zeros((agents, states, actions)), jnp.zeros(width)

    def upper(x: Tree, y: Tree, rows: Any) -> jax.Array:
        return -jnp.mean(rows["start"] * (rows["phi"] @ y))

    def lower(x: Tree, y: Tree, rows: Any) -> jax.Array:
        policy = jax.nn.softmax(x[:, rows["s"]]) / agents
        action_values = rows["reward"] + discount * rows["next"] @ y
        return (
            jnp.mean((rows["phi"] @ y - jnp.einsum("jsa,sja->s", policy, action_values)) ** 2) / 2
        )

    def value(x: Tree, y: Tree, rows: Any) -> jax.Array:
        return jnp.mean(_returns(x, *game))

    game = transitions, rewards, start, discount
    problem = MarkovGame(upper, lower, init, train, valid, metrics={"return": value})
    problem.transitions, problem.rewards, problem.initial_law, problem.discount = game
    return problem


def _returns(
    x: Any, transitions: np.ndarray, rewards: np.ndarray, start: np.ndarray, discount: float
) -> jax.Array:
    """Return every agent's return, by solving the Bellman equation of the policies softmax(x)."""
    policy = jax.nn.softmax(jnp.asarray(x)) / len(rewards)
    P = jnp.einsum("jsa,sjat->st", policy, transitions)
    r = jnp.einsum("jsa,isja->si", policy, rewards)
    return start @ jnp.linalg.solve(jnp.eye(len(start)) - discount * P, r)
