"""What `diamond.solve` reaches on new problems, beside a centralised solver in float64.

    python benchmarks/solve_new_problems.py
    python benchmarks/solve_new_problems.py --problems 20 --seed 100

The seed of a problem says everything about it: kind, rows, scales, units, agents and graph. The
centralised solver has all rows: L-BFGS for x and for y, conjugate gradients for z. The minimum is
the lowest upper loss of both solvers, in float64 with an accurate y*(x). Prints one row a problem:
the share of the decrease from the start to the minimum, of the x that each solver returns, and the
calls to 90 % and 99 % of the decrease (a dash where a solver does not reach them). A call is a
gradient or product of one row, in the mean over the agents. `solve` has no settings, runs in
float32, and its calls are those of the first evaluation that is low enough.
"""

import argparse
import math
import multiprocessing
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg

import diamond
from diamond import network

CALLS = ("gradients", "hvps", "jvps")
SHARES = (0.9, 0.99)  # of the decrease
TOLERANCES = (1e-2, 1e-4, 1e-6)  # of y, z and the hypergradient, one after another
GRAPHS = ("ring", "path", "star", "complete", "grid", "erdos_renyi", "one_way_ring")
Loss = Callable[..., jax.Array]


def cross_entropy(scores: jax.Array, labels: jax.Array) -> jax.Array:
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], 1)[:, 0]


LOSSES: dict[str, Loss] = {
    "square": lambda score, b: 0.5 * (score - b) ** 2,
    "Huber": lambda score, b: jnp.sqrt(1 + (score - b) ** 2) - 1,
    "logistic": lambda score, b: jnp.logaddexp(0, score) - b * score,
    "Poisson": lambda score, b: jnp.exp(score) - b * score,
    "quantile": lambda score, b: 0.7 * (b - score) + 0.2 * jnp.logaddexp(0, 5 * (score - b)),
    "softmax": cross_entropy,
}


class Draw(NamedTuple):
    """Losses and start of a problem, without the priors and units that all kinds share."""

    name: str
    upper: Loss
    lower: Loss | None
    x: Any
    y: Any
    respond: Callable[[int, np.ndarray], dict[str, Any]]  # columns of an agent's rows
    level: str = "personal"


class Drawer:
    """Random sizes of one problem."""

    def __init__(self, seed: int, small: bool):
        self.random = random = np.random.default_rng([23, seed])
        self.graph = str(random.choice(GRAPHS))
        self.agents = int(random.integers(2, 4 if small else 17))
        self.agents += self.agents % 2 * (self.graph == "grid")
        middle, largest = (15, 30) if small else (10 ** random.uniform(1.3, 3), 2000)
        counts = middle * np.exp(random.uniform(-1.5, 1.5, (2, self.agents)))
        self.counts = np.clip(counts, 10, largest).astype(int)  # of training and validation rows
        self.features = int(random.integers(2, 6 if small else 31))
        spread = 10 ** -random.uniform(0, 2)
        self.scales = random.permutation(np.geomspace(1, spread, self.features))
        self.ridge = 10 ** random.uniform(-4, -2)
        self.level = str(random.choice(["personal", "personal", "personal", "common"]))

    def weights(self, outputs: int) -> np.ndarray:
        """Draw weights whose scores have a deviation of 2; about half of them are zero."""
        shape = self.features, outputs
        weights = self.random.normal(size=shape) * (self.random.uniform(size=shape) < 0.5)
        return 2 * weights / self.scales[:, None] / (np.linalg.norm(weights, axis=0) + 0.1)

    def response(self, loss: str, scores: np.ndarray) -> np.ndarray:
        """Draw what a regression with this loss predicts."""
        if loss == "softmax":
            return np.argmax(scores + self.random.gumbel(size=scores.shape), axis=1)
        if loss == "logistic":
            return 1.0 * (scores + self.random.logistic(size=len(scores)) > 0)
        if loss == "Poisson":
            return 1.0 * self.random.poisson(np.exp(np.clip(0.5 * scores, -3, 3)))
        return scores + 0.5 * self.random.standard_t(3, size=scores.shape)


