"""A shared portfolio: a compositional problem, whose lower level holds expectations."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.pytrees import Tree
from ..core.validation import as_int
from ..problem import Problem

MEAN, SPREAD = 0.2, 0.1  # of expected returns over assets, and between agents


class Portfolio(Problem):
    """A compositional problem with closed forms on the observed returns."""

    means: np.ndarray  # (agents, assets), mean returns
    covariances: np.ndarray  # (agents, assets, assets)
    risk: float

    def lower_solution(self, x: np.ndarray) -> np.ndarray:
        """Return y_i*(x) = (E r'x, E (r'x)^2) for every agent."""
        first = self.means @ x
        return np.stack([first, first**2 + self.variances(x)], axis=1)

    def variances(self, x: np.ndarray) -> np.ndarray:
        """Return the variance of r'x for every agent."""
        return np.einsum("a,iab,b->i", x, self.covariances, x)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Return grad l(x) = -mean returns + risk (mean covariance) x."""
        return -self.means.mean(0) + self.risk * self.covariances.mean(0) @ x

    def minimizer(self) -> np.ndarray:
        """Return the best portfolio, (risk mean covariance)^-1 mean returns."""
        return np.linalg.solve(self.risk * self.covariances.mean(0), self.means.mean(0))


def portfolio(
    agents: int = 5, assets: int = 6, periods: int = 60, risk: float = 1.0, seed: int = 0
) -> Portfolio:
    """Make a mean-variance portfolio problem, with expectations inside a square.

        f_i = -y_1 + risk/2 (y_2 - y_1^2)
        g_i = 1/2 |y - E h(x; r)|^2,    h(x; r) = (r'x, (r'x)^2),    E over agent i's returns r

    x, shared, are amounts in the assets, and every agent has its own private record of returns
    (periods, assets). f_i is -(expected return) + risk/2 (variance); the variance has the square of
    an expectation, which no average over mini-batches is, so that y_i holds both expectations
    (Wang, Fang and Liu, 2017). y*, grad l and x* have closed forms on the observed returns.

    Args:
        agents, assets: sizes.
        periods: returns of each agent.
        risk: weight of the variance.
        seed: seed of the returns.

    Returns:
        The problem.
    """
    for name, size in {"agents": agents, "assets": assets}.items():
        as_int(name, size, 1)
    if as_int("periods", periods) <= assets:
        raise ValueError(f"periods = {periods} of {assets} assets; give more, for the covariance")
    if not risk > 0:
        raise ValueError(f"risk = {risk} must be positive: amounts would have no limit")
    random = np.random.default_rng(as_int("seed", seed, 0))
    market = random.normal(MEAN, SPREAD, size=assets)
    loadings = random.uniform(0.2, 0.8, size=assets)  # on a factor that moves all assets
    returns = [
        market
        + SPREAD * random.normal(size=assets)
        + np.outer(random.normal(size=periods), loadings)
        + random.normal(size=(periods, assets)) * np.sqrt(1 - loadings**2)
        for _ in range(agents)
    ]

    def init(key: jax.Array) -> tuple[Tree, Tree]:
        return jnp.zeros(assets), jnp.zeros(2)

    def upper(x: Tree, y: Tree, rows: Any) -> jax.Array:
        return -y[0] + risk / 2 * (y[1] - y[0] ** 2)

    def lower(x: Tree, y: Tree, rows: Any) -> jax.Array:
        gains = rows["r"] @ x
        return jnp.mean((y[0] - gains) ** 2 + (y[1] - gains**2) ** 2) / 2

    rows = [{"r": r} for r in returns]
    problem = Portfolio(upper, lower, init, rows, rows)
    problem.means = np.stack([r.mean(0) for r in returns])
    problem.covariances = np.stack(
        [np.cov(r.T, bias=True).reshape(assets, assets) for r in returns]
    )
    problem.risk = risk
    return problem
