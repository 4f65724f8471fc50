"""Groups of runs that differ only in their seed."""

from collections import defaultdict
from typing import Any

from ..records.plot_colors import assign_colours

DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
Manifest = dict[str, Any]


def flatten_options(options: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested tables: {"hypergradient": {"terms": 5}} becomes {"hypergradient.terms": 5}."""
    flat: dict[str, Any] = {}
    for key, value in options.items():
        is_table = isinstance(value, dict)
        flat |= flatten_options(value, f"{prefix}{key}.") if is_table else {f"{prefix}{key}": value}
    return flat


def varying_options(manifests: list[Manifest], by: str) -> dict[str, list[str]]:
    """Return the options that differ between runs of an algorithm, by its "name" or "label"."""
    values_seen: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for manifest in manifests:
        algorithm = manifest["algorithm"]
        for key, value in flatten_options(algorithm.get("options") or {}).items():
            values_seen[algorithm[by]][key].add(repr(value))
    return {
        name: [key for key, values in options.items() if len(values) > 1]
        for name, options in values_seen.items()
    }


def group_runs(manifests: list[Manifest]) -> tuple[list[dict[str, Any]], list[int]]:
    """Group runs; return the groups, and for every run the index of its group.

    A group is named by its algorithm's label, by its site for runs of one site, and by its network,
    problem and options if these differ. The colour identifies the label; dashes distinguish groups
    of the same label.
    """
    varying = varying_options(manifests, "label")
    networks = {manifest["network"]["name"] for manifest in manifests}
    problems = {manifest["problem"]["name"] for manifest in manifests}
    names: list[tuple[str, str]] = []
    for manifest in manifests:
        label = manifest["algorithm"]["label"]
        options = flatten_options(manifest["algorithm"].get("options") or {})
        site = f" at {manifest['site']['name']}" if "site" in manifest else ""
        parts = [f"{key}={options[key]}" for key in varying.get(label, []) if key in options]
        parts += [manifest["network"]["name"]] * (len(networks) > 1)
        parts += [manifest["problem"]["name"]] * (len(problems) > 1)
        names.append((label + site, ", ".join(parts)))
    index = {name: i for i, name in enumerate(dict.fromkeys(names))}
    colours = assign_colours(label for label, _ in names)
    used: dict[str, int] = defaultdict(int)
    groups = []
    for label, details in index:
        dash = DASHES[used[colours[label]] % len(DASHES)]
        used[colours[label]] += 1
        title = f"{label} \u00b7 {details}" if details else label
        groups.append({"title": title, "label": label, "colour": colours[label], "dash": dash})
    return groups, [index[name] for name in names]
