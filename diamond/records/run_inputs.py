"""Plain descriptions of the network and the algorithm of a run, which `resume` compares."""

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ..interface.round_interface import Algorithm
from ..network import Network
from ..schedules.deferred import Deferred
from ..schedules.learned import Learned
from ..schedules.step_schedules import Constant

MAX_LISTED = 16  # arrays of more numbers are described by a digest
DIGITS = 9  # of the weights: other machines may round the last digits differently
OPTIONAL = "optimizer"  # a field that descriptions written before do not have
STEP_NAMES = {"x.step": "alpha", "y.step": "beta", "z.step": "delta"}
Description = dict[str, str]  # text by key, such as {"class": "ComposedAlgorithm", "alpha": "0.05"}


def describe(network: Network, algorithm: Algorithm) -> dict[str, Description]:
    """Describe the network and the algorithm that a run is given, the same in every process."""
    entries = {"batch": str(algorithm.batch)} | flatten(algorithm)
    return {
        "network": describe_network(network),
        "algorithm": dict(map(_rename_step, entries.items())),
    }


def describe_network(network: Network) -> Description:
    """Describe a network: its name, a digest of all weights, channels, damping and links.

    Networks of a sequence mix messages one after another, so their order counts.
    """
    hashed = hashlib.sha256()
    for phase in network.phases:
        for matrix in (phase.weights, phase.weights if phase.shares is None else phase.shares):
            entries = csr_array(matrix, copy=True)
            entries.sum_duplicates()
            hashed.update(f"{entries.shape} {entries.indptr.tolist()}".encode())
            hashed.update(f"{entries.indices.tolist()}".encode())
            hashed.update((np.round(entries.data, DIGITS) + 0.0).tobytes())
        if phase.skipping:
            hashed.update(f"skipped by {sorted(phase.skipping)}".encode())
    for epoch in network.epochs:
        weights = describe_network(epoch.network)["weights"]
        hashed.update(f"from {epoch.from_round}: {epoch.members} {weights}".encode())
    description = {"name": network.title, "weights": hashed.hexdigest()[:16]}
    description |= flatten(network.channels, "channels") | flatten(network.damping, "gamma")
    if network.defense is not None:
        description |= flatten(network.defense, "robust")
    if network.mask_limit is not None:
        description |= flatten(network.mask_limit, "mask_limit")
    description |= flatten(network.lies, "lies")
    return description | (flatten(network.links.to_options(), "links") if network.links else {})


def check_same(saved: Mapping[str, Any], network: Network, algorithm: Algorithm) -> None:
    """Refuse to resume the run that `saved` describes on another network or by another method.

    A run saved without a description is accepted.
    """
    if not saved:
        return
    current, differences = describe(network, algorithm), []
    old_network, new_network = (
        _without_name(description["network"]) for description in (saved, current)
    )
    if changed := _list_changes(old_network, new_network):
        names = [description["network"]["name"] for description in (saved, current)]
        detail = ", not ".join(names) if names[0] != names[1] else "; ".join(changed)
        differences.append(f"another network ({detail})")
    if changed := _list_changes(saved["algorithm"], current["algorithm"]):
        differences.append(f"another method or other constants ({'; '.join(changed)})")
    if differences:
        raise ValueError(
            f"resume: the run has {' and '.join(differences)}; give the inputs that it was made "
            f"with, or leave out resume to start at round 0"
        )


def flatten(node: Any, key: str = "") -> Description:
    """Flatten every number and choice of `node` to text, by key.

    Functions and numbers left to the run are described by name, never by address.
    """
    if isinstance(node, Constant):
        return flatten(node.c, key)
    if isinstance(node, Deferred):
        return {key: f"{node.name} found by the run"}
    if isinstance(node, Learned):
        return {key: f"{node.name} learned"}
    if is_dataclass(node) and not isinstance(node, type):
        parts = {field.name: getattr(node, field.name) for field in fields(node)}
        parts = {name: part for name, part in parts.items() if name != OPTIONAL or part is not None}
        return _flatten_parts(key, parts, type(node).__name__)
    if isinstance(node, partial):
        arguments: dict[Any, Any] = {**dict(enumerate(node.args)), **node.keywords}
        return _flatten_parts(key, arguments, _name_of(node.func))
    if isinstance(node, tuple) and hasattr(node, "_asdict"):
        return _flatten_parts(key, node._asdict(), type(node).__name__)
    if isinstance(node, Mapping):
        return _flatten_parts(key, node)
    if isinstance(node, tuple | list):
        return _flatten_parts(key, dict(enumerate(node)))
    return {key or "class": _format_value(node)}


def _flatten_parts(key: str, parts: Mapping[Any, Any], kind: str = "") -> Description:
    description = {_join_key(key, "class"): kind} if kind else {}
    for name, part in parts.items():
        description |= flatten(part, _join_key(key, name))
    return description


def _join_key(key: str, name: Any) -> str:
    return f"{key}.{name}" if key else str(name)


def _format_value(value: Any) -> str:
    if value is None or isinstance(value, bool | str):
        return str(value)
    if callable(value):
        return _name_of(value)
    try:
        array = np.asarray(value, float)
    except (TypeError, ValueError):
        return type(value).__name__
    if array.ndim == 0:
        return repr(float(array)).removesuffix(".0")
    if array.size <= MAX_LISTED:
        return str(array.tolist())
    return f"{array.shape} {hashlib.sha256(array.tobytes()).hexdigest()[:16]}"


def _name_of(function: Any) -> str:
    """Return the name of a function or class, or of the class of another callable object."""
    target = function if hasattr(function, "__qualname__") else type(function)
    return str(target.__qualname__)


def _rename_step(entry: tuple[str, str]) -> tuple[str, str]:
    """Rename an entry to the letter of its step size, if its key is one."""
    key, text = entry
    for step, letter in STEP_NAMES.items():
        if key == step or key.startswith(f"{step}."):
            return letter + key.removeprefix(step), text
    return entry


def _without_name(network: Mapping[str, str]) -> Description:
    return {key: text for key, text in network.items() if key != "name"}


def _list_changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """List the keys that differ; if the class of a part differs, not the keys inside it."""
    changes: dict[str, str] = {}
    for key in {**old, **new}:
        names = key.removesuffix(".class").split(".")
        for part in (".".join(names[: i + 1]) for i in range(len(names))):
            old_text, new_text = (
                description.get(part, description.get(f"{part}.class", "none"))
                for description in (old, new)
            )
            if old_text != new_text:
                changes[part] = f"{part} = {old_text}, not {new_text}"
                break
    return list(changes.values())