def penalties(d: Drawer) -> Draw:
    """One log-penalty per feature, or group of features, of a generalized linear model."""
    name = str(d.random.choice(list(LOSSES)))
    shape = (d.features, int(d.random.integers(3, 6))) if name == "softmax" else (d.features,)
    groups = d.features if d.random.integers(2) else int(d.random.integers(1, 6))
    truth, group = d.weights(shape[-1])[:, : shape[-1]], np.arange(d.features) % groups
    truth = truth if name == "softmax" else truth[:, 0]
    sites = truth * (1 + 0.3 * d.random.normal(size=(d.agents, *truth.shape)))
    fit = lambda x, y, rows: jnp.mean(LOSSES[name](rows["a"] @ y, rows["b"]))
    penalize = lambda x, y: 0.5 * jnp.sum(jnp.exp(x)[group.astype(np.int32)] * (y**2).T)
    lower = lambda x, y, rows: fit(x, y, rows) + penalize(x, y)
    respond = lambda i, a: {"a": a, "b": d.response(name, a @ sites[i])}
    x = np.full(groups, d.random.uniform(-4, 0))
    return Draw(f"penalties, {name}", fit, lower, x, np.zeros(shape), respond, d.level)


def elastic_net(d: Drawer) -> Draw:
    truth = d.weights(1)[:, 0]
    fit = lambda x, y, rows: jnp.mean(LOSSES["square"](rows["a"] @ y, rows["b"]))
    penalty = lambda x, y: jnp.sum(jnp.exp(x[0]) * jnp.sqrt(y**2 + 1e-3) + jnp.exp(x[1]) * y**2)
    lower = lambda x, y, rows: fit(x, y, rows) + penalty(x, y)
    respond = lambda i, a: {"a": a, "b": d.response("square", a @ truth)}
    x, y = d.random.uniform(-5, -1, 2), np.zeros(d.features)
    return Draw("elastic net", fit, lower, x, y, respond, d.level)


def kernel(d: Drawer) -> Draw:
    """Length scales and noise of a smooth kernel, with inducing points or random features."""
    size, points = int(d.random.integers(1, 4)), int(d.random.integers(8, 31))
    d.features, d.scales = size, np.ones(size)
    centres, is_random = d.random.normal(size=(points, size)), bool(d.random.integers(2))
    phases, waves = d.random.uniform(0, 2 * np.pi, points), d.random.normal(size=(3, size))

    def fit(x: Any, y: Any, rows: Any) -> jax.Array:
        shrink = jnp.exp(-x[:-1])
        if is_random:
            phi = jnp.cos(rows["a"] * shrink @ centres.T + phases) * (2 / points) ** 0.5
        else:
            phi = jnp.exp(-0.5 * jnp.sum((rows["a"][:, None] - centres) ** 2 * shrink**2, axis=2))
        return 0.5 * jnp.mean((phi @ y - rows["b"]) ** 2)

    lower = lambda x, y, rows: fit(x, y, rows) + 0.5 * jnp.exp(x[-1]) * jnp.sum(y**2)
    clean = lambda i, a: np.sin(a @ waves.T + 0.2 * i).sum(1)
    respond = lambda i, a: {"a": a, "b": clean(i, a) + 0.3 * d.random.normal(size=len(a))}
    x = np.append(np.full(size, d.random.uniform(-0.5, 1)), -2.0)
    name = f"kernel, {'random features' if is_random else 'inducing points'}"
    return Draw(name, fit, lower, x, np.zeros(points), respond, d.level)


