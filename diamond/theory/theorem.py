"""Lemmas 1 to 3 on the hypergradient and its estimate (5), Theorem 1, and step 6 of its proof.

As printed, the theorem cannot be evaluated, and its steps do not follow from its own lemmas. The
changes made here, and their reasons (`printed=True` leaves 3, 4 and the limit of 5 as printed):

1. `cbar_r` in c_gamma occurs nowhere else: it is cbar_gamma, the weight that multiplies the other
   terms of ||e^g||^2 when the potential is scaled to have 1 there. L_mu is mu L / (mu + L), by
   Lemma 5; L_K is the square root of what Lemma 2 prints.
2. Lemma 7 uses L_g for the change of g_y with x too: max(L_g, C_gxy) replaces it there.
3. cbar_u = min(1 / (48 L_K^2), 1 / (3 cbar_eta)) is always the second, for cbar_eta >= 160 L_K^2 m.
   Then 1 - 3 cbar_u cbar_eta = 0 and c_eta is infinite. Any smaller value works; here, half.
4. c_beta = 8 L_f / (m L_mu cbar_y) leaves (2 alpha / m) (L_f^2 - 2 L_f) ||y - y*||^2 in the drop of
   the potential, not -2 L_f^2 alpha / m: L_f^2 replaces L_f, and in cbar_y likewise.
5. ||u - ubar||^2 has 6 alpha / (1 - lam)^2 against cbar_u (1 - lam): alpha may be
   cbar_u (1 - lam)^3 / 30, not with the power 2. In the right side, sigma^2 at the start counts for
   each of m agents, and the divisor is at most 1, the weight of ||grad l||^2.

`descent` verifies that with these constants every coefficient has the sign that Lemma 9 needs.
"""

import math
from typing import NamedTuple

from ..schedules.step_schedules import Schedule, paper
from .constants import Constants


class Lemma1(NamedTuple):
    """Lipschitz constants of the surrogate in y, of y*(x) and of grad l_i."""

    L_f: float
    L_y: float
    L_l: float


def lemma1(c: Constants) -> Lemma1:
    """Compute the constants of Lemma 1.

    L_f = L_fx + L_fy C_gxy / mu + C_fy (L_gxy / mu + L_gyy C_gxy / mu^2),  L_y = C_gxy / mu,
    L_l = L_f + L_f C_gxy / mu.
    """
    L_y = c.C_gxy / c.mu_g
    L_f = c.L_fx + c.L_fy * L_y + c.C_fy * (c.L_gxy + c.L_gyy * L_y) / c.mu_g
    return Lemma1(L_f, L_y, L_f + L_f * L_y)


def lemma2(c: Constants, terms: int) -> float:
    """Return L_K, the mean-square Lipschitz constant of the estimate (5), K = `terms` (Lemma 2).

        L_K^2 = 2 L_fx^2 + 6 K (C_gxy^2 L_fy^2 + C_fy^2 L_gxy^2) / (2 mu L - mu^2)
                + 6 K^3 C_gxy^2 C_fy^2 L_gyy^2 / ((L - mu)^2 (2 mu L - mu^2))

    The paper prints the right side as L_K itself, but it is the square: the terms are squares of
    Lipschitz constants, from E (K / L)^2 (1 - mu / L)^2k <= K / (2 mu L - mu^2). The last term is
    infinite at L = mu, unless g_yy is constant.
    """
    mu, L = c.mu_g, c.L_g
    spread = 2 * mu * L - mu**2
    bent = c.C_gxy * c.C_fy * c.L_gyy
    first = 6 * terms * ((c.C_gxy * c.L_fy) ** 2 + (c.C_fy * c.L_gxy) ** 2) / spread
    last = 0.0
    if bent > 0:
        last = 6 * terms**3 * bent**2 / spread / (L - mu) ** 2 if L > mu else math.inf
    return math.sqrt(2 * c.L_fx**2 + first + last)


def bias(c: Constants, terms: int) -> float:
    """Return (C_gxy C_fy / mu) (1 - mu / L)^K, the bias bound of the estimate (5) (Lemma 3)."""
    return c.C_gxy * c.C_fy / c.mu_g * (1 - c.mu_g / c.L_g) ** terms


