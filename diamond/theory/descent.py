"""Step 6 of the proof in numbers: the change of the potential of Theorem 1 in one round."""

import math

from .constants import Constants
from .theorem import Theorem1, lemma1


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