def cleaning(d: Drawer) -> Draw:
    """Weights of suspicious training rows, one per row or per source of rows."""
    d.counts, d.ridge = np.minimum(d.counts, 200), d.ridge**0.5
    classes, is_by_row = int(d.random.integers(2, 5)), bool(d.random.integers(2))
    count = int(d.counts[0].sum()) // 2 if is_by_row else int(d.random.integers(3, 13))
    share = np.append(np.full(count, 0.5) if is_by_row else d.random.uniform(0, 0.8, count), 0)
    truth, drawn = 2 * d.weights(classes), [0, int(d.counts[0].sum())]

    def respond(i: int, a: np.ndarray) -> dict[str, Any]:
        row = np.arange(drawn[0], drawn[0] + len(a))
        drawn[0] += len(a)
        source = np.minimum(row % (2 * count), count) if is_by_row else row % count
        is_wrong = d.random.uniform(size=len(a)) < share[source] * (row < drawn[1])
        labels = d.random.integers(0, classes, len(a))
        return {"a": a, "b": np.where(is_wrong, labels, d.response("softmax", a @ truth)),
                "source": source}  # fmt: skip

    def lower(x: Any, y: Any, rows: Any) -> jax.Array:
        weights = jnp.append(jax.nn.sigmoid(x), 1)[rows["source"]]
        return jnp.mean(weights * cross_entropy(rows["a"] @ y, rows["b"]))

    upper = lambda x, y, rows: jnp.mean(cross_entropy(rows["a"] @ y, rows["b"]))
    x, y = np.zeros(count), np.zeros((d.features, classes))
    name = f"cleaning of {'rows' if is_by_row else 'sources'}"
    return Draw(name, upper, lower, x, y, respond, d.level)


def linear_representation(d: Drawer) -> Draw:
    """A linear representation that the agents share, and a ridge head of each agent."""
    rank, d.ridge = int(d.random.integers(1, 5)), d.ridge**0.5
    basis, heads = d.weights(rank) / 2, d.random.normal(size=(d.agents, rank))
    fit = lambda x, y, rows: jnp.mean(LOSSES["square"](rows["a"] @ x @ y, rows["b"]))
    respond = lambda i, a: {"a": a, "b": d.response("square", a @ basis @ heads[i])}
    x = d.random.normal(size=(d.features, rank))
    return Draw("linear representation", fit, fit, x, np.zeros(rank), respond)


def common_centre(d: Drawer) -> Draw:
    """A matrix x towards which the matrices y of the agents are drawn."""
    name = str(d.random.choice(["square", "Huber", "softmax"]))
    truth, pull = d.weights(int(d.random.integers(2, 5))), 10 ** d.random.uniform(-2, 0)
    sites = truth * (1 + 0.5 * d.random.normal(size=(d.agents, *truth.shape)))
    fit = lambda x, y, rows: jnp.mean(LOSSES[name](rows["a"] @ y, rows["b"]))
    lower = lambda x, y, rows: fit(x, y, rows) + 0.5 * pull * jnp.sum((y - x) ** 2)
    respond = lambda i, a: {"a": a, "b": d.response(name, a @ sites[i])}
    start = np.zeros(truth.shape)
    return Draw(f"common centre, {name}", fit, lower, start, start, respond)


def two_stages(d: Drawer) -> Draw:
    """Instrumental variables, or values of a policy: y predicts a function of x."""
    is_policy, truth, size = bool(d.random.integers(2)), d.weights(1)[:, 0], d.features
    step = d.random.normal(size=(size, size)) / size**0.5 * d.scales / d.scales[:, None]

    def respond(i: int, a: np.ndarray) -> dict[str, Any]:
        hidden = d.random.normal(size=(len(a), 1))
        after = a @ step + 0.3 * (d.random.normal(size=a.shape) + hidden) * d.scales
        reward = (a if is_policy else after) @ truth + 0.5 * i / d.agents + hidden[:, 0]
        return {"a": a, "next": after, "b": reward}

    def lower(x: Any, y: Any, rows: Any) -> jax.Array:
        goal = 0.8 * rows["next"] @ x + rows["b"] if is_policy else rows["next"] @ x
        return 0.5 * jnp.mean((rows["a"] @ y - goal) ** 2)

    def upper(x: Any, y: Any, rows: Any) -> jax.Array:
        goal = rows["a"] @ x if is_policy else rows["b"]
        return 0.5 * jnp.mean((rows["a"] @ y - goal) ** 2)

    start, name = np.zeros(size), "policy evaluation" if is_policy else "instruments"
    return Draw(name, upper, lower, start, start, respond, "common")