def terms(c: Constants, rounds: int) -> int:
    """Return K = (L / mu) log(C_gxy C_fy T / mu), rounded up, at least 1, T = `rounds` (Theorem 1).

    Then the bias is at most 1 / T. The proof prints the inverse ratio, with which the bias would
    not fall.
    """
    if rounds < 1:
        raise ValueError(f"rounds = {rounds}: Theorem 1 speaks of T rounds, 1 or more")
    size = c.C_gxy * c.C_fy * rounds / c.mu_g
    return max(1, math.ceil(c.condition * math.log(size))) if size > 1 else 1


class Theorem1(NamedTuple):
    """Step-size conditions of Theorem 1, for alpha_t = (omega + t)^(-1/3)."""

    terms: int  # K
    L_K: float
    c_beta: float
    c_eta: float
    c_gamma: float
    cbar_y: float
    cbar_u: float
    cbar_eta: float
    cbar_gamma: float
    limits: dict[str, float]  # individual limits of alpha_t
    alpha: float  # the smallest limit: upper bound of alpha_t
    beta: float  # 1 / (mu_g + L_g): upper bound of beta_t
    omega: float  # smallest omega >= 2 for which alpha_0 and beta_0 keep the bounds

    @property
    def schedules(self) -> dict[str, Schedule]:
        """Return alpha_t, beta_t, eta_t, gamma_t of the theorem, as arguments of `diamond`."""
        return paper(1.0, self.c_beta, self.c_eta, self.c_gamma, self.omega)


class RightSide(NamedTuple):
    """Bounds on parts of the average of M_t over T rounds, and their sum."""

    start: float  # B_0 - l*
    bias: float
    sigma_f: float
    sigma_g: float
    total: float


def theorem1(c: Constants, rounds: int, printed: bool = False) -> Theorem1:
    """Compute the constants of Theorem 1 for T = `rounds`, in order of their dependencies."""
    m, mu, L = c.agents, c.mu_g, c.L_g
    L_f, L_y, _ = lemma1(c)
    K = terms(c, rounds)
    L_K, L_gy, L_mu = lemma2(c, K), max(L, c.C_gxy), mu * L / (mu + L)
    if not (c.C_gxy > 0 and 0 < L_K < math.inf and c.lam < 1):
        raise ValueError(
            f"C_gxy = {c.C_gxy:.3g}, L_K = {L_K:.3g}, lam = {c.lam:.3g}: Theorem 1 divides by the "
            f"first two and by 1 - lam; it does not apply to such a problem"
        )
    smooth = L_f if printed else L_f**2
    cbar_y = min(math.sqrt(smooth / (2 * m)), math.sqrt(smooth / 10) / m) / L_y
    c_beta = 8 * smooth / (m * L_mu * cbar_y)
    weight = max(32, 160 * m, 24 * (mu + L) * c_beta / cbar_y)
    cbar_eta, cbar_gamma = weight * L_K**2, weight * L_gy**2
    cbar_u = min(1 / (48 * L_K**2), 1 / ((3 if printed else 6) * cbar_eta))
    rest = 1 - 3 * cbar_u * cbar_eta
    c_eta = (6 * L_f * cbar_eta + m) / (3 * L_f * m * rest) if rest > 1e-9 else math.inf
    c_gamma = 1 / (3 * L_f) + 8 * (L_gy * c_beta) ** 2
    c_gamma += cbar_gamma * 2 * c_beta * cbar_y / L_mu
    c_gamma += cbar_gamma * (8 / cbar_eta + 12 * cbar_u) * (L_K * c_beta) ** 2
    limits = _limits(
        c, L_K, c_beta, cbar_y, cbar_u=cbar_u, weight=weight, power=2 if printed else 3
    )
    alpha, beta = min(limits.values()), 1 / (mu + L)
    omega = max(2.0, alpha**-3, (c_beta / beta) ** 3)
    factors, weights = (c_beta, c_eta, c_gamma), (cbar_y, cbar_u, cbar_eta, cbar_gamma)
    return Theorem1(K, L_K, *factors, *weights, limits, alpha, beta, omega)


