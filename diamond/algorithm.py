"""The earlier name of `diamond.interface`."""

import warnings

from .interface import *  # noqa: F403

warnings.warn("diamond.algorithm is diamond.interface now", FutureWarning, stacklevel=2)