def hidden_layer(d: Drawer) -> Draw:
    """A hidden layer x below a common regression y."""
    width, d.ridge = int(d.random.integers(4, 13)), d.ridge**0.5
    basis, head = d.weights(4) / 2, d.random.normal(size=4)
    phi = lambda x, rows: jnp.tanh(rows["a"] / d.scales @ x["w"] + x["c"])
    fit = lambda x, y, rows: jnp.mean(LOSSES["square"](phi(x, rows) @ y, rows["b"]))
    respond = lambda i, a: {"a": a, "b": d.response("square", np.tanh(a @ basis) @ head)}
    w = d.random.normal(size=(d.features, width)) / d.features**0.5
    x = {"w": w, "c": 0.1 * d.random.normal(size=width)}
    return Draw("hidden layer", fit, fit, x, np.zeros(width), respond, "common")


def no_lower_level(d: Drawer) -> Draw:
    """Nonlinear least squares: a saturated response, or a sum of decays."""
    is_decay, truth = bool(d.random.integers(2)), d.weights(1)[:, 0]
    rates = 10 ** d.random.uniform(-1, 1, 3)

    def respond(i: int, a: np.ndarray) -> dict[str, Any]:
        t = d.random.exponential(2, size=(len(a), 1))
        clean = np.exp(-t * rates) @ [3, 2, 1] if is_decay else 3 * np.tanh(a @ truth)
        return {"a": a, "t": t, "b": d.response("square", clean)}

    def upper(x: Any, rows: Any) -> jax.Array:
        if is_decay:
            score = jnp.exp(-rows["t"] * jnp.exp(x["rate"])) @ x["size"]
        else:
            score = x["size"][0] * jnp.tanh(rows["a"] @ x["rate"])
        return jnp.mean(LOSSES["Huber"](score, rows["b"]))

    rate = np.array([-1.0, 0.0, 1.0]) if is_decay else 0.1 * truth
    x = {"rate": rate, "size": np.ones(3 if is_decay else 1)}
    name = "sum of decays" if is_decay else "saturated response"
    return Draw(name, upper, None, x, np.zeros(0), respond, "none")


KINDS: tuple[Callable[[Drawer], Draw], ...] = (
    penalties, elastic_net, penalties, kernel, cleaning,
    linear_representation, common_centre, two_stages, hidden_layer, no_lower_level,
)  # fmt: skip


class NewProblem(NamedTuple):
    """A problem for both solvers."""

    name: str
    upper: Loss
    lower: Loss | None
    x: Any
    y: Any
    train: list[Any]
    valid: list[Any]  # of f; without a lower level those of `train`
    level: str
    network: network.Network

    def make_problem(self) -> diamond.Problem:
        if self.lower is None:
            return diamond.Problem(self.upper, None, lambda key: self.x, self.train)
        start, rows = (lambda key: (self.x, self.y)), (self.train, self.valid)
        return diamond.Problem(self.upper, self.lower, start, *rows, lower_level=self.level)


