"""Early warnings of a run that goes wrong, each given once, with cause and remedy."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from ..core import host_transfer
from ..core.newton import default_tolerance
from ..core.pytrees import Tree
from ..hypergradient.diagnostics.lipschitz import given_lipschitz
from ..interface.round_interface import Algorithm, state_part
from ..problem import Problem

GROWN = 100.0  # growth of a direction over its minimum
OPENING_SHARE = 0.2  # of the rounds
STABLE = 1.0  # beta times the curvature of g_yy; the limit is 2
STALE = 10.0  # ||mean of p|| / ||grad l||: momentum exceeds the gradient
VANISHED = 1e-3  # relative to the first ||grad l||^2
NEAR = 5e-3  # relative distance to the loss of a prediction that ignores the features
PATIENCE = 100  # rounds, and half of the planned rounds, before a standstill is reported
STILL = 1e-2  # largest move of x over all agents, relative to 1 + ||x_0||
UNCHANGED = 0.9  # remaining share of the first ||grad l||^2
SLIGHT = 1e-3  # relative to |l|: smallest ||grad l|| (1 + ||x_0||) that matters
ENDED = 1e-2  # relative to the first alpha: a schedule that has ended
ScheduleValues = Callable[[], dict[str, float]]
DirectionNorm = tuple[str, str, float]  # name of a direction, its step and its norm


class EarlyWarnings:
    """Observations of a run, and the warnings already given."""

    def __init__(self, problem: Problem, start: tuple[Tree, Tree]):
        self.problem = problem
        self.start: Tree = start[0]
        self.tolerance = default_tolerance(jax.tree.leaves(start)[0].dtype)
        self.given_kinds: set[str] = set()
        self.smallest: dict[
            str, tuple[float, int]
        ] = {}  # per direction: smallest norm, and its round
        self.first_stationarity: float | None = None  # ||grad l||^2 at the first evaluation

    def check_entry(
        self, entry: dict[str, float], state: Any, algorithm: Algorithm, rounds: int = 0
    ) -> list[str]:
        """Return the warnings for `entry` and the state it was measured at.

        `rounds`: planned rounds of the run, if known.
        """
        if "metric" not in entry:  # without exact measures
            sizes = _direction_norms(state)
            if not self.problem.has_lower_solution:
                sizes = _measured_norms(entry, rounds)
            numbers = partial(_schedule_values, algorithm, 0)
            return self._filter_new({"growth": self._growth_warning(entry, sizes, numbers)})
        is_measured = bool(np.isfinite(entry["metric"]))
        if is_measured and self.first_stationarity is None:
            self.first_stationarity = entry["stationarity"]
        if not is_measured and entry["solver_error"] != np.inf:
            return []  # about to diverge, which has its own message
        numbers = partial(_schedule_values, algorithm, int(entry["round"]))  # evaluated lazily
        messages = {
            "solution": _solution_warning(entry),
            "solver": self._solver_warning(entry),
            "chain": _chain_warning(entry, algorithm),
            "growth": self._growth_warning(entry, _direction_norms(state), numbers),
        }
        if is_measured:
            messages["momentum"] = _momentum_warning(entry, state, numbers)
            messages["collapse"] = self._collapse_warning(entry)
            if "standstill" not in self.given_kinds:
                messages["standstill"] = standstill_warning(
                    self.start,
                    state.x,
                    entry,
                    self.first_stationarity,
                    algorithm=algorithm,
                    rounds=rounds,
                )
        return self._filter_new(messages)

    def _filter_new(self, messages: Mapping[str, str | None]) -> list[str]:
        """Return the messages that were not given before."""
        new = {
            kind: message
            for kind, message in messages.items()
            if message and kind not in self.given_kinds
        }
        self.given_kinds |= new.keys() - {"solver"}
        return list(new.values())

    def restore(self, entries: Sequence[Mapping[str, float]]) -> None:
        """Continue after the entries of an interrupted run."""
        if entries and np.isfinite(entries[0].get("stationarity", np.nan)):
            self.first_stationarity = entries[0]["stationarity"]

    def _solver_warning(self, entry: dict[str, float]) -> str | None:
        if not 100 * self.tolerance < entry["solver_error"] < np.inf:
            return None
        return (
            f"y* is known to {entry['solver_error']:.1e} only at round {entry['round']} "
            f"({self.tolerance:.1e} is wanted), so the measures there are rough; is the lower "
            f"level strongly convex in y?"
        )

    def _growth_warning(
        self, entry: dict[str, float], norms: Iterable[DirectionNorm], numbers: ScheduleValues
    ) -> str | None:
        """Warn of a direction that grows: directions shrink as a run converges."""
        for name, step, size in norms if entry["round"] else ():
            smallest, since = self.smallest.get(name, (np.inf, 0))
            if size < smallest:
                self.smallest[name] = size, int(entry["round"])
            elif size > GROWN * smallest > 0:
                values = numbers()
                if values.get("beta", 0.0) * entry.get("curvature", 0.0) > STABLE:
                    step = "beta"  # y grows, and x follows it
                if step not in values:
                    return None  # learned steps become shorter by themselves
                return (
                    f"{name} has grown {size / smallest:.0f}-fold between rounds {since} and "
                    f"{entry['round']}: {step} = {values[step]:.3g} is near the limit of what is "
                    f"stable; halve {step}, or use on_divergence='shrink'"
                )
        return None

    def _collapse_warning(self, entry: dict[str, float]) -> str | None:
        """Warn of saturated units: no gradient, and the loss of a constant prediction."""
        level = self.problem.constant
        if level is None or not entry["round"] or self.first_stationarity is None:
            return None
        has_vanished = entry["stationarity"] < VANISHED * self.first_stationarity
        if not has_vanished or abs(entry["upper_loss"] - level) > NEAR * level:
            return None
        return (
            f"the upper loss {entry['upper_loss']:.4g} at round {entry['round']} is that of a "
            f"prediction that ignores the features ({level:.4g}), and its gradient has vanished: "
            f"the shared features have collapsed; start again with an alpha a third as large"
        )


def _direction_norms(state: Any) -> Iterator[DirectionNorm]:
    """Yield the directions in the state, with the norms of the largest."""
    for name, step in (("u", "alpha"), ("p", "alpha"), ("v", "beta")):
        if (direction := state_part(state, name)) is not None:
            yield name, step, float(np.max(_agent_norms(host_transfer.to_host(direction))))


def _measured_norms(entry: Mapping[str, float], rounds: int) -> Iterator[DirectionNorm]:
    """Yield the directions with their measured norms: the state stays on the device.

    The first rounds are no reference: a penalty's direction of x is near 0 until y has moved.
    """
    for name, step in (("x_direction", "alpha"), ("y_direction", "beta")):
        if name in entry and entry["round"] >= OPENING_SHARE * rounds:
            yield name, step, entry[name]


def standstill_warning(
    start: Tree,
    x: Tree,
    entry: Mapping[str, float],
    first_stationarity: float | None,
    *,
    algorithm: Algorithm,
    rounds: int,
) -> str | None:
    """Return a warning for a run whose x is still at its start, though l decreases from there.

    `x` is that of all agents, `start` that of each before round 0, `first_stationarity` the
    stationarity there. A run that has made progress and then converged, or whose given schedule of
    alpha has ended, gets no warning.
    """
    t, slope = int(entry["round"]), entry["stationarity"]
    if (
        t < max(PATIENCE, rounds / 2)
        or first_stationarity is None
        or not slope >= UNCHANGED * first_stationarity > 0
    ):
        return None
    scale = 1 + float(_agent_norms(jax.tree.map(lambda a: np.asarray(a)[None], start))[0])
    displacement = jax.tree.map(
        lambda a, initial: a - np.asarray(initial), host_transfer.to_host(x), start
    )
    distance = float(np.max(_agent_norms(displacement)))
    if distance > STILL * scale or slope**0.5 * scale <= SLIGHT * abs(entry["upper_loss"]):
        return None
    alpha, initial_alpha = (_schedule_values(algorithm, s).get("alpha") for s in (t, 0))
    if alpha is not None and initial_alpha and alpha <= ENDED * initial_alpha:
        return None
    cause = "its steps are" if alpha is None else f"alpha = {alpha:.3g} is"
    remedy = (
        f"{cause} far too small; give alpha yourself, ten times as large or more, or compare "
        f"several with diamond tune"
    )
    if alpha == 0:
        remedy = "alpha = 0 does not move x; give an alpha above 0, or leave it out"
    return (
        f"x stands still: after {t} rounds no agent has moved it by more than {distance:.1e}, "
        f"while the stationarity is {slope:.3g} ({first_stationarity:.3g} at the start): {remedy}"
    )


def _solution_warning(entry: dict[str, float]) -> str | None:
    """Warn if y* does not exist, or is not unique and f differs between solutions."""
    if entry["solver_error"] != np.inf:
        return None
    return (
        f"y* is not known at round {entry['round']}: g_yy is not positive definite on the way to "
        f"it, so that it does not exist or is not unique (as with fewer rows than numbers in y), "
        f"and the measures that need y* are not a number; add a term such as 0.01 ||y||^2 to the "
        f"lower level, which must be strongly convex in y"
    )


def _chain_warning(entry: dict[str, float], algorithm: Algorithm) -> str | None:
    lipschitz, curvature = given_lipschitz(algorithm), entry.get("curvature", 0.0)
    if lipschitz is None or curvature <= lipschitz:
        return None
    return (
        f"mini-batch Hessians g_yy have eigenvalues up to {curvature:.3g} at round "
        f"{entry['round']}, above lipschitz = {lipschitz:.3g} that eq. (5) divides by: the "
        f"hypergradient is off, and beyond {2 * lipschitz:.3g} it explodes; give lipschitz = "
        f"{1.5 * curvature:.2g} or more"
    )


def _momentum_warning(entry: dict[str, float], state: Any, numbers: ScheduleValues) -> str | None:
    """Warn if the mean of p, which estimates grad l, is much larger than grad l."""
    p = state_part(state, "p")
    if p is None or not entry["round"] or not entry["stationarity"]:
        return None
    mean = jax.tree.map(lambda a: a.mean(0, keepdims=True), host_transfer.to_host(p))
    ratio = float(_agent_norms(mean)[0]) / entry["stationarity"] ** 0.5
    spread = entry["consensus"] + entry["lower_error"]  # large where x_i != xbar or y_i != y_i*
    if ratio <= STALE or spread > entry["stationarity"] or "eta" not in (values := numbers()):
        return None
    return (
        f"the mean of p is {ratio:.0f} times grad l at round {entry['round']}: momentum has "
        f"gathered more correction than gradient (eta = {values['eta']:.2g}); "
        f"make eta three times as large, or alpha a third"
    )


def _schedule_values(algorithm: Algorithm, t: int) -> dict[str, float]:
    """Return the step sizes and weights of round t."""
    return {name: float(value) for name, value in algorithm.schedule_values(t).items()}


def _agent_norms(direction: Tree) -> Any:
    """Return the norm of every agent's direction, in double precision against overflow."""
    wide = [np.asarray(a, np.float64).reshape(len(a), -1) for a in jax.tree.leaves(direction)]
    with np.errstate(over="ignore"):
        return np.sqrt(sum((a**2).sum(1) for a in wide))
