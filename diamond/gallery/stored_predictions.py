"""Predictions of problems of the gallery by their kind and options, without their rows."""

from collections.abc import Callable, Mapping
from typing import Any

from ..problem.prediction import LinearPrediction, Predict, unchanged
from ._convolutions import image_shape
from .architecture_search import MixedNetwork
from .meta_learning import DenseLayers
from .network_cleaning import ImagePrediction
from .regression import PREDICTIONS
from .representation import HeadLoss
from .robust_regression import predict

LINEAR: dict[str, LinearPrediction] = {
    "distillation": LinearPrediction(unchanged),
    "fair_weights": LinearPrediction(),
    "hyper_cleaning": LinearPrediction(),
    "hyperparameter": LinearPrediction(),
    "support_vectors": LinearPrediction(unchanged),
}
DETERMINING = ("activation", "shape", "loss", "penalty", "penalties", "bounded", "intercept")
IMAGES: dict[str, Callable[..., Predict]] = {
    "architecture_search": MixedNetwork,
    "network_cleaning": ImagePrediction,
}


def describe_model(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the kind of a problem with the options that determine what its models mean."""
    return {"kind": kind} | {name: options[name] for name in DETERMINING if name in options}


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
        return IMAGES[kind]((height, width, colors))
    if kind == "regression":
        return PREDICTIONS[model.get("loss", "squared")]
    return predict if kind == "robust_regression" else LINEAR.get(kind)