def draw_problem(seed: int, small: bool = False) -> NewProblem:
    """Return a problem and its network; the seed says everything about them."""
    d = Drawer(seed, small)
    draw = KINDS[seed % len(KINDS)](d)
    f_unit, g_unit = 10 ** d.random.uniform(-2, 2, 2)
    squares = lambda tree: sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree))
    prior = lambda x: 0.01 * squares(x) / sum(np.size(leaf) for leaf in jax.tree.leaves(x))
    upper = lambda x, *others: f_unit * (draw.upper(x, *others) + prior(x))
    ridge = lambda y: 0.5 * d.ridge * squares(y)
    lower = draw.lower and (lambda x, y, rows: g_unit * (draw.lower(x, y, rows) + ridge(y)))
    site = lambda i, n: draw.respond(i, d.random.normal(size=(n, d.features)) * d.scales)
    narrow = lambda a: a.astype(np.float32 if a.dtype == np.float64 else np.int32)
    single = lambda tree: jax.tree.map(narrow, tree)
    train, valid = ([single(site(i, n)) for i, n in enumerate(part)] for part in d.counts)
    sizes = (2, d.agents // 2) if d.graph == "grid" else (d.agents,)
    options = {"p": 0.4, "seed": seed} if d.graph == "erdos_renyi" else {}
    graph = getattr(network, d.graph)(*sizes, **options)
    valid = valid if lower else train
    start = single(draw.x), single(draw.y)
    return NewProblem(draw.name, upper, lower, *start, train, valid, draw.level, graph)


class CentralSolver:
    """L-BFGS for x and y, conjugate gradients for z, on all rows and in float64."""

    def __init__(self, new: NewProblem):
        double = lambda tree: jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), tree)
        (x, to_x), (y, to_y) = ravel_pytree(double(new.x)), ravel_pytree(double(new.y))
        self.x, y, self.has_lower = np.asarray(x), np.asarray(y), new.lower is not None
        agents, is_personal = np.arange(len(new.train)), new.level == "personal"
        self.groups = agents[:, None] if is_personal else agents[None]  # of agents with one y
        self.rows = np.array([[len(r["a"]) for r in part] for part in (new.train, new.valid)])
        others = lambda y, rows: (to_y(y), rows) if self.has_lower else (rows,)
        f = mean_loss(lambda x, y, rows: new.upper(to_x(x), *others(y, rows)), new.valid)
        g = mean_loss(lambda x, y, rows: new.lower(to_x(x), to_y(y), rows), new.train)
        g_x, g_y = jax.grad(g, 0), jax.grad(g, 1)
        along = lambda h: lambda x, y, k, v: jax.jvp(lambda y: h(x, y, k), (y,), (v,))[1]
        self.upper, self.lower = jax.jit(jax.value_and_grad(f, (0, 1))), jax.jit(g)
        self.lower_slope = jax.jit(jax.value_and_grad(g, 1))
        self.hessian = jax.jit(jax.jacfwd(g_y, 1))
        self.product, self.cross = jax.jit(along(g_y)), jax.jit(along(g_x))
        self.y, self.z, self.exact_y = ([y] * len(self.groups) for _ in range(3))
        self.first_slopes, self.calls = [0.0] * len(self.groups), 0.0

    def charge(self, part: int, group: np.ndarray) -> None:
        """Count one derivative on all rows of a group, in the mean over the agents."""
        self.calls += float(self.rows[part, group].sum()) / self.rows.shape[1]

    def true_loss(self, x: np.ndarray) -> float:
        """Return the upper loss with an accurate y*(x), by Newton's method; not counted."""
        values = []
        for k, group in enumerate(self.groups):
            y = self.exact_y[k]
            for _ in range(100 * self.has_lower):
                value, slope = self.lower_slope(x, y, group)
                step = np.linalg.solve(self.hessian(x, y, group), slope)
                gain, loss_at = (
                    float(slope @ step),
                    lambda s, group=group, step=step, y=y: self.lower(x, y - s * step, group),
                )
                shares = 0.5 ** np.arange(30)
                share = next((s for s in shares if loss_at(s) <= value - 0.1 * s * gain), 0.0)
                y = y - share * step
                if not share * gain > 1e-13 * abs(value):
                    break
            self.exact_y[k] = y
            values.append(float(self.upper(x, y, group)[0]))
        return float(np.mean(values))

    def solve_lower(self, k: int, x: np.ndarray, tolerance: float) -> np.ndarray:
        """Return y near y*(x) of a group, by L-BFGS from the last y."""

        def evaluate(y: np.ndarray) -> tuple[float, np.ndarray]:
            self.charge(0, self.groups[k])
            value, slope = self.lower_slope(x, y, self.groups[k])
            self.first_slopes[k] = self.first_slopes[k] or float(jnp.max(jnp.abs(slope)))
            unit = self.first_slopes[k] or 1.0
            return float(value) / unit, np.asarray(slope) / unit

        options = {"gtol": tolerance, "ftol": 0, "maxcor": 20, "maxiter": 2000, "maxfun": 4000}
        return minimize(evaluate, self.y[k], jac=True, method="L-BFGS-B", options=options).x

    def solve_adjoint(self, k: int, x: np.ndarray, f_y: np.ndarray, tolerance: float) -> np.ndarray:
        """Return z with g_yy z = f_y of a group, by conjugate gradients from the last z."""

        def multiply(v: np.ndarray) -> np.ndarray:
            self.charge(0, self.groups[k])
            return np.asarray(self.product(x, self.y[k], self.groups[k], v))

        matrix = LinearOperator((f_y.size, f_y.size), multiply, dtype=np.float64)
        return cg(matrix, f_y, self.z[k], rtol=tolerance, maxiter=1000)[0]

    def hypergradient(self, x: np.ndarray, tolerance: float) -> tuple[float, np.ndarray]:
        """Return the upper loss and its gradient, with y and z of this accuracy."""
        results = []
        for k, group in enumerate(self.groups):
            if self.has_lower:
                self.y[k] = self.solve_lower(k, x, tolerance)
            self.charge(1, group)
            value, (slope, f_y) = self.upper(x, self.y[k], group)
            if self.has_lower:
                self.z[k] = self.solve_adjoint(k, x, np.asarray(f_y), tolerance)
                self.charge(0, group)
                slope = slope - self.cross(x, self.y[k], group, self.z[k])
            results.append((value, slope))
        values, slopes = zip(*results)
        return float(np.mean(values)), np.mean(slopes, axis=0)

    def solve(self, x: np.ndarray) -> tuple[list[tuple[float, float]], np.ndarray]:
        """Return (calls, true upper loss) of all points, and the best point."""
        path, points, first_slope = [(0.0, self.true_loss(x))], [x], 0.0

        def evaluate(x: np.ndarray, tolerance: float) -> tuple[float, np.ndarray]:
            nonlocal first_slope
            value, slope = self.hypergradient(x, tolerance)
            first_slope = first_slope or float(np.linalg.norm(slope))
            path.append((self.calls, self.true_loss(x)))
            points.append(x.copy())
            return value / first_slope, slope / first_slope

        for tolerance in TOLERANCES:
            options = {"gtol": tolerance, "ftol": 1e-13, "maxcor": 20, "maxiter": 300}
            minimize(evaluate, x, (tolerance,), "L-BFGS-B", jac=True, options=options)
            x = points[int(np.nanargmin([loss for _, loss in path]))]
        return path, x


