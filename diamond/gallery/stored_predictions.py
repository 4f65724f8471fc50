"""Predictions of problems of the gallery by their kind and options, without their rows."""

from collections.abc import Mapping
from typing import Any

from ..problem.prediction import LinearPrediction, Predict, unchanged
from ._convolutions import image_shape
from .architecture_search import MixedNetwork
from .meta_learning import DenseLayers
from .network_cleaning import ImagePrediction
from .representation import HeadLoss
from .robust_regression import predict

LINEAR: dict[str, LinearPrediction] = {
    "distillation": LinearPrediction(unchanged),
    "fair_weights": LinearPrediction(),
    "hyper_cleaning": LinearPrediction(),
    "hyperparameter": LinearPrediction(),
    "regression": LinearPrediction(unchanged),
    "support_vectors": LinearPrediction(unchanged),
}
IMAGES: dict[str, Any] = {"architecture_search": MixedNetwork, "network_cleaning": ImagePrediction}
WITHOUT_INTERCEPT = ("hyperparameter",)  # models on rows that have no intercept of their own


def describe_model(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the kind of a problem with those options that its predictions depend on."""
    used = {name: options[name] for name in ("activation", "shape") if name in options}
    return {"kind": kind} | used


def stored_prediction(model: Mapping[str, Any], features: int, classes: int) -> Predict | None:
    """Return the prediction of the problem that `describe_model` describes; None if it has none.

    Args:
        model: Description of the problem.
        features: Number of features of a row.
        classes: Number of classes.
    """
    kind = model.get("kind", "")
    if kind == "meta_learning":
        return HeadLoss(DenseLayers(model["activation"]), classes).predict
    if kind in IMAGES:
        height, width, colors = tuple(model["shape"]) or image_shape(features)
        predict_image: Predict = IMAGES[kind]((height, width, colors))
        return predict_image
    return predict if kind == "robust_regression" else LINEAR.get(kind)
