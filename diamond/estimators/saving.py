"""Files of fitted estimators: a checkpoint with arrays in safetensors, the rest in JSON."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from .._version import __version__
from ..core.parsing import refuse_unreadable
from ..records import checkpoint_file

ROUND = 0  # the checkpoint has no rounds
HISTORY = "history_"


def save_estimator(estimator: Any, folder: Path) -> Path:
    """Save parameters and fitted attributes of an estimator in `folder`."""
    if folder.exists() and checkpoint_file.saved_rounds(folder):
        raise FileExistsError(f"{folder} holds a saved estimator already; choose another folder")
    attributes = {name: value for name, value in vars(estimator).items() if name.endswith("_")}
    arrays = {f"{HISTORY}.{name}": a for name, a in attributes.pop(HISTORY, {}).items()}
    is_array = lambda a: isinstance(a, np.ndarray) and a.dtype.kind in "biuf"
    arrays |= {name: value for name, value in attributes.items() if is_array(value)}
    other = {name: _to_json(attributes[name]) for name in attributes.keys() - arrays.keys()}
    notes = {
        "estimator": type(estimator).__name__,
        "version": __version__,
        "parameters": estimator.get_params(deep=False),
        "attributes": other,
    }
    try:
        notes = json.loads(json.dumps(notes, default=_plain))
    except TypeError as cause:
        raise TypeError(
            f"{type(estimator).__name__} cannot be saved: {cause}; give parameters, sites and "
            f"classes as numbers or texts"
        ) from None
    checkpoint_file.save(folder, ROUND, arrays, notes)
    return folder


def load_estimator(kind: type, folder: Path) -> Any:
    """Load an estimator of class `kind`."""
    saved = checkpoint_file.load(folder, ROUND)
    refusal = f"{folder}: not a saved {kind.__name__}; give a folder that its save wrote"
    with refuse_unreadable(checkpoint_file.DamagedCheckpoint, refusal):
        name = saved.notes["estimator"]
        if name != kind.__name__:
            raise checkpoint_file.DamagedCheckpoint(
                f"{folder}: holds a {name}; load it by {name}.load, not by {kind.__name__}.load"
            )
        estimator = kind(**saved.notes["parameters"])
        attributes = {n: _from_json(value) for n, value in saved.notes["attributes"].items()}
        history = {n.split(".", 1)[1]: a for n, a in saved.arrays.items() if "." in n}
        attributes |= {n: a for n, a in saved.arrays.items() if "." not in n} | {HISTORY: history}
        for name, value in attributes.items():
            if not name.isidentifier() or not name.endswith("_") or name.startswith("_"):
                raise checkpoint_file.DamagedCheckpoint(
                    f"{refusal} ({name!r} is no fitted attribute)"
                )
            setattr(estimator, name, value)
        models = len(estimator.sites_) * estimator.n_features_in_
        if not models or np.size(estimator.coef_) % models:
            raise checkpoint_file.DamagedCheckpoint(f"{refusal} (coef_ has another shape)")
    return estimator


def _to_json(value: Any) -> Any:
    """Return an attribute as JSON; an array of texts or objects is a mapping."""
    if not isinstance(value, np.ndarray):
        return value
    return {"labels": value.tolist(), "is_text": value.dtype.kind == "U"}


def _from_json(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return np.array(value["labels"], dtype=str if value["is_text"] else object)


def _plain(value: Any) -> Any:
    """Return numpy values as JSON."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is neither a number nor a text")
