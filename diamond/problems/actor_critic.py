"""Actor-critic learning of networked agents: one policy in common, private rewards and critics."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.tree import Tree
from ..core.whole_numbers import whole
from ..problem import Problem

SPARSE = 0.3  # concentration of the transition laws: a few states are likely from each


class MarkovGame(Problem):
    """A game of m agents: in state s, when agent j does a_j, agent i is rewarded by

        r_i(s, a) = 1/m sum_j rewards[i, s, j, a_j]

    and the next state is s' with probability P(s' | s, a) = 1/m sum_j transitions[s, j, a_j, s'].
    What the agents do adds up, so nobody lists all joint actions, and the best joint policy is
    known by planning. The first state is drawn from `initial_law`.
    """

    transitions: np.ndarray  # (states, agents, actions, states)
    rewards: np.ndarray  # (agents, states, agents, actions): of whom, where, by whose, which action
    initial_law: np.ndarray  # (states,)
    discount: float

    def returns(self, x: Any) -> jax.Array:
        """initial_law' (I - discount P_x)^-1 r_i,x of the policies softmax(x), of every agent i."""
        return _returns(x, self.transitions, self.rewards, self.initial_law, self.discount)

    def planned(self) -> tuple[float, np.ndarray]:
        """The largest mean return of all joint policies, and each agent's action in each state.

        By policy iteration: V = r + discount P V solved, then in every state the best actions for
        it, until they stay. These are functions of the state; no policy does better.
        """
        agents, states = self.rewards.shape[:2]
        team = self.rewards.mean(0) / agents
        chosen = np.zeros((states, agents), int)
        while True:
            at = np.arange(states)[:, None], np.arange(agents)[None], chosen
            P, r = self.transitions[at].mean(1), team[at].sum(1)
            V = np.linalg.solve(np.eye(states) - self.discount * P, r)
            worth = team + self.discount / agents * self.transitions @ V
            better = worth.max(-1) > worth[at] + 1e-12
            if not better.any():
                return float(self.initial_law @ V), chosen.T
            chosen = np.where(better, worth.argmax(-1), chosen)


def actor_critic(
    agents: int = 9,
    states: int = 6,
    actions: int = 3,
    discount: float = 0.8,
    features: int | None = None,
    seed: int = 0,
) -> MarkovGame:
    """f_i = -E_start V_y(s),  V_y(s) = phi(s)'y, what agent i's critic y says the policy is worth;
    g_i = mean_s 1/2 (V_y(s) - E_x[r_i(s, a) + discount V_y(s') | s])^2, its Bellman error.

    x (agents, states, actions) is the policy of all, shared: agent j does a in state s with
    probability softmax(x[j, s])_a. y_i is agent i's critic: tabular, one number a state; then
    V_y* is the value of the policy for agent i, and the hypergradient is the exact gradient of the
    mean return, whose rewards nobody else is told. With fewer `features` than states, phi are
    random orthonormal ones, and V_y* is what comes nearest in Bellman error.

    The game is random, drawn by `seed` (`MarkovGame`). An agent's rows are the states, each with
    the law of what follows every action: the square of an expectation is then an average over
    rows, which over single transitions it is not. A batch is a sample of states; one of as many
    rows as there are states is all of them. The metric `return` is the exact mean return of x.
    """
    for what, size, least in (
        ("agents", agents, 1),
        ("states", states, 1),
        ("actions", actions, 2),
    ):
        whole(what, size, least)
    if not 0 <= discount < 1:
        raise ValueError(f"discount = {discount}; give 0 to below 1")
    width = states if features is None else whole("features", features, 1)
    if width > states:
        raise ValueError(f"features = {width} of {states} states; give at most one a state")
    random = np.random.default_rng(whole("seed", seed, 0))
    transitions = random.dirichlet(np.full(states, SPARSE), size=(states, agents, actions))
    rewards = random.normal(size=(agents, states, agents, actions))
    start = random.dirichlet(np.ones(states))
    phi = np.eye(states)
    if features is not None:
        phi = np.linalg.qr(random.normal(size=(states, states)))[0][:, :width]
    common = {"s": np.arange(states, dtype=np.int32), "phi": phi, "next": transitions @ phi}
    train = [common | {"reward": own} for own in rewards]
    valid = [{"phi": phi, "start": states * start}] * agents

    def init(key: jax.Array) -> tuple[Tree, Tree]:
        return jnp.zeros((agents, states, actions)), jnp.zeros(width)

    def upper(x: Tree, y: Tree, rows: Any) -> jax.Array:
        return -jnp.mean(rows["start"] * (rows["phi"] @ y))

    def lower(x: Tree, y: Tree, rows: Any) -> jax.Array:
        policy = jax.nn.softmax(x[:, rows["s"]]) / agents
        worth = rows["reward"] + discount * rows["next"] @ y
        return jnp.mean((rows["phi"] @ y - jnp.einsum("jsa,sja->s", policy, worth)) ** 2) / 2

    def value(x: Tree, y: Tree, rows: Any) -> jax.Array:
        return jnp.mean(_returns(x, *game))

    game = transitions, rewards, start, discount
    problem = MarkovGame(upper, lower, init, train, valid, metrics={"return": value})
    problem.transitions, problem.rewards, problem.initial_law, problem.discount = game
    return problem


def _returns(
    x: Any, transitions: np.ndarray, rewards: np.ndarray, start: np.ndarray, discount: float
) -> jax.Array:
    """Every agent's own return, by solving the Bellman equation of the policies softmax(x)."""
    policy = jax.nn.softmax(jnp.asarray(x)) / len(rewards)
    P = jnp.einsum("jsa,sjat->st", policy, transitions)
    r = jnp.einsum("jsa,isja->si", policy, rewards)
    return start @ jnp.linalg.solve(jnp.eye(len(start)) - discount * P, r)
