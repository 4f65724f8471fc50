"""Import of PyTorch and torchax in versions that are known to work together."""

import os
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

TORCH = ("2.13", "2.15")  # minor versions that were tested
TORCHAX = "0.0.14.dev20261026"
INSTALL = f"pip install 'torch=={TORCH[0]}.0' 'torchax=={TORCHAX}'"
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
            f"diamond.torch needs PyTorch, which is not installed: "
            f"pip install 'diamond-bilevel[torch]', that is {INSTALL}"
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
    """Raise unless these versions of torch and torchax are known to work together."""
    tested = torch is not None and ".".join(torch.split(".")[:2]) in TORCH
    if not tested or torchax != TORCHAX:
        raise ImportError(
            f"diamond.torch was tested with torch {' and '.join(TORCH)} and torchax {TORCHAX}, and "
            f"this environment has torch {torch or 'not at all'} and torchax "
            f"{torchax or 'not at all'}: {INSTALL}"
        )


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
