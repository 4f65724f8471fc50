"""SVR-INTERACT (Liu et al., MobiHoc 2022): full gradients now and then, SPIDER in between."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ..cost import Cost
from ..deferred import Deferred, Found, Measured, Setting
from ..estimate import Spider
from ..hypergradient import Hypergradient, neumann_sum
from ..schedule import Number, Schedule
from ..whole import whole
from ._auto import Order, Steps, choose
from ._consensus import Consensus
from ._single_loop import SingleLoop

__all__ = ["svr_interact"]


def svr_interact(
    alpha: Schedule | Number | None = None,
    beta: Schedule | Number | None = None,
    batch: int = 64,
    period: int | None = None,
    hypergradient: Hypergradient = neumann_sum(),
    order: Order | None = None,
    steps: Steps = "auto",
) -> SingleLoop:
    """If t mod q = 0: p_t, v_t on all rows; else p_t = p_{t-1} + h(t) - h(t-1), v_t likewise.

    q = `period`, by default ceil(sqrt(n)), n the largest agent's training rows (the paper takes
    the same number as the batch). Tracked as in `interact`. The Neumann sum is used at both kinds
    of rounds, so that they have the same bias.
    """
    if period is not None and whole("period", period) < 1:
        raise ValueError(f"period = {period}: a full gradient every so many rounds, 1 or more")
    q: Any = Deferred("period", _root_of_rows) if period is None else period
    order, s = choose(steps, order, whole=True, alpha=alpha, beta=beta)
    consensus = Consensus(order, tracking=True)
    return SingleLoop(s["alpha"], s["beta"], Spider(q), hypergradient, consensus, batch)


def _root_of_rows(setting: Setting) -> Found:
    def measure() -> Measured:
        roots = np.ceil(np.sqrt(setting.problem.counts("train")))
        return roots.astype(jnp.zeros(()).dtype)[:, None], Cost()

    (found,), cost = setting.talk.largest("period", measure)
    return Found(int(found), cost, agreed=1, talks=1, lasting=True)
