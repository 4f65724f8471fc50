"""Step sizes that choose themselves, from what each agent measures on its own rows.

No row is pooled: an agent measures curvature and noise of its own f_i and g_i, at the start and a
few times later, where it stands by then. y_i is its own, and so is beta_i; alpha is everyone's.

    beta_i,t = 1 / (1.5 L_i) s_t,  L_i: the worst curvature of a sampled g_yy (2 / L_i: the limit)
    eta_t = gamma_t = eta_0 (1 + t / 10)^(-2/3),  eta_0 = 0.2 r between 0.1 and 1
    alpha_t = q / (1 + q) min(c phi / L_l, k sqrt(eta_0) / sigma_L) s_t,  q = 2 r / eta_0
    alpha_t = r / (1 + r) / (L_l / (c phi) + sigma_L^2 / L_l) s_t  without momentum

with s_t = (1 + t / 200)^(-1/3); half of that alpha in the paper's order of mixing, and (1 + t) / 25
of it in the first rounds, while y is far from y* and h not the h that was measured. L_l is the
curvature of l_i(x) = f_i(x, y_i*(x)); r = ||h||^2 / variance of the sampled hypergradient h, of
which momentum leaves the share eta_0 / 2; sigma_L the noise in its change from point to point, for
which momentum pays: what it gathers has the variance (sigma_L alpha ||u||)^2 / (2 eta). Variances
are those of a mean over the agents; the smallest r and the largest sigma_L count. A moving average
with the weight theta_t = eta_0 s_t leaves as little noise as momentum does but lags by 1 / theta
rounds: alpha is at most eta_0 / (2 L_l) then.

phi = 2 sqrt(beta mu), at most 1, is how fast y follows: its directions do so at rates between
beta mu and 1, and the geometric middle is taken, of the worst agent. Where y lags (beta mu < 0.15)
the largest L_l counts, k = 0.6, and alpha never grows again: x does not see the l whose curvature
was measured. Where y follows, the mean of the L_l counts, which bounds the curvature of the mean,
k = 1.25, and alpha may grow, at most four times at a look. The largest L_l counts for at most
100 times the next: one agent cannot stop the others. c = 1.5. Where y makes several steps
for one of x, beta mu is 1 - (1 - beta mu)^inner. Where links go one way or change, alpha max_i L_l
is at most half of what tracking takes there (`Network.tracking`).

Where the run solves for [g_yy]^-1 (`diamond.auto.inverse`), y moves along [g_yy]^-1 v, whose
curvature is 1 in every direction: beta = 1 / 1.5, half of that where g_yy is that of a sample, and
phi = 1. h is that of the y of the round before, and x_{t+1} = x_t - alpha L_l x_{t-1} is stable for
alpha L_l < 1: c = 0.5 there. alpha never grows again.

Where an agent looks it finds l_i(x_i) as well, always on the same rows. If their mean has risen
above where it began, the run goes back, and on with a smaller alpha (`diamond.auto.watch`).

A lower level in common has one beta, 1 / (1.5 max_i L_i) times what its move allows, since steps
of each agent's own would bias the y they agree on. mu and L are those of the pooled g, found by
Lanczos over the network (`hypergradient.network_spectrum`), with mu at least L / 300: agents with
few rows are flat alone and not together. y follows at half the smaller of beta mu and 1 - lam. L_l
is found with mu added to the curvature of each g_i. Without a lower level, phi = 1. Where a channel
damps mixing, all that is said of M is of (1 - gamma) I + gamma M (`Network.damped`).
"""

import math
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np

from ..core import sampling
from ..core.cost import Cost
from ..hypergradient.conditioning import block, condition, smallest
from ..hypergradient.lipschitz import curvatures
from ..hypergradient.network_spectrum import ends
from ..network import Network
from ..numbers.open_numbers import Deferred, Found, Measured, Rows, Setting, fill, next_refresh
from ..numbers.schedule import Scaled, Schedule, power, ramp
from . import upper_curvature, watch
from .inverse import hessian_blocks, size, solves

