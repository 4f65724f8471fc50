"""Constants of the paper's assumptions, and their estimates from the data of a problem."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..core import pytrees
from ..core.cost_counter import Cost
from ..core.host_transfer import default_dtype
from ..core.linear_solvers import LANCZOS_STEPS, lanczos
from ..core.newton import CG_STEPS, default_tolerance
from ..core.pytrees import Tree
from ..core.sampling import AGENT_AXES, Sample, Sampling, draw, key
from ..hardware.compiler import FAST_COMPILE_OPTIONS, MEASURE_OPTIONS, compile_program
from ..hypergradient.conjugate import ConjugateGradient
from ..hypergradient.implicit_estimator import ImplicitHypergradient, hessian
from ..hypergradient.neumann import neumann
from ..metrics import lower_solution
from ..network import Network
from ..problem import Objectives, Problem
from .extreme_search import BOUNDS, Bound, supremum, unit_or_zero

Point = tuple[Tree, Tree]  # x and y
PROBES = 4  # starting points of each search, per agent
TURNS = 24  # updates of each vector in a search
BATCHES = 8  # sampled mini-batch Hessians per agent
PAIRS = 256  # pairs of samples for the variance of gradients
SECOND_SAMPLE = 1 << 20  # round offset of the second sample of a pair
MIXED = 1e-3  # remaining disagreement at which an average counts as agreed


class Start(NamedTuple):
    """Start of a run: terms of the potential of Theorem 1 at (x_0, y_0), without weights."""

    loss: float = 0.0  # l(x_0), exact
    lower_gap: float = 0.0  # sum_i ||y_0 - y_i*(x_0)||^2
    disagreement: float = 0.0  # sum_i ||h_i - mean of h||^2, h_i the exact hypergradient of agent i


@dataclass(frozen=True)
class Constants:
    """Constants of Assumptions 1 to 4 and of the network: the worst over all agents.

    C_gxy bounds ||g_xy|| itself: Assumption 2.5 prints ||g_xy||^2 <= C_gxy, but every lemma uses it
    as a bound on the norm. L_g bounds the eigenvalues of every sampled g_yy (Assumption 3, eq. 5);
    mu_g bounds those of the full g_yy from below, which Lemma 3 needs. `errors` has the standard
    error or the spread of each estimate, by name; nothing for given or exact values.
    """

    agents: int  # m
    lam: float  # lambda of the mixing matrix
    mu_g: float
    L_g: float
    C_gxy: float
    C_fy: float
    L_fx: float
    L_fy: float
    L_gxy: float
    L_gyy: float
    sigma_f: float = 0.0  # of the sampled hypergradient, eq. (5)
    sigma_g: float = 0.0  # of the sampled g_y
    sigma_df: float = 0.0  # of the sampled (f_x, f_y), a part of sigma_f
    L_g_full: float = 0.0  # largest eigenvalue of the full g_yy
    heterogeneity: float = 0.0  # mean_i ||h_i - hbar||^2 / ||hbar||^2
    start: Start = field(default_factory=Start)
    errors: Mapping[str, float] = field(default_factory=dict)
    # Cost of the estimates in rows per agent; the mean over the agents.
    cost: Cost = field(default_factory=Cost)
    rounds: int = 0  # rounds of communication for the estimates
    bytes: int = 0  # over all edges, in both directions

    def __post_init__(self) -> None:
        if not self.mu_g > 0:
            raise ValueError(
                f"mu_g = {self.mu_g:.3g}: the lower level is not strongly convex in y at some "
                f"point looked at (Assumption 2.3); add a term such as ||y||^2 to it"
            )
        if self.L_g < self.mu_g:
            raise ValueError(f"L_g = {self.L_g:.3g} is below mu_g = {self.mu_g:.3g}; exchange them")

    @property
    def condition(self) -> float:
        """The condition number L_g / mu_g."""
        return self.L_g / self.mu_g

    def __str__(self) -> str:
        numbers = [k for k, v in vars(self).items() if isinstance(v, float)]
        lines = [f"{'agents':14}{self.agents:12}"]
        for name in numbers:
            spread = f"  +- {self.errors[name]:.2g}" if name in self.errors else ""
            lines.append(f"{name:14}{getattr(self, name):12.5g}{spread}")
        spent = ", ".join(f"{name} {value:,.0f}" for name, value in self.cost._asdict().items())
        return "\n".join([*lines, f"found by {spent} rows an agent, {self.rounds} rounds"])


def estimate(
    problem: Problem,
    network: Network,
    batch: int = 64,
    seed: int = 0,
    x: Tree | None = None,
    y: Tree | None = None,
    radius: float = 1.0,
    terms: int = 10,
    sampling: Sampling = "blocks",
    at: Point | None = None,
) -> Constants:
    """Estimate the constants of Assumptions 1 to 4 near (x, y).

    C_fy, C_gxy and the Lipschitz constants are suprema over all (x, y), so data can only give lower
    bounds: the maxima found by local searches within `radius` of (x, y) and of (x, y*(x)), in full
    gradients of every agent. mu_g, an upper bound, is the least eigenvalue of g_yy at the starting
    points of the searches. Their errors are the standard deviation over the starting points, at the
    worst agent. L_g is the largest eigenvalue of the full g_yy and of a few mini-batches, its error
    their spread. The sigmas have standard errors. `heterogeneity` and `start` are exact, at y*(x).

    Products with second derivatives of f count as gradients, with third derivatives of g as hvps or
    jvps. The agents agree by max-consensus, `diameter` rounds for L_g and as many for the rest, and
    by gossip on the mean hypergradient and its spread, until a thousandth is left.

    Args:
        batch: rows in a mini-batch, for the sigmas.
        seed: seed of the samples and searches.
        x, y: the point; by default the problem's start.
        radius: radius of the searches.
        terms: K of eq. (5), for sigma_f.
        sampling: "blocks" or "rows", as in `diamond.simulate`.
        at: x and y of all agents, agents first, at which to measure the sigmas instead: at y = 0
            some problems have no noise.
    """
    if problem.agents != network.agents:
        raise ValueError(
            f"the problem has {problem.agents} agents, the network {network.agents}; make a "
            f"network of {problem.agents}"
        )
    if network.kind != "symmetric":
        raise ValueError(
            f"the theory of the paper is of symmetric weights that stay the same, and "
            f"{network.name} is {network.kind}; take a network such as ring({network.agents})"
        )
    start = problem.start(seed)
    point = start[0] if x is None else x, start[1] if y is None else y
    objectives, random = problem.objectives(batch), key(seed)
    with jax.default_matmul_precision("highest"):
        extremes, sums, spent = _explore_agents(objectives, point, random, radius)
        values, errors = _worst_over_agents(extremes)
        values["L_g"] = max(values["L_g"], values["L_g_full"])
        chain = neumann(terms, values["L_g"])
        to_agents = lambda a: jnp.broadcast_to(a, (problem.agents, *a.shape))
        points = jax.tree.map(to_agents, point) if at is None else at
        sigmas, pair = estimate_sigmas(chain, objectives, points, random, PAIRS, batch, sampling)
    for name, (value, error) in sigmas.items():
        agent = int(jnp.argmax(value))
        values[name], errors[name] = float(value[agent]), float(error[agent])
    rounds, sent = _count_communication(network, point[0], len(values))
    loss, gap, spread, mean = (float(a) for a in sums)
    return Constants(
        agents=problem.agents,
        lam=network.lam,
        **values,
        heterogeneity=spread / problem.agents / mean if mean else float(spread and np.inf),
        start=Start(loss, gap, spread),
        errors=errors,
        cost=Cost(*(float(search) + PAIRS * float(draws) for search, draws in zip(spent, pair))),
        rounds=rounds,
        bytes=sent,
    )


def _worst_over_agents(
    values_by_name: dict[str, jax.Array],
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the extreme of each of (agents, probes), and the spread over that agent's probes."""
    values, errors = {}, {}
    for name, array in values_by_name.items():
        a = np.asarray(array, np.float64)
        best = np.argmin(a) if name == "mu_g" else np.argmax(a)
        agent = np.unravel_index(best, a.shape)[0]
        values[name], errors[name] = float(a.flat[best]), float(a[agent].std(ddof=1))
    return values, errors


