"""Gallery of problems: each function returns a `Problem`, or a subclass with known answers."""

from .actor_critic import MarkovGame, actor_critic
from .architecture_search import ArchitectureSearch, architecture_search
from .distillation import distillation
from .domain_weights import DomainWeights, domain_weights
from .fair_weights import fair_weights
from .hyper_cleaning import Cleaning, hyper_cleaning
from .hyperparameter import hyperparameter
from .meta_learning import meta_learning
from .navigation import Navigation, navigation
from .network_cleaning import NetworkCleaning, network_cleaning
from .personal_lora import PersonalLora, personal_lora
from .policy_evaluation import Evaluation, policy_evaluation
from .portfolio import Portfolio, portfolio
from .quadratic import Quadratic, quadratic
from .regression import regression
from .representation import representation
from .rlhf import Rlhf, rlhf
from .robust_regression import RobustRegression, robust_regression
from .support_vectors import support_vectors

__all__ = [
    "ArchitectureSearch",
    "Cleaning",
    "DomainWeights",
    "Evaluation",
    "MarkovGame",
    "Navigation",
    "NetworkCleaning",
    "PersonalLora",
    "Portfolio",
    "Quadratic",
    "Rlhf",
    "RobustRegression",
    "actor_critic",
    "architecture_search",
    "distillation",
    "domain_weights",
    "fair_weights",
    "hyper_cleaning",
    "hyperparameter",
    "meta_learning",
    "navigation",
    "network_cleaning",
    "personal_lora",
    "policy_evaluation",
    "portfolio",
    "quadratic",
    "regression",
    "representation",
    "rlhf",
    "robust_regression",
    "support_vectors",
]