def mean_loss(loss: Loss, sites: list[Any]) -> Loss:
    """Return the mean of a loss over a group of agents, each on all its rows."""
    counts = np.array([len(rows["a"]) for rows in sites])
    pad = lambda a: np.concatenate([a, np.repeat(a[:1], counts.max() - len(a), axis=0)])
    double = lambda a: jnp.asarray(a, a.dtype if a.dtype == np.int32 else np.float64)
    stacked = jax.tree.map(lambda *parts: double(np.stack([pad(a) for a in parts])), *sites)

    def mean(x: jax.Array, y: jax.Array, group: jax.Array) -> jax.Array:
        rows = jax.tree.map(lambda a: a[group][:, :, None], stacked)
        over_rows = jax.vmap(loss, (None, None, 0))
        losses = jax.vmap(over_rows, (None, None, 0))(x, y, rows)
        numbers = jnp.asarray(counts)[group][:, None]
        is_row = jnp.arange(counts.max()) < numbers
        return jnp.sum(jnp.where(is_row, losses, 0) / numbers) / len(group)

    return mean


class Comparison(NamedTuple):
    """Both solvers on one problem; pairs are of `solve` and of the centralised solver."""

    shares: tuple[float, float]  # of the decrease to the minimum
    calls: list[tuple[float, float]]  # to each of SHARES
    rounds: int
    seconds: float
    message: str


