"""Lemmas 1 to 3: properties of the hypergradient and of its estimate (5)."""

import math
from typing import NamedTuple

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
