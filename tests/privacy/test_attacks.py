"""Attacks of a neighbour: rows reconstructed, membership of a row, and an audit of epsilon."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import beta, rankdata

pytest.importorskip("dp_accounting")

from lockstep_agents import run_lockstep

import diamond
from diamond.core.sampling import draw, key
from diamond.privacy.accountant import epsilon_after
from diamond.sites.rounds.site_agent import Agent

SIZE, HIDDEN, ROWS, ROUNDS, ALPHA = 60, 3, 12, 6, 0.1


def make_rows(seed):
    random = np.random.default_rng(seed)
    return {"a": random.normal(size=(ROWS, SIZE)), "b": random.normal(size=ROWS)}


def linear(x, rows):
    return jnp.mean((rows["a"] @ x - rows["b"]) ** 2) / 2


def network(x, rows):
    return jnp.mean((jnp.tanh(rows["a"] @ x["w"]) @ x["v"] - rows["b"]) ** 2) / 2


def start_linear(key):
    return jnp.zeros(SIZE)


def start_network(key):
    w = 0.1 * jax.random.normal(key, (SIZE, HIDDEN))
    return {"w": w, "v": jnp.ones(HIDDEN)}


def seen_by_neighbour(monkeypatch, loss, start, algorithm):
    """Messages of agent 0 to agent 1, and the mixed x before each, which agent 1 computes too."""
    pair = diamond.network.complete(2)
    problems = [diamond.Problem(loss, None, start, [make_rows(i)]) for i in range(2)]
    agents = [Agent(problem, pair, algorithm, i) for i, problem in enumerate(problems)]
    sent = {0: [], 1: []}
    original = Agent.outgoing_arrays

    def watch(self, progress, exchange, local_result):
        arrays = original(self, progress, exchange, local_result)
        sent[self.number].append(arrays)
        return arrays

    monkeypatch.setattr(Agent, "outgoing_arrays", watch)
    run_lockstep(agents, ROUNDS)
    weights = np.asarray(pair.weights.todense())[0]
    x = [np.asarray(leaf) for leaf in jax.tree.leaves(problems[0].start(0))]
    for own, others in zip(sent[0], sent[1]):
        yield [(before - after) / ALPHA for before, after in zip(x, own)]
        x = [weights[0] * mine + weights[1] * theirs for mine, theirs in zip(own, others)]


def largest_correlation(direction):
    """The largest |cosine| of a direction with a row of agent 0."""
    rows = make_rows(0)["a"]
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.abs(rows @ direction / np.linalg.norm(direction)).max()


def reconstruct_linear(gradients):
    return largest_correlation(gradients[0])  # (a x - b) a


def reconstruct_network(gradients):
    w = next(leaf for leaf in gradients if np.ndim(leaf) == 2)
    return largest_correlation(np.linalg.svd(w)[0][:, 0])  # a times the gradient of the layer


CASES = [(linear, start_linear, reconstruct_linear), (network, start_network, reconstruct_network)]


@pytest.mark.wide
@pytest.mark.parametrize(("loss", "start", "attack"), CASES, ids=["linear", "network"])
def test_a_neighbour_reconstructs_rows_unless_messages_are_private(
    monkeypatch, loss, start, attack
):
    plain = diamond.dsgd(alpha=ALPHA, batch=1, order="atc")
    seen = [attack(g) for g in seen_by_neighbour(monkeypatch, loss, start, plain)]
    assert min(seen) > 0.999  # every round gives a row away
    random = np.random.default_rng(5)
    chance = np.mean([largest_correlation(random.normal(size=SIZE)) for _ in range(1000)])
    private = diamond.private(plain, epsilon=8, clip=1.0, rounds=ROUNDS)
    seen = [attack(g) for g in seen_by_neighbour(monkeypatch, loss, start, private)]
    assert np.mean(seen) < chance + 0.1 < 0.45


def membership_loss(x, rows):
    return jnp.mean(rows["b"] * x[0])


def start_scalar(key):
    return jnp.zeros(1)


def one_site(first, rows=ROWS):
    """A site whose first row alone has a gradient: nothing but noise hides it."""
    rows = [{"b": np.array([first, *np.zeros(rows - 1)])}]
    return diamond.Problem(membership_loss, None, start_scalar, rows, shuffle=False)


@jax.jit
def total_release(method, objectives, secret):
    """Sum of all releases of a run whose noise has this key."""
    state = method.init(jnp.zeros(1), None)
    counts = objectives.train.stored, objectives.valid.stored
    seeded = replace(method, estimator=replace(method.estimator, secret=secret))

    def release(number):
        sample = draw(key(0), number, 0, counts, 0, method.batch, "blocks")
        later = state._replace(table=number)
        return seeded.stages[0].estimate(objectives, later, number, sample)[0][0].x[0]

    return jnp.sum(jax.vmap(release)(jnp.arange(ROUNDS)))


all_releases = jax.jit(jax.vmap(total_release, (None, None, 0)))


def scores(private, runs, clipping, rows, share=1.0):
    """What a neighbour adds up, with the row and otherwise, for many keys; `share` of the noise.

    By row, a row without a direction is there otherwise: the number of rows is public. Whole,
    another one is there with the opposite direction.
    """
    for number, first in enumerate((1e3, 0.0 if clipping == "row" else -1e3)):
        problem = one_site(first, rows)
        method = jax.tree.map(jnp.asarray, private.specialize(problem))
        weaker = replace(method.estimator, multiplier=share * method.estimator.multiplier)
        secrets = jax.random.bits(key(7 + number), (runs, 4), jnp.uint32)
        objectives = problem.objectives(method.batch).for_agent(0)
        yield np.asarray(all_releases(replace(method, estimator=weaker), objectives, secrets))


def audited_epsilon(present, absent, delta, confidence=0.999):
    """A lower bound of epsilon from the attack, at a threshold chosen on half of the runs."""
    half = len(present) // 2
    bound = lambda hits, n, side: (
        beta.ppf(1 - confidence, hits, n - hits + 1)
        if side == "low" and hits
        else beta.ppf(confidence, hits + 1, n - hits)
        if side == "high" and hits < n
        else float(side == "high")
    )

    def estimate(threshold, present, absent):
        n = len(present)
        true_rate = bound(int((present > threshold).sum()), n, "low")
        false_rate = bound(int((absent > threshold).sum()), n, "high")
        return math.log(max(true_rate - delta, 1e-300) / false_rate)

    thresholds = np.quantile(absent[:half], np.linspace(0.5, 1, 60))
    best = max(thresholds, key=lambda t: estimate(t, present[:half], absent[:half]))
    return max(estimate(best, present[half:], absent[half:]), 0.0)


def area_under_curve(present, absent):
    ranks = rankdata(np.concatenate([present, absent]))[: len(present)]
    return (ranks.sum() - len(present) * (len(present) + 1) / 2) / (len(present) * len(absent))


@pytest.mark.wide
@pytest.mark.parametrize(
    ("clipping", "rows", "batch"), [("row", ROWS, 3), ("row", 5, 5), ("whole", ROWS, ROWS)]
)
def test_membership_is_hidden_as_far_as_epsilon_says_and_the_audit_agrees(clipping, rows, batch):
    """AUC at most e^eps / (1 + e^eps); the audited epsilon never above the accountant's.

    An audit that cannot fail shows nothing: with a sixth of the noise it exceeds the claim.
    """
    runs = 5_000
    algorithm = diamond.dsgd(alpha=ALPHA, batch=batch)
    for epsilon in (1.0, 4.0):
        private = diamond.private(algorithm, epsilon, clip=0.5, rounds=ROUNDS, clipping=clipping)
        (mechanism,) = private.estimator.plan(private, one_site(0.0, rows)).mechanisms
        claimed = epsilon_after(mechanism, ROUNDS, private.estimator.budget.delta)
        assert claimed == pytest.approx(epsilon, rel=2e-3) and claimed <= epsilon
        present, absent = scores(private, runs, clipping, rows)
        area = area_under_curve(present, absent)
        assert area <= math.exp(epsilon) / (1 + math.exp(epsilon))
        assert 0.51 < area < 0.62 or epsilon > 1  # near chance, but the row has some effect
        assert audited_epsilon(present, absent, 1e-5) <= claimed
        assert audited_epsilon(*scores(private, runs, clipping, rows, 1 / 6), 1e-5) > claimed
