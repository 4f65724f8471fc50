"""Guard of class labels: a label outside of the classes makes the loss NaN.

PyTorch raises an error then, and a compiled program cannot; JAX would take the nearest class.
"""

from functools import cache
from typing import Any

from .torch_versions import import_torch


def label_guard() -> Any:
    """Return a context in which cross-entropies of wrong labels are NaN."""
    return _guard_class()()


@cache
def _guard_class() -> Any:
    torch = import_torch()
    losses = torch.nn.functional.cross_entropy, torch.nn.functional.nll_loss

    class LabelGuard(torch.overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
        """Mode of PyTorch that sees the calls of losses."""

        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            output = function(*args, **(kwargs or {}))
            return _marked(output, *args, **(kwargs or {})) if function in losses else output

    def _marked(
        output: Any, scores: Any, target: Any, *rest: Any, ignore_index: int = -100, **_: Any
    ) -> Any:
        """Return the output, NaN where labels are outside of the classes."""
        if target.is_floating_point():  # probabilities of classes
            return output
        ignored = rest[2] if len(rest) > 2 else ignore_index
        classes = scores.shape[1 if scores.ndim > 1 else 0]
        wrong = ((target < 0) | (target >= classes)) & (target != ignored)
        wrong = wrong if output.ndim else wrong.any()
        return torch.where(wrong, torch.full_like(output, float("nan")), output)

    return LabelGuard
