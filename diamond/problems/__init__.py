"""Problems to start from: each module's function returns a `Problem`."""

from .hyperparameter import hyperparameter
from .meta_learning import meta_learning
from .quadratic import Quadratic, quadratic
from .regression import regression

__all__ = ["Quadratic", "hyperparameter", "meta_learning", "quadratic", "regression"]