Order = Literal["paper", "atc"]
Noise = Literal["plain", "momentum", "average", "none"]
MARGIN = 1.5  # between beta and 1 / L
STEP = {"paper": 0.5, "atc": 1.0}  # of alpha
SHARE = {"local": 1.0, "gossip": 1.0, "gt": 0.5, "extra": 0.5, "ed": 1.0}  # by move
SHARE |= {"push": 1.0, "push_gt": 0.5}
MOST = 300.0  # L / mu of a lower level in common, as far as alpha is concerned
FITTED = 2.0  # of a step of y that is solved for, at as many rows as numbers
HALF = 0.5  # of the rate at which an average, or a y in common, follows
INNER = 10  # steps of y for one of x, at most
SLOW, FADE = 200.0, 10.0  # rounds after which steps and weights begin to shrink
SLOWING, FADING = power(SLOW ** (1 / 3), SLOW), power(FADE ** (2 / 3), FADE, 2 / 3)
WARM = 25.0  # rounds in which alpha rises, until the second look
AVERAGED, LEAST = 0.2, 0.1  # share of ||h||^2 that noise in p may have at first; the least eta_0
LENGTH = 1.5  # c: alpha L_l / phi
BEHIND = 0.5  # c where y is solved for: it is that of the round before, so 1 is the limit
EMPTY = -1e30  # in the place of another agent's number: below any, and finite to be told
STEEPEST = 100.0  # the largest L_l over the next, at most
FLAT = 1e-6  # of the largest L_l: the next counts as 0; steps that are 1e4 too long still shrink
FOLLOWS = 0.15  # beta mu from which y follows x
MANY = 64  # agents: for more, the largest curvature stands for the mean, which costs less to tell


class Regime(NamedTuple):
    """How far alpha may go."""

    kept: float  # k: alpha sigma_L / sqrt(eta_0)
    growth: float  # from one look to the next, at most


LAGS, KEEPS_UP, SOLVED = Regime(0.6, 1.0), Regime(1.25, 4.0), Regime(1.25, 1.0)


def _beta(setting: Setting, move: str, newton: bool) -> Found:
    if newton and solves(setting):
        return Found(np.full(len(setting.numbers), _newton(setting)))
    if setting.problem.lower_level == "common":
        step = min(SHARE[move] / (MARGIN * _pull(setting, move)), _stable(setting, move, "atc"))
        return Found(step / _largest(setting))
    return Found(1 / (MARGIN * curvatures(setting)))


def _newton(setting: Setting) -> float:
    """beta along [g_yy]^-1 v, whose curvature is 1; half of it where g_yy is that of a sample.

    With n rows a mini-batch and d numbers in y the noise of such a step is d / n of it: y takes
    FITTED n / d of one where that is less.
    """
    share = HALF if setting.once("hessian_blocks", hessian_blocks) else 1.0
    return min(share, FITTED * setting.batch / size(setting)) / MARGIN


def _largest(setting: Setting) -> float:
    """max_i L_i."""

    def compute(setting: Setting) -> Found:
        own = curvatures(setting)
        (found,), cost = setting.talk.largest("common", lambda: (own[:, None], Cost()))
        return Found(float(found), cost, agreed=1, talks=1)

    return setting.once("_largest", compute)


def _condition(setting: Setting) -> float:
    """L / mu of the lower level."""
    level = setting.problem.lower_level
    if level == "none":
        return 1 / MARGIN
    if level == "personal":
        return condition(setting)

    def compute(setting: Setting) -> Found:
        found = ends(setting)
        if found is not None:
            return Found(_largest(setting) / max(found[0], found[1] / MOST))
        own = smallest(setting)
        (flattest,), cost = setting.talk.largest("flattest", lambda: (-own[:, None], Cost()))
        least = max(-float(flattest), _largest(setting) / MOST)
        return Found(_largest(setting) / least, cost, agreed=1, talks=1)

    return setting.once("condition", compute)


