"""Problems to start from: each module's function returns a `Problem`."""

from .actor_critic import MarkovGame, actor_critic
from .hyper_cleaning import Cleaning, hyper_cleaning
from .hyperparameter import hyperparameter
from .meta_learning import meta_learning
from .policy_evaluation import Evaluation, policy_evaluation
from .quadratic import Quadratic, quadratic
from .regression import regression

__all__ = [
    "Cleaning",
    "Evaluation",
    "MarkovGame",
    "Quadratic",
    "actor_critic",
    "hyper_cleaning",
    "hyperparameter",
    "meta_learning",
    "policy_evaluation",
    "quadratic",
    "regression",
]
