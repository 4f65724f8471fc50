"""RLHF: a reward learned from annotators' preferences above, the policy for that reward below."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import entr

from ..core.pytrees import Tree
from ..core.validation import as_int
from ..problem import Problem

CURVATURE = 0.5  # of the annotators' utilities in a second direction of the features


class Rlhf(Problem):
    """A problem that knows the best policy for every reward, and what annotators prefer."""

    features: np.ndarray  # (agents, prompts, answers, features)
    reference: np.ndarray  # (agents, prompts, answers), log-probabilities of the reference policy
    shares: np.ndarray  # (agents, prompts, answers, answers), of votes for the first of two answers
    preferences: np.ndarray  # the same, of all possible votes
    temperature: float
    regularizer: float

    def best_policy(self, x: Any) -> jax.Array:
        """Return reference exp(r_x / temperature), normalized, the policy with the least g_i."""
        return jax.nn.softmax(self.reference + _reward(x, self.features) / self.temperature)

    def lower_solution(self, x: Any) -> jax.Array:
        """Return y_i*(x) = (r_x - mean over the answers) / temperature of tabular policies."""
        rewards = _reward(x, self.features)
        return (rewards - rewards.mean(-1, keepdims=True)) / self.temperature

    def value(self, x: Any, policy: Any = None) -> jax.Array:
        """Return f at a policy, by default the best one, which is l(x) of tabular policies."""
        policy = self.best_policy(x) if policy is None else jnp.asarray(policy)
        losses = _preference_loss(_reward(x, self.features), policy, self.shares)
        return jnp.mean(losses) + self.regularizer / 2 * _square(x)

    def win_rate(self, policy: Any) -> jax.Array:
        """Return how often annotators prefer an answer of `policy` to one of the reference."""
        return jnp.mean(_win_rate(jnp.asarray(policy), self.reference, self.preferences))


def rlhf(
    agents: int = 4,
    prompts: int = 20,
    answers: int = 4,
    features: int = 4,
    votes: int = 20,
    disagreement: float = 0.3,
    temperature: float = 0.5,
    width: int | None = None,
    regularizer: float = 0.01,
    seed: int = 0,
) -> Rlhf:
    """Make a problem that learns a reward from preferences between answers of its own policy.

        f_i = E_s E_{a, b ~ y, a != b} KL(P_i(a > b) | sigmoid(r_x(a) - r_x(b)))
        g_i = E_s KL(reference exp(r_x / temperature), normalized | y),    a, b answers to s

    x, shared, is the reward of an answer: r_x = x'phi of its features phi or, with a `width`, a
    network of them. y_i is the policy of agent i on its own prompts s, as logits added to those of
    its reference policy: a table (prompts, answers) or, with a `width`, a network of phi. g_i fits
    the policy to answers of the reference policy weighted by exp(r_x / temperature) (Peters and
    Schaal, 2007): it is convex in the logits, and the table has the largest E_{a ~ y} r_x(a) -
    temperature KL(y | reference policy).

    P_i are the shares of the votes of agent i's annotators, who follow Bradley and Terry with a
    utility of their own, which no linear reward fits. f_i is the Bradley-Terry loss, less the
    entropy of the votes, of the pairs that the policy draws, so that x is right where its policy
    answers (Chakraborty et al., 2024).

    Args:
        agents: number of agents, each with its own annotators.
        prompts, answers, features: prompts of an agent, answers to each, features of an answer.
        votes: votes on every pair of answers.
        disagreement: scale of the differences between the annotators of the agents.
        temperature: weight of the divergence from the reference policy.
        width: tanh units of the networks for reward and policy; None: linear, and a table.
        regularizer: weight of |x|^2 / 2 in f_i and, with a `width`, of |y|^2 / 2 in g_i.
        seed: seed of the prompts, the annotators and their votes.

    Returns:
        The problem; its metric `win_rate` is how often annotators prefer the policy to the
        reference policy.
    """
    sizes = {"agents": agents, "prompts": prompts, "features": features, "votes": votes}
    for name, size, minimum in (*((n, k, 1) for n, k in sizes.items()), ("answers", answers, 2)):
        as_int(name, size, minimum)
    if width is not None:
        as_int("width", width, 1)
    for name, number in {"temperature": temperature, "regularizer": regularizer}.items():
        if not 0 < number < float("inf"):
            raise ValueError(f"{name} = {number}; give a number above 0")
    random = np.random.default_rng(as_int("seed", seed, 0))
    phi = random.normal(size=(agents, prompts, answers, features))
    common, curved = random.normal(size=(2, features)) / np.sqrt(features)
    tastes = common + disagreement * random.normal(size=(agents, features))
    utilities = np.einsum("ispf,if->isp", phi, tastes) + CURVATURE * ((phi @ curved) ** 2)
    preferences = 1 / (1 + np.exp(utilities[..., None, :] - utilities[..., :, None]))
    counts = np.triu(random.binomial(votes, preferences), 1)
    shares = counts / votes + np.swapaxes(np.triu(1 - counts / votes, 1), -1, -2)
    shares += np.eye(answers) / 2
    reference = np.log(random.dirichlet(np.full(answers, 3.0), size=(agents, prompts)))
    numbers = np.arange(prompts, dtype=np.int32)
    train = [{"s": numbers, "a": a, "reference": p} for a, p in zip(phi, reference)]
    annotated = zip(train, shares, preferences)
    valid = [rows | {"share": share, "preference": p} for rows, share, p in annotated]

    def init(key: jax.Array) -> tuple[Tree, Tree]:
        if width is None:
            return jnp.zeros(features), jnp.zeros((prompts, answers))
        of_x, of_y = jax.random.split(key)
        return _network(of_x, features, width), _network(of_y, features, width)

    def logits(y: Tree, rows: Any) -> jax.Array:
        return y[rows["s"]] if width is None else _reward(y, rows["a"])

    def policy(x: Tree, y: Tree, rows: Any) -> jax.Array:
        return jax.nn.softmax(rows["reference"] + logits(y, rows))

    def upper(x: Tree, y: Tree, rows: Any) -> jax.Array:
        losses = _preference_loss(_reward(x, rows["a"]), policy(x, y, rows), rows["share"])
        return jnp.mean(losses) + regularizer / 2 * _square(x)

    def lower(x: Tree, y: Tree, rows: Any) -> jax.Array:
        added = logits(y, rows)
        best = jax.nn.log_softmax(rows["reference"] + _reward(x, rows["a"]) / temperature)
        log_ratio = best - jax.nn.log_softmax(rows["reference"] + added)
        level = jnp.mean(added, -1) ** 2 / 2  # softmax ignores it
        penalty = 0.0 if width is None else regularizer / 2 * _square(y)
        return jnp.mean(level + jnp.sum(jnp.exp(best) * log_ratio, -1)) + penalty

    def win_rate(x: Tree, y: Tree, rows: Any) -> jax.Array:
        return jnp.mean(_win_rate(policy(x, y, rows), rows["reference"], rows["preference"]))

    metrics, convex = {"win_rate": win_rate}, width is None
    problem = Rlhf(upper, lower, init, train, valid, metrics=metrics, convex=convex, predict=policy)
    problem.features, problem.reference = phi, reference
    problem.shares, problem.preferences = shares, preferences
    problem.temperature, problem.regularizer = temperature, regularizer
    return problem


def _network(key: jax.Array, features: int, width: int) -> Tree:
    """Return a random layer of tanh units, and a small linear one."""
    first, last = jax.random.split(key)
    w = jax.random.normal(first, (features, width)) / np.sqrt(features)
    return {"w": w, "b": jnp.zeros(width), "out": 0.1 * jax.random.normal(last, (width,))}


def _reward(x: Tree, phi: Any) -> jax.Array:
    """Return r_x of every answer, linear or by a network."""
    if not isinstance(x, dict):
        return jnp.asarray(phi) @ x
    return jnp.tanh(phi @ x["w"] + x["b"]) @ x["out"]


def _square(tree: Tree) -> jax.Array:
    return sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)), jnp.zeros(()))


def _preference_loss(rewards: jax.Array, policy: jax.Array, shares: Any) -> jax.Array:
    """Return the divergence of votes from their model, on two answers of the policy, by prompt."""
    margins = rewards[..., :, None] - rewards[..., None, :]
    losses = -shares * jax.nn.log_sigmoid(margins) - (1 - shares) * jax.nn.log_sigmoid(-margins)
    losses = losses - entr(shares) - entr(1 - shares)
    pairs = policy[..., :, None] * policy[..., None, :] * (1 - jnp.eye(policy.shape[-1]))
    return jnp.sum(pairs * losses, (-2, -1)) / jnp.sum(pairs, (-2, -1))


def _win_rate(policy: jax.Array, reference: Any, preferences: Any) -> jax.Array:
    return jnp.einsum("...a,...ab,...b->...", policy, preferences, jnp.exp(reference))
