"""What is counted: against an oracle that really counts, and against formulas."""

import counting_losses
import jax
import jax.numpy as jnp
import pytest
from fast_compilation import skip_measures
from helpers import ALGORITHMS, ESTIMATORS, METHODS, build, final_progress, quad, ring, sample_of

import diamond
from diamond import hypergradient as hg
from diamond.algorithms.parts.directions import Penalty
from diamond.algorithms.parts.value_function import Barrier, Moreau
from diamond.core import cost_counter
from diamond.core.cost_counter import Cost
from diamond.schedules.deferred import ResolutionContext, resolve

BATCH, TRAIN, VALID, ROUNDS, PERIOD, TERMS, STEPS = 2, 7, 5, 6, 4, 5, 4
ONE = diamond.network.path(1)


@pytest.fixture(scope="module")
def problem():
    return counting_losses.problem(TRAIN, VALID)


def spent(problem, algorithm):
    """What a run says that it spent, and what the oracle saw."""
    counting_losses.counts.clear()
    progress = jax.block_until_ready(final_progress(problem, ONE, algorithm, ROUNDS))
    jax.effects_barrier()
    counted = dict(zip(Cost._fields, cost_counter.total(progress.spent)[0].tolist()))
    return counted, counting_losses.counted()


def algorithm(name, estimator):
    options = dict(alpha=0.01, beta=0.1, eta=0.3, gamma=0.3, batch=BATCH, period=PERIOD)
    return build(name, hypergradient=ESTIMATORS[estimator], **options)


CASES = [(name, "neumann_sum") for name in ALGORITHMS]
CASES += [("diamond", name) for name in ESTIMATORS if name != "neumann_sum"]
CASES += [("interact", name) for name in ESTIMATORS if name != "neumann_sum"]


@pytest.mark.wide
@pytest.mark.parametrize("name, estimator", CASES)
def test_gradients_and_products_are_those_made(problem, name, estimator):
    counted, seen = spent(problem, algorithm(name, estimator))
    assert {k: counted[k] for k in seen} == seen
    assert counted["gradients"] > 0
    assert counted["samples"] == samples(problem, name, estimator)


OTHERS = [name for name in METHODS if name not in ALGORITHMS]


@pytest.mark.wide(keep=["adasdbo"])
@pytest.mark.parametrize("name", OTHERS)
def test_every_method_counts_what_it_makes(name):
    """Also where the lower level is common, or there is none."""
    options = dict(alpha=0.01, beta=0.1, delta=0.1, eta=0.3, gamma=0.3, theta=0.3, inner=2)
    options |= {"steps": "learned"} if name == "solve" else {}
    method = build(name, hypergradient=ESTIMATORS["neumann_sum"], batch=1, period=PERIOD, **options)
    problem_of_level = counting_losses.problem(TRAIN, VALID, method.lower_levels[0])
    method = resolve(
        method, ResolutionContext(problem_of_level, ONE, 1, 0)
    ).algorithm  # what that costs is no round's
    counted, seen = spent(problem_of_level, method)
    words = getattr(method, "update_order", "xyz").split()
    apart = any("z" in word and "x" not in word for word in words)
    penalty = isinstance(getattr(method, "directions", None), Penalty | Moreau)
    seen = counting_losses.counted(f_apart=apart, g_together=penalty and not apart)
    if isinstance(getattr(method, "directions", None), Barrier):
        seen["gradients"] -= counting_losses.counts["g x T"] // 2  # with g_y, at y and not at y'
    if getattr(method, "works_locally", False):
        seen["gradients"] += 2  # the product with f_xx before the first step, as two gradients
    assert {k: counted[k] for k in seen} == seen
    assert counted["gradients"] > 0 and counted["samples"] > 0