def solve_centrally(seed: int, small: bool, x: Any) -> tuple[list[tuple[float, float]], float]:
    """Return the path of the centralised solver, and the upper loss at x, in float64."""
    central = CentralSolver(draw_problem(seed, small))
    path, _ = central.solve(central.x)
    return path, math.nan if x is None else central.true_loss(np.asarray(ravel_pytree(x)[0]))


def compare(seed: int, small: bool, worker: ProcessPoolExecutor) -> Comparison:
    """Run both solvers; an exception of `solve` is its message."""
    new, own_path, rounds, x = draw_problem(seed, small), [], 0, None
    started = time.monotonic()
    try:
        run = diamond.solve(new.make_problem(), new.network, every=1, measure="loss")
        x = jax.tree.map(lambda a: np.asarray(a, np.float64).mean(0), run.x)
        calls = sum(run.history[name] for name in CALLS)
        own_path = list(zip(calls, run.history["upper_loss"]))
        rounds, message = run.rounds, run.message
    except Exception as error:  # a failure of `solve` is a result
        message = f"{type(error).__name__}: {error}"
    seconds = time.monotonic() - started
    path, end = worker.submit(solve_centrally, seed, small, x).result()
    start, least = path[0][1], float(np.nanmin([loss for _, loss in path]))
    decrease = start - np.fmin(least, end)
    calls_to = lambda limit, path: next((n for n, loss in path if loss <= limit), math.inf)
    limits = [start - share * decrease for share in SHARES]
    pairs = [(calls_to(limit, own_path), calls_to(limit, path)) for limit in limits]
    shares = (start - end) / decrease, (start - least) / decrease
    return Comparison(shares, pairs, rounds, seconds, message)


def enable_double_precision() -> None:
    jax.config.update("jax_enable_x64", True)


def shown(number: float) -> str:
    return f"{number:,.0f}" if math.isfinite(number) else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first problem")
    parser.add_argument("--small", action="store_true", help="two small problems")
    options = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)
    number, results = 2 if options.small else options.problems, []
    names = "solve", "central", "90 %", "central", "99 %", "central", "rounds", "seconds"
    print("| seed | problem | network |", *(f"{name} |" for name in names), "message |")
    print("| ---: | --- | --- |", *("---: |" for _ in names), "--- |")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, enable_double_precision) as worker:
        for seed in range(options.seed, options.seed + number):
            new = draw_problem(seed, options.small)
            x, y = (sum(np.size(a) for a in jax.tree.leaves(tree)) for tree in (new.x, new.y))
            results.append(result := compare(seed, options.small, worker))
            cells = [str(seed), f"{new.name}; {new.level}; x {x}, y {y}", new.network.title]
            cells += [f"{100 * share:.5g} %" for share in result.shares]
            cells += [shown(calls) for pair in result.calls for calls in pair]
            cells += [shown(result.rounds), shown(result.seconds), result.message]
            print("|", " | ".join(cells), "|", flush=True)
    solved = sum(result.shares[0] >= SHARES[-1] for result in results)
    pairs = [result.calls[-1] for result in results]
    cheap = sum(own <= central and math.isfinite(own) for own, central in pairs)
    print(f"\n{solved} of {number} problems end with 99 % of the decrease; {cheap} need at most")
    print("the calls of the centralised solver to 99 %.")


if __name__ == "__main__":
    main()
