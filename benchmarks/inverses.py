"""Ways to estimate [g_yy]^-1 b from mini-batches: what each leaves out, its noise, its products.

    python benchmarks/inverses.py [--small]

Plain numpy, in the mean over 400 draws: ridge regressions on 400 rows of d features whose scales
give g_yy the condition named, L three times the largest eigenvalue of eight mini-batches, as a run
takes it. "bias" is ||mean z - z*|| / ||z*|| and "noise" the standard deviation of z likewise. "z
carried" is z of round 2,000 of z <- z - (g_yy z - b) / L, one product a round; CG is on the mean of
the same number of mini-batches as the chain draws, at most 20 steps.
"""

import sys

import numpy as np

ROWS, TERMS, SAFETY = 400, 20, 3.0
DRAWS = 2 if "--small" in sys.argv else 400
CASES = {
    "30, batch 16": (10, 30.0, 16),
    "100, batch 16": (10, 100.0, 16),
    "30, batch 2": (10, 30.0, 2),
}


class Ridge:
    """Mini-batches of g = mean (a y - b)^2 + ||y||^2 / condition."""

    def __init__(self, features, condition, batch):
        self.random = np.random.default_rng(0)
        scales = condition ** (-0.5 * np.arange(features) / (features - 1))
        a = self.random.normal(size=(ROWS, features)) * scales
        self.blocks, self.penalty = a.reshape(-1, batch, features), 2 / condition
        self.b = 0.2 * a.T @ (a @ self.random.normal(size=features)) / ROWS
        hessian = 2 * a.T @ a / ROWS + self.penalty * np.eye(features)
        self.exact, self.mu = np.linalg.solve(hessian, self.b), np.linalg.eigvalsh(hessian)[0]
        curvatures = [np.linalg.eigvalsh(self.draw(1))[-1] for _ in range(8)]
        self.lipschitz = SAFETY * max(curvatures)
        self.low = max(self.mu, 4 * self.lipschitz / TERMS**2)

    def draw(self, count):
        """g_yy in the mean over so many mini-batches."""
        a = self.blocks[self.random.integers(0, len(self.blocks), count)]
        a = a.reshape(-1, a.shape[-1])
        return 2 * a.T @ a / len(a) + self.penalty * np.eye(a.shape[1])


def chain(p, terms=32):
    z = p.b
    for _ in range(p.random.integers(0, terms)):
        z = z - p.draw(1) @ z / p.lipschitz
    return terms / p.lipschitz * z


def whole_sum(p):
    w = z = p.b
    for _ in range(TERMS - 1):
        w = w - p.draw(1) @ w / p.lipschitz
        z = z + w
    return z / p.lipschitz


def nesterov(p):
    root = np.sqrt(p.low / p.lipschitz)
    before, z = 0, p.b / p.lipschitz
    for _ in range(TERMS - 1):
        w = z + (1 - root) / (1 + root) * (z - before)
        before, z = z, w + (p.b - p.draw(1) @ w) / p.lipschitz
    return z


def chebyshev(p):
    middle, half = (p.lipschitz + p.low) / 2, (p.lipschitz - p.low) / 2
    before, z, last = 0, p.b / middle, half / middle
    for _ in range(TERMS - 1):
        r = 1 / (2 * middle / half - last)
        moved = z + r * last * (z - before) + 2 * r / half * (p.b - p.draw(1) @ z)
        before, z, last = z, moved, r
    return z


def conjugate_gradient(p):
    hessian, z, r = p.draw(TERMS - 1), 0, p.b
    w = r
    for _ in range(min(TERMS, len(p.b))):
        step = r @ r / (w @ hessian @ w)
        z, new = z + step * w, r - step * hessian @ w
        w, r = new + new @ new / (r @ r) * w, new
    return z


def warm_start(p, rounds=2000):
    if not hasattr(p, "z"):
        p.z = np.zeros_like(p.b)
        for _ in range(rounds):
            warm_start(p)
    p.z = p.z - (p.draw(1) @ p.z - p.b) / p.lipschitz
    return p.z


ESTIMATORS = {
    "chain of eq. (5), K = 32": (chain, "15.5"),
    "whole sum, K = 20": (whole_sum, "19"),
    "Chebyshev, K = 20": (chebyshev, "19"),
    "Nesterov, K = 20": (nesterov, "19"),
    "CG on 19 mini-batches at once": (conjugate_gradient, "10 x 19"),
    "z carried": (warm_start, "1"),
}


def main():
    print("| inverse | products | " + " | ".join(f"condition {name}" for name in CASES) + " |")
    print("| --- | --- |" + " --- |" * len(CASES))
    for name, (estimate, products) in ESTIMATORS.items():
        cells = []
        for case in CASES.values():
            p = Ridge(*case)
            estimates = np.array([estimate(p) for _ in range(DRAWS)])
            mean, size = estimates.mean(0), np.linalg.norm(p.exact)
            noise = np.sqrt(((estimates - mean) ** 2).sum(1).mean())
            cells.append(f"{np.linalg.norm(mean - p.exact) / size:.2f}, {noise / size:.2f}")
        print(f"| {name} | {products} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