@compile_program(options=MEASURE_OPTIONS, small_options=FAST_COMPILE_OPTIONS)
def _explore_agents(objectives: Objectives, point: Point, key: jax.Array, radius: Any) -> Any:
    """Return each agent's constants, (agents, probes); sums over the agents; the mean cost."""
    agents = jnp.arange(objectives.train.count.shape[0])
    keys = jax.vmap(lambda agent: jax.random.fold_in(key, agent))(agents)
    explore = lambda problem, key: _explore_agent(problem, point, key, radius)
    extremes, (loss, gap, h), costs = jax.vmap(explore)(objectives, keys)
    mean = jax.tree.map(lambda a: a.mean(0), h)
    deviation = pytrees.sub(h, mean)
    sums = loss.mean(), gap.sum(), pytrees.dot(deviation, deviation), pytrees.dot(mean, mean)
    return extremes, sums, jax.tree.map(lambda c: jnp.mean(1.0 * c), costs)


def _explore_agent(problem: Objectives, point: Point, key: jax.Array, radius: Any) -> Any:
    x, y = point
    solution = lower_solution.solve_lower_level(problem, x, y)
    tolerance = default_tolerance(pytrees.norm(y).dtype)
    exact = ImplicitHypergradient(ConjugateGradient(CG_STEPS, tolerance=tolerance))
    solution_point = x, solution.y
    (h,), hypergradient_cost = exact(
        problem, [solution_point], Sample(None, None, None, None, None)
    )

    def probe(probe_input: tuple[jax.Array, jax.Array]) -> dict[str, jax.Array]:
        key, turn = probe_input
        centre = pytrees.select(turn % 2 == 0, point, solution_point)
        offset = pytrees.scale(
            jnp.where(turn < 2, 0, radius), unit_or_zero(pytrees.normal(key, centre))
        )
        return _probe(problem, centre, pytrees.add(centre, offset), key, radius=radius)

    def batch_curvature(key: jax.Array) -> jax.Array:
        where = problem.train.choose_batch(key)
        return lanczos(hessian(problem, solution_point, where), pytrees.normal(key, y)).largest

    probes = jax.random.split(key, PROBES), jnp.arange(PROBES)
    extremes = jax.lax.map(probe, probes)
    batches = jax.random.split(jax.random.fold_in(key, PROBES), BATCHES)
    extremes["L_g"] = jax.lax.map(batch_curvature, batches)
    gap = pytrees.sub(solution.y, y)
    contributions = problem.f(*solution_point, None), pytrees.dot(gap, gap), h
    spent = pytrees.add(pytrees.add(solution.cost, hypergradient_cost), _search_cost(problem, y))
    return extremes, contributions, spent