def _rate(setting: Setting, inner: Any, move: str) -> float:
    """beta mu: how much of y's error a round removes; of its disagreement too, if y is common."""
    times = setting.once("inner", inner.compute) if isinstance(inner, Deferred) else inner
    rate = 1 - (1 - min(1.0, SHARE[move] / (MARGIN * _condition(setting)))) ** times
    if setting.problem.lower_level == "common" and setting.network is not None:
        rate = HALF * min(rate, 1 - _mixing(setting.network, setting.round).lam ** times)
    return rate


def _inner(setting: Setting, move: str) -> Found:
    """As many steps of y as halve its error, INNER at most."""
    wanted = math.log(2) * MARGIN * _condition(setting) / SHARE[move]
    return Found(int(np.clip(math.ceil(wanted), 1, INNER)), lasting=True)


def _alpha(
    setting: Setting,
    order: Order,
    lags: int,
    noise: Noise,
    inner: Any,
    move: str,
    lower: str,
    newton: bool = False,
) -> Found:
    solved = newton and solves(setting)
    rate = _newton(setting) if solved else _rate(setting, inner, lower)
    length = BEHIND if solved else LENGTH
    regime = SOLVED if solved else KEEPS_UP if rate >= FOLLOWS else LAGS
    largest, mean, _, shaky = np.maximum(_upper(setting)[:4], 1e-30)  # l may be free of x
    curvature = mean if rate >= FOLLOWS else largest
    step = (rate if lags == 2 else length * min(1.0, 2 * math.sqrt(rate))) / curvature
    if noise == "plain":
        ratio = setting.once("ratio", _ratio)
        step = ratio / (1 + ratio) / (1 / step + shaky**2 / curvature)
    if noise in ("momentum", "average"):
        eta = setting.once("eta", _eta)
        ratio = 2 * setting.once("ratio", _ratio) / eta
        most = {
            "momentum": regime.kept * math.sqrt(eta) / shaky,
            "average": HALF * eta / curvature,
        }
        step = ratio / (1 + ratio) * min(step, most[noise])
    if setting.problem.lower_level != "common":
        watch.note(setting, float(_upper(setting)[4]))
    less, grown = watch.share(setting.memory), regime.growth * setting.before("alpha", math.inf)
    share = SHARE[move] * _room(setting, move) if move in ("extra", "ed") else STEP[order]
    stable = _stable(setting, move, order) / largest
    return Found(float(min(less * min(share * step / _pull(setting, move), stable), grown)))


def _pull(setting: Setting, move: str) -> float:
    """How much longer than their mean tracked steps are, where links go one way."""
    return setting.network.pull if setting.network is not None and move == "gt" else 1.0


def _room(setting: Setting, move: str) -> float:
    """How much shorter steps of EXTRA must be where M has an eigenvalue l < 0.

    They are stable below (5 + 3 l) / (4 L), which is 5 / (4 L) where it has none.
    """
    if setting.network is None or move != "extra":
        return 1.0
    return min(1.0, 1 + 0.6 * _mixing(setting.network, setting.round).least)


def _stable(setting: Setting, move: str, order: Order) -> float:
    """Half of the step times curvature at which tracking would still be stable on this network."""
    if setting.network is None or move != "gt":
        return math.inf
    return HALF * _mixing(setting.network, setting.round).tracking[order]


def _mixing(network: Network, round: int) -> Network:
    """As it mixes until numbers are found anew, where a channel's gamma damps it."""
    return network.damped(round, next_refresh(round))


def _eta(setting: Setting) -> Found:
    ratio = setting.once("ratio", _ratio)
    return Found(float(np.clip(AVERAGED * ratio, LEAST, 1.0)), lasting=True)


def _ratio(setting: Setting) -> Found:
    """r at the start: where h vanishes it says nothing."""
    return Found(float(_upper(setting)[2]), lasting=True)


