"""The paper's theory in numbers: constants from data, Lemmas 1 to 3, Theorem 1, rates."""

from .constants import Constants, Start, estimate
from .rate import Rate, Slope, averages, rate, reached, slope
from .theorem import Theorem1, bias, descent, lemma1, lemma2, right_side, terms, theorem1

__all__ = [
    "Constants",
    "Rate",
    "Slope",
    "Start",
    "Theorem1",
    "averages",
    "bias",
    "descent",
    "estimate",
    "lemma1",
    "lemma2",
    "rate",
    "reached",
    "right_side",
    "slope",
    "terms",
    "theorem1",
]