def _probe(
    problem: Objectives, centre: Tree, point: Tree, key: jax.Array, *, radius: Any
) -> dict[str, jax.Array]:
    """Compute all bounds by searches from `point`, and the least eigenvalue of g_yy there."""
    bounds = {}
    for n, (name, bound) in enumerate(BOUNDS.items()):
        shapes = [{"x": point[0], "y": point[1], "d": point}[space] for space in bound.spaces]
        keys = jax.random.split(jax.random.fold_in(key, n), len(shapes))
        vectors = tuple(pytrees.normal(k, shape) for k, shape in zip(keys, shapes))
        form = partial(bound.form, problem)
        bounds[name] = supremum(
            form, centre, point, vectors, radius=radius, steps=_search_steps(bound)
        )
    eigenvalues = lanczos(hessian(problem, point, None), pytrees.normal(key, point[1]))
    return bounds | {"mu_g": eigenvalues.smallest}


def _search_steps(bound: Bound) -> int:
    """Return the number of steps of a search, which alternates between vectors and point."""
    return TURNS * (len(bound.spaces) + 1)


def _search_cost(problem: Objectives, y: Tree) -> Cost:
    """Return the cost of an agent's searches: products per step and probe, on all its rows."""
    train, valid = 1.0 * problem.train.count, 1.0 * problem.valid.count
    size = min(LANCZOS_STEPS, sum(leaf.size for leaf in jax.tree.leaves(y)))
    cost_by_field = {"gradients": 0.0, "hvps": PROBES * size * train, "jvps": 0.0}
    for bound in BOUNDS.values():
        rows = valid if bound.counted_as == "gradients" else train
        cost_by_field[bound.counted_as] += PROBES * _search_steps(bound) * rows
    cost_by_field["hvps"] += BATCHES * size * problem.train.batch
    return Cost(samples=BATCHES * problem.train.batch, **cost_by_field)