@cache
def alpha(
    order: Order,
    lags: int = 1,
    noise: Noise = "plain",
    inner: Any = 1,
    move: str = "gt",
    lower: str = "local",
    newton: bool = False,
) -> Schedule:
    """alpha_t of an algorithm that mixes in this order.

    `lags` 2: it carries z as well as y; two lags make an oscillator, which is stable for
    alpha L_l < (beta + delta) mu. `noise`: of plain samples, under momentum, averaged, or "none"
    where gradients are of all rows. `inner`: steps of y for one of x. `move` of x, `lower` of y.
    `newton`: y moves along [g_yy]^-1 v wherever the run chooses so.
    """
    given = dict(order=order, lags=lags, noise=noise, inner=inner, move=move, lower=lower)
    rule = partial(_alpha, **given, newton=newton)
    return ramp(Scaled(Deferred("alpha", rule), SLOWING), WARM)


@cache
def beta(move: str = "local", newton: bool = False) -> Schedule:
    """beta_t of a y that is agreed upon by `move`, and delta_t of z; `newton` as for alpha."""
    return Scaled(Deferred("beta", partial(_beta, move=move, newton=newton)), SLOWING)


@cache
def rate() -> Any:
    """beta_0, as a number."""
    return Deferred("beta", partial(_beta, move="local", newton=False))


@cache
def inner(move: str = "local") -> Any:
    """How many steps y, agreed upon by `move`, makes for one of x."""
    return Deferred("inner", partial(_inner, move=move))


def eta() -> Schedule:
    """eta_t, and gamma_t."""
    return Scaled(Deferred("eta", _eta), FADING)


def theta() -> Schedule:
    """theta_t, the weight of the new in a moving average: it shrinks no faster than alpha_t."""
    return Scaled(Deferred("eta", _eta), SLOWING)


def _without_outlier(curvatures: np.ndarray) -> np.ndarray:
    """The L_l of all agents, the largest at most STEEPEST times the next; unless all others are 0.

    One agent, whose probe may have met a spike, then slows the others down but does not stop them.
    If it really is as steep, the run goes back with smaller steps (`diamond.auto.watch`).
    """
    *_, second, largest = [0.0, *np.sort(curvatures)]
    return np.minimum(curvatures, STEEPEST * second if second > FLAT * largest else np.inf)


def _upper(setting: Setting) -> np.ndarray:
    """L_l, the largest and the mean; r and sigma_L, the worst, with noise averaged over all; l.

    l is the mean of l_i(x_i) on a block of rows, always the same; not a number if agents are MANY
    and more, since the largest says nothing of the mean.
    """

    def compute(setting: Setting) -> Found:
        estimator, m = fill(setting.estimator, setting), setting.agents
        common = setting.problem.lower_level == "common"
        mu = _largest(setting) / _condition(setting) if common else None
        every = m if m <= MANY else 0  # L_l of every agent, each in a place of its own

        def measure() -> Measured:
            def look(rows: Rows, point: Any, numbers: Any) -> Any:
                few, key = block(rows(1)), sampling.key(setting.seed)
                about = estimator, few, rows(setting.batch), *point, key, numbers, mu
                found = upper_curvature.look(*about)
                return *found, numbers

            bends, ratio, shaky, cost, loss, numbers = setting.each(look, setting.point)
            found = np.full((len(bends), 3 + 2 * every), EMPTY)
            found[:, :3] = np.stack([bends, -np.asarray(ratio), shaky], axis=1)
            if every:
                place = np.arange(len(bends)), 3 + np.asarray(numbers)
                found[place], found[place[0], every + place[1]] = bends, loss
            return found, Cost(*(np.asarray(c, np.int64) for c in cost))

        found, cost = setting.talk.largest("upper", measure)
        (largest, ratio, shaky), each = found[:3], found[3:].reshape(2, -1)
        mean, loss = largest, math.nan
        if every:
            own = _without_outlier(each[0])
            largest, mean, loss = own.max(), own.mean(), each[1].mean()
        told = [largest, mean, -m * ratio, shaky / math.sqrt(m), loss]
        return Found(np.array(told, float), cost, agreed=3 + 2 * every, talks=1)

    return setting.once("_upper", compute)
