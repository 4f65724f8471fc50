"""Trees of the arrays in a checkpoint."""

import re
from ast import literal_eval
from collections import namedtuple
from collections.abc import Mapping
from typing import Any

from ..core.pytrees import Tree
from . import best_point

KEY_PATH_STEP = re.compile(
    r"""\.(?P<field>\w+)|\[(?P<key>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\]]*)\]"""
)


def rebuild_tree(leaves: Mapping[str, Any]) -> Tree:
    """Rebuild the tree that `pytrees.named_leaves` flattened; its classes become named tuples."""
    if set(leaves) == {""}:
        return leaves[""]
    by_step: dict[tuple[str, str], dict[str, Any]] = {}
    for name, leaf in leaves.items():
        step = KEY_PATH_STEP.match(name)
        assert step is not None, f"{name!r} is no name of a leaf"
        kind = "field" if step["field"] is not None else "key"
        by_step.setdefault((kind, step[kind]), {})[name[step.end() :]] = leaf
    children = {place: rebuild_tree(rest) for place, rest in by_step.items()}
    if all(kind == "field" for kind, _ in children):
        names = [name for _, name in children]
        return namedtuple("Plain", names, rename=True)(*children.values())
    keyed = {_parse_key(key): part for (_, key), part in children.items()}
    numbered = all(i in keyed for i in range(len(keyed)))
    return [keyed[i] for i in range(len(keyed))] if numbered else keyed


def _parse_key(text: str) -> Any:
    """Parse a key as it was written: text, or a number."""
    try:
        return literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def add_agent_axis(manifest: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays of the state; add the axis of agents to those of one site."""
    levels = {k: v for k, v in arrays.items() if k.startswith((".state", best_point.PREFIX + "."))}
    return {k: v[None] for k, v in levels.items()} if "site" in manifest else levels