def _limits(
    c: Constants,
    L_K: float,
    c_beta: float,
    cbar_y: float,
    *,
    cbar_u: float,
    weight: float,
    power: int,
) -> dict[str, float]:
    """Return the eleven limits of alpha_t, by the part of the proof that needs them."""
    m, mu, L, gap = c.agents, c.mu_g, c.L_g, 1 - c.lam
    L_f, L_y, L_l = lemma1(c)
    L_mu = mu * L / (mu + L)
    return {
        "sqrt(m / 2) / L_l": math.sqrt(m / 2) / L_l,
        "tracking": cbar_u * gap**power / 30,
        "y*": cbar_u * gap * L_mu * c_beta / (40 * L_y**2 * cbar_y),
        "e^f": cbar_u * gap * weight / 80,  # weight = cbar_eta / L_K^2
        "e^g": cbar_u * gap * weight / 80,  # and cbar_gamma / L_g^2
        "1 / (5 L_l)": 1 / (5 * L_l),
        "1 / (3 L_f)": 1 / (3 * L_f),
        "(1 - lam) / (sqrt(120) L_K)": gap / math.sqrt(120) / L_K,
        "ubar": gap / (240 * cbar_u * L_K**2 * m),
        "g_y": cbar_y * gap / (36 * (mu + L) * cbar_u * L_K**2 * c_beta),
        "1 - lam": gap,
    }


def right_side(c: Constants, theorem: Theorem1, rounds: int, best: float = 0.0) -> RightSide:
    """Return the right side of the proof's Step 7, a bound on the average of M_t over t < T.

        [ 2 (B_0 - l*) + 4 b^2 sum_t alpha_t + 2 m (sigma_f^2 / cbar_eta + sigma_g^2 / cbar_gamma)
          / alpha_{-1} + (4 m c_eta^2 sigma_f^2 / cbar_eta + 4 m c_gamma^2 sigma_g^2 / cbar_gamma
          + 6 cbar_u m c_eta^2 sigma_f^2) log(T + 1) ] / (alpha_T T min(1, 4 L_f^2 / m))

    with T = `rounds`, b the bias, Lemma 3, and B_0 = l(x_0) + cbar_y ||y_0 - y*||^2 + cbar_u ||u_0
    - ubar_0||^2 from `c.start`: u_0 is the exact hypergradients plus the noise of a first sample.
    l* = `best` is a lower bound of l: 0 for nonnegative losses. The result is O~(T^(-2/3)) once T
    exceeds omega.
    """
    t, m = theorem, c.agents
    first, last = ((t.omega + k) ** (1 / 3) for k in (-1, rounds))  # 1 / alpha_t
    total = min(rounds / first, 1.5 * last**2)  # upper bound of sum_t alpha_t
    divisor = rounds / last * min(1.0, 4 * lemma1(c).L_f ** 2 / m)
    loss, lower_gap, disagreement = c.start
    potential = loss - best + t.cbar_y * lower_gap
    potential += t.cbar_u * (disagreement + m * c.sigma_f**2)
    log = math.log(rounds + 1)
    of_f = 2 * first / t.cbar_eta + (4 / t.cbar_eta + 6 * t.cbar_u) * t.c_eta**2 * log
    of_g = 2 * first / t.cbar_gamma + 4 / t.cbar_gamma * t.c_gamma**2 * log
    drifted = 4 * bias(c, t.terms) ** 2 * total
    parts = 2 * potential, drifted, m * c.sigma_f**2 * of_f, m * c.sigma_g**2 * of_g
    return RightSide(*(part / divisor for part in (*parts, sum(parts))))


