"""Early signs that a run goes wrong, each said once, with cause and remedy."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from ..core import host
from ..core.tree import Tree
from ..hypergradient.diagnostics.lipschitz import in_use
from ..problem import Problem
from ..rounds.algorithm import Algorithm
from . import lower_solution

GROWN = 100.0  # times its smallest: a direction that should shrink
STABLE = 1.0  # beta times the curvature of g_yy; 2 is the limit
STALE = 10.0  # ||mean of p|| / ||grad l||: momentum has gathered more than the gradient
VANISHED = 1e-3  # of the first ||grad l||^2
NEAR = 5e-3  # of the loss of a prediction that ignores the features
PATIENCE = 100  # rounds, and half of those planned, before a run is said to stand still
STILL = 1e-2  # of 1 + ||x_0||: no agent has moved x further
UNCHANGED = 0.9  # of the first ||grad l||^2, that is left
SLIGHT = 1e-3  # of |l|: a change that ||grad l|| (1 + ||x_0||) must exceed to matter
ENDED = 1e-2  # of the first alpha: a schedule that is over
Numbers = Callable[[], dict[str, float]]


class EarlyWarnings:
    """What was seen of a run so far, and what has been said."""

    def __init__(self, problem: Problem, seed: int):
        self.problem = problem
        self.start: Tree = problem.start(seed)[0]
        self.tolerance = lower_solution.tolerance(jax.tree.leaves(problem.start(seed))[0].dtype)
        self.said: set[str] = set()
        self.least: dict[str, tuple[float, int]] = {}  # of each direction: its size, the round
        self.first: float | None = None  # ||grad l||^2 at the first evaluation

    def look(
        self, entry: dict[str, float], state: Any, algorithm: Algorithm, rounds: int = 0
    ) -> list[str]:
        """What `entry` and the state it was measured at give reason to say.

        `rounds`: of the whole run, as far as they are known.
        """
        if "metric" not in entry:  # nothing exact is measured
            found = {"growth": self._growth(entry, state, partial(_numbers, algorithm, 0))}
            return self._new(found)
        measured = bool(np.isfinite(entry["metric"]))
        if measured and self.first is None:
            self.first = entry["stationarity"]
        if not measured and entry["solver_error"] != np.inf:
            return []  # on its way to diverge: that will be said
        numbers = partial(_numbers, algorithm, int(entry["round"]))  # rarely asked for
        found = {
            "solution": _solution(entry),
            "solver": self._solver(entry),
            "chain": _chain(entry, algorithm),
            "growth": self._growth(entry, state, numbers),
        }
        if measured:
            found["momentum"] = _momentum(entry, state, numbers)
            found["collapse"] = self._collapse(entry)
            if "standstill" not in self.said:
                about = self.start, state.x, entry, self.first, algorithm, rounds
                found["standstill"] = standstill(*about)
        return self._new(found)

    def _new(self, found: Mapping[str, str | None]) -> list[str]:
        """Messages that were not given before."""
        new = {kind: said for kind, said in found.items() if said and kind not in self.said}
        self.said |= new.keys() - {"solver"}
        return list(new.values())

    def restore(self, entries: Sequence[Mapping[str, float]]) -> None:
        """Continue after the entries of a run that was stopped."""
        if entries and np.isfinite(entries[0].get("stationarity", np.nan)):
            self.first = entries[0]["stationarity"]

    def _solver(self, entry: dict[str, float]) -> str | None:
        if not 100 * self.tolerance < entry["solver_error"] < np.inf:
            return None
        return (
            f"y* is known to {entry['solver_error']:.1e} only at round {entry['round']} "
            f"({self.tolerance:.1e} is wanted), so the measures there are rough; is the lower "
            f"level strongly convex in y?"
        )

    def _growth(self, entry: dict[str, float], state: Any, numbers: Numbers) -> str | None:
        """Directions shrink as a run converges; one that grows instead is near its limit."""
        for name, step in (("u", "alpha"), ("p", "alpha"), ("v", "beta")):
            direction = getattr(state, name, None)
            if direction is None or not entry["round"]:
                continue
            size = float(np.max(_lengths(host.at_hand(direction))))
            least, since = self.least.get(name, (np.inf, 0))
            if size < least:
                self.least[name] = size, int(entry["round"])
            elif size > GROWN * least > 0:
                found = numbers()
                if found.get("beta", 0.0) * entry.get("curvature", 0.0) > STABLE:
                    step = "beta"  # y is what grows, and takes x along
                if step not in found:
                    return None  # a learned step becomes shorter by itself
                return (
                    f"{name} has grown {size / least:.0f}-fold between rounds {since} and "
                    f"{entry['round']}: {step} = {found[step]:.3g} is near the limit of what is "
                    f"stable; halve {step}, or use on_divergence='shrink'"
                )
        return None

    def _collapse(self, entry: dict[str, float]) -> str | None:
        """Saturated units: no gradient, and the loss of a prediction that ignores its input."""
        level = self.problem.constant
        if level is None or not entry["round"] or self.first is None:
            return None
        vanished = entry["stationarity"] < VANISHED * self.first
        if not vanished or abs(entry["upper_loss"] - level) > NEAR * level:
            return None
        return (
            f"the upper loss {entry['upper_loss']:.4g} at round {entry['round']} is that of a "
            f"prediction that ignores the features ({level:.4g}), and its gradient has vanished: "
            f"the shared features have collapsed; start again with an alpha a third as large"
        )


def standstill(
    start: Tree,
    x: Tree,
    entry: Mapping[str, float],
    first: float | None,
    algorithm: Algorithm,
    rounds: int,
) -> str | None:
    """What to say of a run whose x is where it began, though l falls from there.

    `x` is that of all agents, `start` that of each before round 0, `first` the stationarity there.
    Nothing is said of a run that has made progress and then stays, as one that has converged does,
    nor where the user's schedule of alpha has ended.
    """
    t, slope = int(entry["round"]), entry["stationarity"]
    if t < max(PATIENCE, rounds / 2) or first is None or not slope >= UNCHANGED * first > 0:
        return None
    size = 1 + float(_lengths(jax.tree.map(lambda a: np.asarray(a)[None], start))[0])
    off = jax.tree.map(lambda a, begin: a - np.asarray(begin), host.at_hand(x), start)
    moved = float(np.max(_lengths(off)))
    if moved > STILL * size or slope**0.5 * size <= SLIGHT * abs(entry["upper_loss"]):
        return None
    alpha, before = (_numbers(algorithm, s).get("alpha") for s in (t, 0))
    if alpha is not None and before and alpha <= ENDED * before:
        return None
    cause = "its steps are" if alpha is None else f"alpha = {alpha:.3g} is"
    remedy = (
        f"{cause} far too small; give an alpha of your own, ten times as large or more, or compare "
        f"several with diamond tune"
    )
    if alpha == 0:
        remedy = "alpha = 0 does not move x; give an alpha above 0, or leave it out"
    return (
        f"x stands still: after {t} rounds no agent has moved it by more than {moved:.1e}, while "
        f"the stationarity is {slope:.3g} ({first:.3g} at the start): {remedy}"
    )


def _solution(entry: dict[str, float]) -> str | None:
    """Where there is no y*, or more than one between which f differs."""
    if entry["solver_error"] != np.inf:
        return None
    return (
        f"y* is not known at round {entry['round']}: g_yy is not positive definite on the way to "
        f"it, so that it does not exist or is not unique (as with fewer rows than numbers in y), "
        f"and the measures that need y* are not a number; add a term such as 0.01 ||y||^2 to the "
        f"lower level, which must be strongly convex in y"
    )


def _chain(entry: dict[str, float], algorithm: Algorithm) -> str | None:
    chain, seen = in_use(algorithm), entry.get("curvature", 0.0)
    if chain is None or seen <= chain:
        return None
    return (
        f"mini-batch Hessians g_yy have eigenvalues up to {seen:.3g} at round "
        f"{entry['round']}, above lipschitz = {chain:.3g} that eq. (5) divides by: the "
        f"hypergradient is off, and beyond {2 * chain:.3g} it explodes; give lipschitz = "
        f"{1.5 * seen:.2g} or more"
    )


def _momentum(entry: dict[str, float], state: Any, numbers: Numbers) -> str | None:
    """The mean of p estimates grad l; one much larger is the correction, not the gradient."""
    p = getattr(state, "p", None)
    if p is None or not entry["round"] or not entry["stationarity"]:
        return None
    mean = jax.tree.map(lambda a: a.mean(0, keepdims=True), host.at_hand(p))
    ratio = float(_lengths(mean)[0]) / entry["stationarity"] ** 0.5
    spread = entry["consensus"] + entry["lower_error"]  # away from x_i = xbar, y_i = y_i* it may
    if ratio <= STALE or spread > entry["stationarity"] or "eta" not in (found := numbers()):
        return None
    return (
        f"the mean of p is {ratio:.0f} times grad l at round {entry['round']}: momentum has "
        f"gathered more correction than gradient (eta = {found['eta']:.2g}); "
        f"make eta three times as large, or alpha a third"
    )


def _numbers(algorithm: Algorithm, t: int) -> dict[str, float]:
    """The step sizes and weights of round t."""
    return {name: float(value) for name, value in algorithm.numbers(t).items()}


def _lengths(direction: Tree) -> Any:
    """The norm of every agent's; in double precision, where the square of a large one is finite."""
    wide = [np.asarray(a, np.float64).reshape(len(a), -1) for a in jax.tree.leaves(direction)]
    with np.errstate(over="ignore"):
        return np.sqrt(sum((a**2).sum(1) for a in wide))
