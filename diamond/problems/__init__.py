"""Problems to start from: each module's function returns a `Problem`."""

from .actor_critic import MarkovGame, actor_critic
from .hyper_cleaning import Cleaning, hyper_cleaning
from .hyperparameter import hyperparameter
from .meta_learning import meta_learning
from .quadratic import Quadratic, quadratic
from .regression import regression

__all__ = [
    "Cleaning",
    "MarkovGame",
    "Quadratic",
    "actor_critic",
    "hyper_cleaning",
    "hyperparameter",
    "meta_learning",
    "quadratic",
    "regression",
]