def descent(c: Constants, theorem: Theorem1, alpha: float) -> dict[str, float]:
    """Return the coefficients in the bound on E[W_{t+1} - W_t] at alpha_t = `alpha`.

    W_t = l(xbar) + cbar_y ||y - y*||^2 + cbar_x ||x - xbar||^2 + cbar_u ||u - ubar||^2
          + ||e^f||^2 / (cbar_eta alpha_{t-1}) + ||e^g||^2 / (cbar_gamma alpha_{t-1})

    with cbar_x = 6 / ((1 - lam) alpha_t), summed from Lemmas 4 to 8 with the c_0 .. c_3 of Lemma 9.
    No coefficient may be positive. Two are given beyond what Lemma 9 keeps for the rate: "x" beyond
    -1 / (1 - lam), "y" beyond -2 L_f^2 alpha / m. Each is divided by the largest of its terms.
    """
    t, m, gap = theorem, c.agents, 1 - c.lam
    mu, L, L_gy = c.mu_g, c.L_g, max(c.L_g, c.C_gxy)
    L_f, L_y, L_l = lemma1(c)
    L_K, L_mu = t.L_K, mu * L / (mu + L)
    beta, eta, gamma = t.c_beta * alpha, t.c_eta * alpha**2, t.c_gamma * alpha**2
    if not (math.isfinite(eta) and 2 * beta * L_mu < 1):
        raise ValueError(
            f"c_eta = {t.c_eta:.3g}, beta = {beta:.3g}: Lemma 9 is defined for a finite c_eta and "
            f"beta < {1 / (2 * L_mu):.3g} only; take a smaller alpha, or not the printed constants"
        )
    c_0, c_1 = beta * L_mu / (1 - 2 * beta * L_mu), beta * L_mu / (2 - 2 * beta * L_mu)
    before, after = _change(alpha, -1), _change(alpha, 1)  # 1/a_t - 1/a_{t-1}, 1/a_{t+1} - 1/a_t
    f, g = 1 / (t.cbar_eta * alpha), 1 / (t.cbar_gamma * alpha)
    moved = t.cbar_y * (1 + 1 / c_1) * L_y**2  # coefficient of ||x_{t+1} - x_t||^2
    moved += 4 * (1 - eta) ** 2 * L_K**2 * f + 4 * (1 - gamma) ** 2 * L_gy**2 * g
    drift = t.cbar_u / gap  # coefficient of ||p_{t+1} - p_t||^2
    sums = {
        "x": [
            *(2 * L_l**2 * alpha / m, 8 * moved, 48 * L_K**2 * drift, 1 / gap),
            *(-6 / alpha, 6 * c.lam / gap * after),
        ],
        "u": [
            *(4 * alpha**2 * moved, 6 / gap**2 * alpha**2 * (1 / alpha + after)),
            *(24 * L_K**2 * alpha**2 * drift, -t.cbar_u * gap),
        ],
        "ubar": [
            *(L_l * alpha**2 / 2, 4 * m * alpha**2 * moved),
            *(24 * m * L_K**2 * alpha**2 * drift, -alpha / 2),
        ],
        "y": [4 * L_f**2 * alpha / m, -t.cbar_y * beta * L_mu / 2],
        "g_y": [
            *(8 * beta**2 * (L_K**2 * f + L_gy**2 * g), 12 * L_K**2 * beta**2 * drift),
            t.cbar_y * (1 + c_0) * (1 + c_1) * (beta**2 - 2 * beta / (mu + L)),
        ],
        "e^f": [2 * alpha / m, 3 * eta**2 * drift, before / t.cbar_eta, (eta**2 - 2 * eta) * f],
        "e^g": [
            *(t.cbar_y * (1 + c_1) * (1 + 1 / c_0) * beta**2, before / t.cbar_gamma),
            *(8 * (1 - eta) ** 2 * L_K**2 * beta**2 * f, 12 * L_K**2 * beta**2 * drift),
            *((1 - gamma) ** 2 * 8 * L_gy**2 * beta**2 * g, (gamma**2 - 2 * gamma) * g),
        ],
    }
    return {name: sum(parts) / max(map(abs, parts)) for name, parts in sums.items()}


def _change(alpha: float, way: int) -> float:
    """Return |1/alpha_{t+way} - 1/alpha_t| for alpha_t = (omega + t)^(-1/3), to full precision."""
    a, b = alpha**-3, alpha**-3 + way
    if b <= 0:
        return 1 / alpha
    return 1 / (a ** (2 / 3) + (a * b) ** (1 / 3) + b ** (2 / 3))
