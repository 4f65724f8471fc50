"""Predictions of problems of the gallery by the table of a file, without their rows."""

from collections.abc import Mapping
from typing import Any

from ..problem.prediction import LinearPrediction, Predict, unchanged
from ._convolutions import image_shape
from .meta_learning import DenseLayers
from .network_cleaning import ImagePrediction
from .representation import HeadLoss

LINEAR: dict[str, LinearPrediction] = {
    "distillation": LinearPrediction(unchanged),
    "fair_weights": LinearPrediction(),
    "hyper_cleaning": LinearPrediction(),
    "hyperparameter": LinearPrediction(),
    "regression": LinearPrediction(unchanged),
    "support_vectors": LinearPrediction(unchanged),
}
WITHOUT_INTERCEPT = ("hyperparameter",)  # models on rows that have no intercept of their own


def stored_prediction(
    kind: str, options: Mapping[str, Any], features: int, classes: int
) -> Predict | None:
    """Return the prediction of a problem as in its run; None if it has none.

    Args:
        kind: Kind of the problem, as in a file.
        options: Its options, as in a file.
        features: Number of features of a row.
        classes: Number of classes.
    """
    kind = kind.lower().replace("-", "_")
    if kind == "meta_learning":
        return HeadLoss(DenseLayers(options.get("activation", "tanh")), classes).predict
    if kind == "network_cleaning":
        height, width, colors = tuple(options.get("shape", ())) or image_shape(features)
        return ImagePrediction((height, width, colors))
    return LINEAR.get(kind)
