"""A quadratic problem whose y*, hypergradient and minimizer are known in closed form."""

from collections.abc import Iterable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree
from ..core.validation import as_int
from ..problem import Problem


class Quadratic(Problem):
    """Quadratic problem with closed-form y*, hypergradient and minimizer.

        f_i = mean_n 1/2 ||y - a_n||^2 + 1/2 x'Px + c'x + x'Dy
        g_i = mean_n 1/2 y'Ay - y'(Bx + b_n)

    P, c, D, A, B differ between agents; a_n (validation) and b_n (training) are the rows. Then
    y_i*(x) = A^-1 (Bx + b), b the mean of b_n, and grad l is linear in x. With a common lower
    level, A, B, b are means over the agents, and z, of g_yy z = f_y, is common too. Without a lower
    level, f_i = mean_n 1/2 x'Px + c_n'x.
    """

    P: np.ndarray  # (agents, upper, upper)
    c: np.ndarray  # (agents, upper)
    D: np.ndarray  # (agents, upper, lower)
    A: np.ndarray  # (agents, lower, lower), eigenvalues from mu to L
    B: np.ndarray  # (agents, lower, upper)
    a: np.ndarray  # (agents, lower), means of the validation rows
    b: np.ndarray  # (agents, lower), means of the training rows

    def lower_solution(self, x: np.ndarray) -> np.ndarray:
        """Return y_i*(x) = A^-1 (Bx + b) for every agent, x shared or one row per agent."""
        right = np.einsum("iyx,ix->iy", self.B, np.broadcast_to(x, self.c.shape)) + self.b
        return self._solve_lower(right)

    def _solve_lower(self, right: np.ndarray) -> np.ndarray:
        """Apply A^-1: each agent's, or that of the means."""
        A = self.A
        if self.lower_level == "common":
            A, right = (np.broadcast_to(a.mean(0), a.shape) for a in (A, right))
        return np.linalg.solve(A, right[..., None])[..., 0]

    def surrogate(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return f_x - g_xy [g_yy]^-1 f_y = Px + c + Dy + B' A^-1 (y - a + D'x) per agent (4)."""
        x = np.broadcast_to(x, self.c.shape)
        f_y = y - self.a + np.einsum("ixy,ix->iy", self.D, x)
        z = self._solve_lower(f_y)
        f_x = np.einsum("ixw,iw->ix", self.P, x) + self.c + np.einsum("ixy,iy->ix", self.D, y)
        return f_x + np.einsum("iyx,iy->ix", self.B, z)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Return grad l(x), the mean over the agents at their y_i*(x) (3)."""
        if self.lower_level == "none":
            return self.P.mean(0) @ x + self.c.mean(0)
        return self.surrogate(x, self.lower_solution(x)).mean(0)

    def minimizer(self) -> np.ndarray:
        """Return the x with grad l(x) = 0."""
        size = self.c.shape[1]
        at_zero = self.gradient(np.zeros(size))
        columns = [self.gradient(e) - at_zero for e in np.eye(size)]
        return np.linalg.solve(np.stack(columns, axis=1), -at_zero)


# Defined at module level, so that another problem of the same sizes reuses compiled programs.
def _f(x: Tree, y: Tree, rows: Tree) -> jax.Array:
    values = 0.5 * jnp.sum((y - rows["point"]) ** 2, -1) + jnp.einsum(
        "w,nwx,x->n", x, 0.5 * rows["P"], x
    )
    return jnp.mean(values + rows["c"] @ x + jnp.einsum("x,nxy,y->n", x, rows["D"], y))


def _g(x: Tree, y: Tree, rows: Tree) -> jax.Array:
    right = jnp.einsum("nyx,x->ny", rows["B"], x) + rows["point"]
    return jnp.mean(0.5 * jnp.einsum("v,nvy,y->n", y, rows["A"], y) - right @ y)


def _f_without_lower_level(x: Tree, rows: Tree) -> jax.Array:
    return jnp.mean(jnp.einsum("w,nwx,x->n", x, 0.5 * rows["P"], x) + rows["c"] @ x)


def quadratic(
    agents: int = 5,
    upper: int = 4,
    lower: int = 5,
    rows: int | list[int] = 40,
    mu: float = 0.5,
    L: float = 1.5,
    noise: float = 0.5,
    heterogeneity: float = 1.0,
    seed: int = 0,
    lower_level: Literal["personal", "common", "none"] = "personal",
) -> Quadratic:
    """Make a random quadratic problem.

        f_i = mean_n 1/2 ||y - a_n||^2 + 1/2 x'Px + c'x + x'Dy
        g_i = mean_n 1/2 y'Ay - y'(Bx + b_n)

    Args:
        agents: number of agents.
        upper, lower: dimensions of x and y.
        rows: rows per agent, one number or one each.
        mu, L: extreme eigenvalues of A.
        noise: spread of an agent's rows; 0 makes every sample the mean.
        heterogeneity: scale of the differences between agents.
        seed: seed of the problem.
        lower_level: "personal", "common", or "none".

    Returns:
        The problem, with its closed forms.
    """
    for name, size in {"agents": agents, "upper": upper, "lower": lower}.items():
        as_int(name, size, 1)
    random = np.random.default_rng(as_int("seed", seed, 0))
    row_counts = rows if isinstance(rows, Iterable) else [rows] * agents
    counts = [as_int("rows", n, 1) for n in row_counts]

    def draw_symmetric(size: int, low: float, high: float) -> np.ndarray:
        basis = np.linalg.qr(random.normal(size=(agents, size, size)))[0]
        values = np.linspace(low, high, size) if size > 1 else np.array([low])
        return np.einsum("iab,b,icb->iac", basis, values, basis)

    def draw_near_common(*shape: int) -> np.ndarray:
        common, differences = random.normal(size=shape), random.normal(size=(agents, *shape))
        return common + heterogeneity * differences

    P, A = draw_symmetric(upper, 0.8, 1.6), draw_symmetric(lower, mu, L)
    B, D = 0.4 * draw_near_common(lower, upper), 0.1 * draw_near_common(upper, lower)
    c, centres = (
        draw_near_common(upper),
        {"train": draw_near_common(lower), "valid": draw_near_common(lower)},
    )
    points = {
        part: [
            mean + noise * random.normal(size=(n, lower)) for mean, n in zip(centres[part], counts)
        ]
        for part in centres
    }
    matrices = {"P": P, "c": c, "D": D, "A": A, "B": B}

    def rows_of_part(part: str) -> list[Tree]:
        return [
            {"point": point}
            | {k: np.repeat(v[i][None], len(point), 0) for k, v in matrices.items()}
            for i, point in enumerate(points[part])
        ]

    def init(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.zeros(upper), jnp.zeros(lower)

    if lower_level == "none":
        linear_terms = [mean + noise * random.normal(size=(n, upper)) for mean, n in zip(c, counts)]
        agent_rows = [
            {"P": np.repeat(P[i][None], len(a), 0), "c": a} for i, a in enumerate(linear_terms)
        ]
        c = np.stack([a.mean(0) for a in linear_terms])
        problem = Quadratic(_f_without_lower_level, None, lambda key: jnp.zeros(upper), agent_rows)
        means = dict.fromkeys(points, np.zeros((agents, lower)))
    else:
        problem = Quadratic(
            _f, _g, init, rows_of_part("train"), rows_of_part("valid"), lower_level=lower_level
        )
        means = {part: np.stack([p.mean(0) for p in points[part]]) for part in points}
    problem.P, problem.c, problem.D, problem.A, problem.B = P, c, D, A, B
    problem.a, problem.b = means["valid"], means["train"]
    return problem
