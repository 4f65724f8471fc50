"""The four methods that the paper compares, by its names and with the schedules of Theorem 1."""

from ..algorithms.personal_methods.diamond import diamond
from ..algorithms.personal_methods.dsgd import dsgd
from ..algorithms.personal_methods.gt_sgd import gt_sgd
from ..algorithms.personal_methods.m_sgd import m_sgd
from ..hypergradient import Hypergradient
from ..interface.round_interface import Algorithm
from ..records.plot_colors import OKABE_ITO
from ..schedules.step_schedules import constant, paper

METHODS = {"DIAMOND": diamond, "GT-SGD": gt_sgd, "M-SGD": m_sgd, "D-SGD": dsgd}
MOMENTUM = ("DIAMOND", "M-SGD")
COLOURS = dict(zip(METHODS, OKABE_ITO))


def build_method(
    name: str,
    constants: tuple[float, ...],
    batch: int,
    hypergradient: Hypergradient,
    *,
    frozen: bool = False,
) -> Algorithm:
    """Build the method with (c_alpha, c_beta, c_eta = c_gamma); the last needs momentum.

    If `frozen` is true, x does not move.
    """
    c_alpha, c_beta, c_eta = (*constants, 1.0)[:3]
    steps = paper(c_alpha, c_beta, c_eta, c_eta)
    if frozen:
        steps["alpha"] = constant(0.0)
    if name not in MOMENTUM:
        steps = {key: steps[key] for key in ("alpha", "beta")}
    algorithm = METHODS[name](**steps, batch=batch, hypergradient=hypergradient)  # type: ignore[operator]
    return algorithm
