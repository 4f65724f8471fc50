"""GDA (Lin, Jin and Jordan, ICML 2020): gradient descent in x, ascent in y."""

from ...hypergradient import partial
from ...problem import LowerLevel
from .._composition import Step, Steps, compose_parts
from ..parts import ComposedAlgorithm
from ..parts.directions import implicit
from ..parts.provenance import CERTAIN, Provenance

__all__ = ["gda"]

PROVENANCE = Provenance(
    "GDA (Lin, Jin and Jordan, ICML 2020)", CERTAIN, "exact on minimax problems"
)


def gda(
    alpha: Step = None,
    beta: Step = None,
    lower_level: LowerLevel = "personal",
    batch: int = 64,
    steps: Steps = "auto",
) -> ComposedAlgorithm:
    """Step x_{t+1} = x_t - alpha f_x(x_t, y_t), y_{t+1} = y_t - beta g_y(x_t, y_t).

    For minimax problems, g = -f: there f_y = 0 at y*(x), so the hypergradient is f_x. On other
    problems x converges to f_x(x, y*(x)) = 0 instead. `lower_level` "personal": each agent has its
    own adversary y_i; "common": all agents track y like x.
    """
    return descend_ascend("plain", alpha, beta, lower_level, batch, steps)


def descend_ascend(
    estimator: str, alpha: Step, beta: Step, lower_level: LowerLevel, batch: int, steps: Steps
) -> ComposedAlgorithm:
    """Compose steps of x along f_x and of y along g_y."""
    if lower_level not in ("personal", "common"):
        raise ValueError(f"lower_level = {lower_level!r}; there are 'personal' and 'common'")
    return compose_parts(
        implicit(partial()),
        estimator,
        "gt local" if lower_level == "personal" else "gt gt",
        {"alpha": alpha, "beta": beta},
        batch=batch,
        order="atc",
        steps=steps,
        lower_levels=(lower_level,),
    )