def _count_communication(network: Network, x: Tree, numbers: int) -> tuple[int, int]:
    """Return rounds and bytes (all edges, both directions) until all agents know all constants."""
    mixing = network.rounds_to_mix(MIXED)
    number_bytes = default_dtype().itemsize
    vector_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(x))
    bytes_per_link = network.diameter * numbers * number_bytes + mixing * (
        vector_bytes + number_bytes
    )
    return 2 * network.diameter + 2 * mixing, 2 * len(network.edges) * bytes_per_link


@compile_program(
    "pairs", "batch", "sampling", options=MEASURE_OPTIONS, small_options=FAST_COMPILE_OPTIONS
)
def estimate_sigmas(
    chain: ImplicitHypergradient,
    objectives: Objectives,
    points: Point,
    key: jax.Array,
    pairs: int,
    batch: int,
    sampling: Sampling,
) -> tuple[dict[str, tuple[jax.Array, jax.Array]], Cost]:
    """Return (sigma, its standard error) per agent, from gradients on `pairs` pairs of samples.

    Each agent is at its own x and y: `points` have the agents first. Half of ||a - b||^2 of two
    independent gradients has the mean E ||a - E a||^2 = sigma^2, so the mean gradient is not
    needed. sigma_f is that of the hypergradient by `chain`, sigma_g of g_y, sigma_df of (f_x, f_y).
    Also returns the cost of a pair, the mean over pairs and agents.
    """
    agents = jnp.arange(objectives.train.count.shape[0])
    rows = objectives.train.stored, objectives.valid.stored

    def gradients(t: jax.Array) -> tuple[dict[str, Tree], Cost]:
        drawn = partial(draw, hessian_batches=chain.hessian_batches, batch=batch, sampling=sampling)
        sample = jax.vmap(drawn, (None, None, 0, 0), AGENT_AXES)(key, t, agents, rows)

        def agent_gradients(
            problem: Objectives, sample: Tree, point: Point
        ) -> tuple[dict[str, Tree], Cost]:
            (h,), cost = chain(problem, [point], sample)
            g_y = jax.grad(problem.g, 1)(*point, sample.lower)
            df = jax.grad(problem.f, (0, 1))(*point, sample.upper)
            return {"sigma_f": h, "sigma_g": g_y, "sigma_df": df}, cost

        return jax.vmap(agent_gradients, (0, AGENT_AXES, 0))(objectives, sample, points)

    def half_squared_differences(t: jax.Array) -> tuple[dict[str, jax.Array], Cost]:
        (first, spent), (second, more) = gradients(t), gradients(t + SECOND_SAMPLE)
        difference = pytrees.sub(first, second)
        half = {k: jax.vmap(lambda a: pytrees.dot(a, a))(a) / 2 for k, a in difference.items()}
        return half, jax.tree.map(lambda a, b: jnp.mean(1.0 * (a + b)), spent, more)

    squares, spent = jax.lax.map(half_squared_differences, jnp.arange(pairs))
    moments = {k: (a.mean(0), a.std(0, ddof=1) / jnp.sqrt(pairs)) for k, a in squares.items()}
    tiny = jnp.finfo(jax.tree.leaves(points)[0].dtype).tiny
    sigmas = {
        k: (jnp.sqrt(mean), error / (2 * jnp.sqrt(jnp.maximum(mean, tiny))))
        for k, (mean, error) in moments.items()
    }
    of_g_y = Cost(samples=2 * batch, gradients=2 * batch)  # the chain already counts (f_x, f_y)
    return sigmas, pytrees.add(Cost(*(c.mean() for c in spent)), of_g_y)
