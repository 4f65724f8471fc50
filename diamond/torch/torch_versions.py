"""Import of PyTorch and torchax in versions that are known to work together."""

import math
import os
import re
import warnings
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

# The earliest versions that work together, and those that were tested.
TORCH, TORCHAX = "2.13.0", "0.0.14.dev20261026"
TESTED_TORCH = ("2.13", "2.15")
INSTALL = f"pip install 'torch>={TORCH}' 'torchax>={TORCHAX}'"
TELEMETRY = "ENABLE_RUNTIME_UPTIME_TELEMETRY"  # torchax turns it on unless it is set


def import_torch() -> Any:
    """Return the module torch.

    Raises:
        ImportError: PyTorch is missing.
    """
    try:
        import torch
    except ImportError as cause:
        raise ImportError(
            f"diamond.torch needs PyTorch, which is not installed: {INSTALL}"
        ) from cause
    return torch


@cache
def import_torchax() -> Any:
    """Return the module torchax, without its telemetry.

    Raises:
        ImportError: torch or torchax is missing or of a version that was not tested.
    """
    import_torch()
    check_versions(_installed("torch"), _installed("torchax"))
    os.environ[TELEMETRY] = "0"  # also where the user's environment asks for it
    import torchax
    import torchax.interop

    return torchax


def check_versions(torch: str | None, torchax: str | None) -> None:
    """Raise if torch or torchax is missing or too old; warn if they were not tested together."""
    if _order(torch) < _order(TORCH) or _order(torchax) < _order(TORCHAX):
        raise ImportError(
            f"diamond.torch needs torch {TORCH} and torchax {TORCHAX} or later, and this "
            f"environment has torch {torch or 'not at all'} and torchax "
            f"{torchax or 'not at all'}: {INSTALL}"
        )
    if not str(torch).startswith(TESTED_TORCH) or torchax != TORCHAX:
        warnings.warn(
            f"diamond.torch was tested with torch {' and '.join(TESTED_TORCH)} and torchax "
            f"{TORCHAX}, not with torch {torch} and torchax {torchax}; if a model fails, "
            f"pip install 'torchax=={TORCHAX}'",
            RuntimeWarning,
            stacklevel=3,
        )


def _order(version: str | None) -> tuple[float, ...]:
    """Return what versions are compared by: a release is later than its development builds."""
    release, _, build = (version or "0").partition("+")[0].partition(".dev")
    numbers = [float(part) for part in re.findall(r"\d+", release)[:3]]
    return (*numbers, *[0.0] * (3 - len(numbers)), float(build) if build.isdigit() else math.inf)


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
