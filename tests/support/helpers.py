"""What several tests share: small problems, one cached of each, and runs seen round by round."""

import inspect
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fast_compilation import skip_loss_checks

import diamond
from diamond import catalogue
from diamond import hypergradient as hg
from diamond.core.sampling import Sample, draw, key
from diamond.engine.round_program import (
    Progress,
    agents_in_parallel,
    initial_progress_with_links,
    run_rounds,
)
from diamond.gallery import quadratic
from diamond.network.mixing.lossy_mixer import make_mixer
from diamond.problem import Problem
from diamond.schedules.deferred import ResolutionContext, resolve

METHODS = {name: catalogue.maker(name) for name in catalogue.names() if name != catalogue.COMPOSED}
# Those of the paper and its kin, for what is tested round by round.
FAMILY = ["diamond", "dsgd", "gt_sgd", "interact", "k_free", "m_sgd", "svr_interact"]
ALGORITHMS = {name: METHODS[name] for name in FAMILY}
TRACKED = ["diamond", "gt_sgd", "interact", "k_free", "svr_interact"]
LOWER = 4  # numbers in y of the quadratic problems below

# One of each kind, for a lower level with eigenvalues in [0.5, 1.5].
ESTIMATORS = {
    "neumann": hg.neumann(5, 1.6),
    "neumann_sum": hg.neumann_sum(5, 1.6),
    "conjugate_gradient": hg.conjugate_gradient(LOWER),
    "exact": hg.exact(),
    "unrolled": hg.unrolled(4, 0.4),
    "hessian_free": hg.hessian_free(5, 1.6),
}


@cache
def quad(**options):
    """The quadratic problem, the same object for the same options.

    Its losses are the gallery's, whose tests have them checked: here that would be compiled anew.
    """
    options = {k: list(v) if isinstance(v, tuple) else v for k, v in options.items()}
    with pytest.MonkeyPatch.context() as patch:
        skip_loss_checks(patch)
        return quadratic(**{"agents": 4, "upper": 3, "lower": LOWER, "rows": 12} | options)


def build(name, **options):
    """An algorithm by name, with those of `options` that it takes."""
    parameters = inspect.signature(METHODS[name]).parameters
    return METHODS[name](**{k: v for k, v in options.items() if k in parameters})


def softplus_mean(scores):
    return jnp.mean(jnp.logaddexp(0.0, -scores))


def logistic_upper(x, y, rows):
    return softplus_mean(rows["in"]["a"] @ y["w"] * rows["out"][0]) + 0.05 * jnp.sum(x[0] ** 2)


def logistic_lower(x, y, rows):
    ridge = jnp.sum(jnp.exp(x[0]) * y["w"] ** 2) + jnp.sum(jnp.exp(x[1]["b"]) * y["w"][:1] ** 2)
    a = rows["in"]["a"]
    coupling = 0.1 * jnp.mean(jnp.tanh(a @ x[0]) * (a @ y["w"]))  # g_xy differs between rows too
    return softplus_mean(a @ y["w"] * rows["out"][0]) + 0.5 * ridge + coupling


def accuracy(x, y, rows):
    return jnp.mean(rows["in"]["a"] @ y["w"] * rows["out"][0] > 0)


@cache
def logistic(agents=3, rows=10, features=3, dtype="float64", test=False, lower_level="personal"):
    """Ridge weights exp(x) of a logistic regression y: not quadratic, and nested pytrees.

    Without a lower level, x is the regression.
    """
    random = np.random.default_rng(3)

    def part(agent, rows):
        a = random.normal(size=(rows, features)) + 0.3 * agent
        labels = np.where(a @ np.arange(1, features + 1) + random.normal(size=rows) > 0, 1, -1)
        return {"in": {"a": a.astype(dtype)}, "out": [labels.astype(dtype)]}

    def init(key):
        x = [jnp.zeros(features, dtype), {"b": jnp.full(1, -1.0, dtype)}]
        return x, {"w": 0.1 * jax.random.normal(key, (features,), dtype)}

    counts = [rows] * agents if isinstance(rows, int) else rows
    train, valid, test_rows = ([part(i, n) for i, n in enumerate(counts)] for _ in range(3))
    metrics = {"accuracy": accuracy}
    test_rows = test_rows if test else None
    if lower_level == "none":
        upper_without_lower = lambda x, rows: logistic_upper([x["w"]], x, rows)
        return Problem(upper_without_lower, None, lambda key: init(key)[1], train)
    problem_inputs = logistic_upper, logistic_lower, init, train, valid, test_rows, metrics
    return Problem(*problem_inputs, lower_level=lower_level)


def agent_of(objectives, i):
    """One agent's objectives, as algorithms see them."""
    return jax.tree.map(lambda a: a[i], objectives)


def sample_of(problem, agent, links, batch=1, t=0, seed=0, sampling="blocks") -> Sample:
    """What an agent draws in round t."""
    rows = tuple(int(problem.counts(part)[agent]) for part in ("train", "valid"))
    return _draw_compiled(key(seed), t, agent, rows, links, batch, sampling)


@partial(jax.jit, static_argnums=(4, 5, 6))
def _draw_compiled(key, t, agent, rows, links, batch, sampling):
    """`draw` in one program instead of dozens."""
    return draw(key, t, agent, rows, links, batch, sampling)


def progress_by_round(
    problem, network, algorithm, rounds, seed=0, sampling="blocks"
) -> list[Progress]:
    """Where the run stands after 0, 1, .., `rounds` rounds; no measuring."""
    context = ResolutionContext(problem, network, algorithm.batch, seed)
    algorithm = resolve(algorithm, context).algorithm
    inputs = algorithm, problem.objectives(algorithm.batch), make_mixer(network), key(seed)
    options = {
        "sampling": sampling,
        "size": agents_in_parallel(inputs[1].train),
    }  # those of `simulate`
    progress = [initial_progress_with_links(*inputs[:3], *problem.start(seed))]
    for t in range(rounds):
        after, is_finite = run_rounds(*inputs, progress[-1], jnp.int32(t + 1), **options)
        assert is_finite
        progress.append(after)
    return progress


def final_progress(problem, network, algorithm, rounds, seed=0, sampling="blocks") -> Progress:
    """Where the run stands after `rounds` rounds; no measuring."""
    context = ResolutionContext(problem, network, algorithm.batch, seed)
    algorithm = resolve(algorithm, context).algorithm
    inputs = algorithm, problem.objectives(algorithm.batch), make_mixer(network), key(seed)
    options = {
        "sampling": sampling,
        "size": agents_in_parallel(inputs[1].train),
    }  # those of `simulate`
    start = initial_progress_with_links(*inputs[:3], *problem.start(seed))
    after, is_finite = run_rounds(*inputs, start, jnp.int32(rounds), **options)
    assert is_finite
    return after


def same_bits(a, b):
    """Whether two pytrees agree in every bit."""
    equal_arrays = lambda a, b: np.asarray(a).dtype == np.asarray(b).dtype and np.array_equal(a, b)
    return jax.tree.structure(a) == jax.tree.structure(b) and all(
        jax.tree.leaves(jax.tree.map(equal_arrays, a, b))
    )


def flat(a):
    """All numbers of a pytree, one row an agent."""
    return np.concatenate([np.reshape(leaf, (len(leaf), -1)) for leaf in jax.tree.leaves(a)], 1)


ring = diamond.network.ring
