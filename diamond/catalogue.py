"""Find things by name: a folder of modules is the registry."""

import importlib
import pkgutil
from collections.abc import Callable
from types import ModuleType


def catalogue(package: ModuleType) -> dict[str, Callable]:
    """Everything that the modules of `package` list in `__all__`, by name."""
    names = sorted(found.name for found in pkgutil.iter_modules(package.__path__))
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    return {
        name: getattr(module, name) for module in modules for name in getattr(module, "__all__", ())
    }
