"""The names of the package: read by type checkers, and by `__init__.py`."""

from .cleaned import CleanedClassifier as CleanedClassifier
from .shared_penalty import SharedPenaltyRegressor as SharedPenaltyRegressor
from .shared_penalty_classifier import SharedPenaltyClassifier as SharedPenaltyClassifier
from .shared_representation import SharedRepresentationClassifier as SharedRepresentationClassifier
from .survival import SharedPenaltySurvival as SharedPenaltySurvival
