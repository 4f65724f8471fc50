"""Precision of the products inside the losses."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Literal

import jax

from ..problem import Objectives

Precision = Literal["float32", "tf32", "bf16"]
PRODUCTS = {"float32": "float32", "tf32": "tensorfloat32"}


def product_precision(precision: Precision | None) -> AbstractContextManager[Any]:
    """Compile programs with products of this precision inside the context."""
    if precision is not None and precision not in ("float32", "tf32", "bf16"):
        raise ValueError(f"precision = {precision!r}; there are 'float32', 'tf32' and 'bf16'")
    setting = PRODUCTS.get(precision or "")
    return jax.default_matmul_precision(setting) if setting else nullcontext()


def working_objectives(
    objectives: Objectives, precision: Precision | None, casts_y: bool = False
) -> Objectives:
    """Return the objectives for the rounds; measures use the exact ones.

    With "bf16", losses see x and the rows as bfloat16, and y too if `casts_y`.
    """
    if precision != "bf16":
        return objectives
    train, valid = objectives.train.to_bfloat16(), objectives.valid.to_bfloat16()
    return replace(objectives, train=train, valid=valid, half=True, half_y=casts_y)
