"""The earlier name of `diamond.schedules`."""

import warnings

from .schedules import *  # noqa: F403

warnings.warn("diamond.schedule is diamond.schedules now", FutureWarning, stacklevel=2)