def samples(problem, name, estimator):
    """Rows drawn in all rounds, by the definition: each block once, of a full gradient all rows."""
    depth = lambda t: int(sample_of(problem, 0, 0, t=t).bits) % TERMS
    links = {
        "neumann": depth,
        "neumann_sum": lambda t: TERMS - 1,
        "hessian_free": lambda t: TERMS - 1,
        "conjugate_gradient": lambda t: 1,
        "exact": lambda t: 1,
        "unrolled": lambda t: STEPS - 1,  # no zeta_0 of its own
    }[estimator]
    if name == "k_free":
        return ROUNDS * BATCH * 3  # xi, zeta, zeta_0
    full = {"interact": lambda t: True, "svr_interact": lambda t: t % PERIOD == 0}
    drawn = lambda t: BATCH * (1 + 1 + 1 + links(t))  # xi, zeta, zeta_0, zeta_1 ..
    every = full.get(name, lambda t: False)
    return sum(TRAIN + VALID if every(t) else drawn(t) for t in range(ROUNDS))


def test_the_oracle_counts():
    x = y = jnp.ones(counting_losses.SIZE)
    rows = jnp.ones((4, counting_losses.SIZE))
    counting_losses.counts.clear()
    g_y = jax.grad(counting_losses.lower, 1)
    jax.block_until_ready(jax.jit(g_y)(x, y, rows))
    assert counting_losses.counted() == {"gradients": 4, "hvps": 0, "jvps": 0}
    jax.block_until_ready(jax.jit(lambda y: jax.jvp(lambda y: g_y(x, y, rows), (y,), (y,))[1])(y))
    assert counting_losses.counted() == {"gradients": 4, "hvps": 4, "jvps": 0}
    jax.block_until_ready(jax.jit(lambda x: jax.vjp(lambda x: g_y(x, y, rows), x)[1](y)[0])(x))
    assert counting_losses.counted() == {"gradients": 4, "hvps": 4, "jvps": 4}


def test_limbs_carry_beyond_32_bits():
    counter, truth = cost_counter.zeros(), [0, 0, 0, 0]
    step = [2**32 - 1, 2**31, 3, 0]
    charge = jax.jit(cost_counter.charge)
    for _ in range(5):
        counter = charge(counter, Cost(*(jnp.uint32(s) for s in step)))
        truth = [a + b for a, b in zip(truth, step)]
        assert cost_counter.total(counter).tolist() == truth
    assert truth[0] > 2**34
    counters = jnp.stack([counter, cost_counter.zeros()])
    assert cost_counter.total(counters).tolist() == [truth, [0, 0, 0, 0]]


@pytest.mark.wide
def test_learning_lipschitz_takes_a_product_a_round(monkeypatch):
    skip_measures(monkeypatch)
    q = quad()
    with_lipschitz = diamond.dsgd(0.01, 0.1, 3, hg.neumann_sum(5, 2.0))
    without_lipschitz = diamond.dsgd(0.01, 0.1, 3, hg.neumann_sum(5))
    one, two = (
        diamond.simulate(q, ring(4), a, 2, every=1) for a in (with_lipschitz, without_lipschitz)
    )
    assert one.history["samples"].tolist() == [0, 21, 42]  # xi, zeta, zeta_0 .. zeta_4
    assert two.history["samples"].tolist() == [0, 21, 42]
    more = two.history["hvps"] - one.history["hvps"]
    assert more.tolist() == [0, 4 * 3, 5 * 3]  # four steps of power iteration at first
    assert one.history["bytes"].tolist() == two.history["bytes"].tolist()


@pytest.mark.wide
def test_agents_pay_for_their_own_rows():
    counts = [12, 5, 1, 9]
    q = quad(rows=tuple(counts), noise=1.0)
    algorithm = diamond.interact(0.1, 0.5, hypergradient=ESTIMATORS["neumann_sum"])
    results = cost_counter.total(final_progress(q, ring(4), algorithm, 3).spent)
    assert results.tolist() == [[3 * 2 * n, 3 * 2 * n, 3 * 4 * n, 3 * n] for n in counts]
