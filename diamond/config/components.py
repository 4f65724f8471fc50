"""Algorithms and networks of an experiment by name, each with its options."""

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from .. import catalogue, network
from ..core.suggestions import did_you_mean
from ..core.validation import as_int
from ..interface.round_interface import Algorithm
from .options import Options, build_with_options, parameters
from .user_functions import UserFunction, user_function
from .validation_errors import collect_errors, config_error, nest_errors

ALIASES = {"er": "erdos_renyi"}
# Earlier names of algorithms and of their options, which files written before still use.
EARLIER_NAMES = {"method": "compose"}
EARLIER_OPTIONS = {"compose": {"plan": "update_order", "solves": "lower_level"}}


@dataclass(frozen=True)
class Component:
    """One component of an experiment: its name and options as in the file, and its constructor."""

    name: str
    options: dict[str, Any]
    build: Callable[[], Any] = field(compare=False, repr=False)
    label: str = field(default="", compare=False)  # for run names and legends
    sources: dict[str, str] = field(default_factory=dict)  # the user's files: path to digest


def algorithm_names() -> list[str]:
    """List the algorithms of the registry."""
    return catalogue.names()


def read_algorithm(value: Any, base: Path | None = None) -> Component:
    """Read an algorithm from its name, or from a table with `name`, options and perhaps a `label`.

    The name may refer to the user's own function, "mine.py:make", relative to `base`.
    """
    given = as_table(value, "name", '{name = "diamond", alpha = 0.1}')
    name, label = given.pop("name"), given.pop("label", None)
    written = name.lower().replace("-", "_")
    canonical = EARLIER_NAMES.get(written, written)
    earlier = EARLIER_OPTIONS.get(canonical, {})
    given = {earlier.get(key, key): option for key, option in given.items()}
    mine = None if base is None else user_function(name, base, "name")
    if mine is None and canonical not in algorithm_names():
        near = did_you_mean(name, algorithm_names())
        raise config_error(f'no algorithm {name!r}; {near}, or your own as "mine.py:make"', "name")

    def check_label() -> None:
        if not isinstance(label, str | None):
            raise config_error(f"must be text in quotes, not {label!r}", "label")

    def make() -> tuple[Any, Options]:
        if mine is not None:
            found, options = _call_user_function(mine, given)
        else:
            found, options = build_with_options(canonical, catalogue.maker(canonical), given)
        try:
            as_int("batch", found.batch, 1)
        except ValueError as cause:
            raise config_error(str(cause), "batch") from None
        return found, options

    _, (found, options) = collect_errors(check_label, make)
    if mine is not None:
        named = label or (mine.path.stem if mine.make.__name__ == "make" else mine.make.__name__)
        return Component(mine.spelled, options.spelled, lambda: found, named, mine.sources)
    return Component(canonical, options.spelled, lambda: found, label or written)


def _call_user_function(mine: UserFunction, given: dict[str, Any]) -> tuple[Any, Options]:
    """Call the user's function with `given` and check that it returns an algorithm."""
    found, options = build_with_options(mine.name, mine.called, given)
    wanted = [name for name in vars(Algorithm) if not name.startswith("_")]
    if missing := [name for name in wanted if not hasattr(found, name)]:
        raise config_error(
            f"{mine.name} returned {type(found).__name__}, which lacks {', '.join(missing)}; "
            f"return an algorithm, as diamond.diamond(...) is one",
            "name",
        )
    return found, options


def graph_names() -> list[str]:
    """List the graphs that a file can name."""
    return sorted(set(network.__all__) - {"Network", "changing", "directed", "from_graph"})


def read_network(value: Any) -> Component:
    """Read a network from "er:9,p=0.3,seed=0", "ring:5", "torus:3x3", or a table with `graph`."""
    raw = parse_spec(value, "graph") if isinstance(value, str) else value
    given = as_table(raw, "graph", '"er:9,p=0.3,seed=0" or {graph = "ring", agents = 5}')
    name = given.pop("graph")
    canonical = ALIASES.get(name.lower(), name.lower().replace("-", "_"))
    if canonical not in graph_names():
        known = [*graph_names(), *ALIASES]
        raise config_error(f"no graph {name!r}; {did_you_mean(name, known)}", *_graph_key(value))
    channels, gamma = given.pop("channel", []), given.pop("gamma", None)
    make = getattr(network, canonical)
    taken = parameters(make)
    positions = given.pop("", [])
    if len(positions) > len(taken):
        raise config_error(
            f"{value!r} gives more numbers than {canonical} takes ({', '.join(taken)})"
        )
    given = dict(zip(taken, positions)) | given
    costs = given.pop("links", None)
    if isinstance(value, str):  # text holds no tables, so tables of links are separate
        flat = [
            key
            for key in given
            if key in parameters(network.Network.with_links, ["self"]) and key not in taken
        ]
        costs = {key: given.pop(key) for key in flat} or costs
    _, (found, options), (parts, said) = collect_errors(
        lambda: _check_gamma(gamma),
        lambda: build_with_options(canonical, make, given),
        lambda: _read_channels(channels),
    )
    spelled = options.spelled
    if costs is not None:
        found, more = nest_errors("links", lambda: _add_links(found, costs))
        spelled = spelled | {"links": more.spelled}
    if parts or gamma is not None:
        try:
            found = found.through(*parts, gamma=gamma)
        except ValueError as cause:
            raise config_error(str(cause), "channel") from None
        spelled = spelled | ({"channel": said} if said else {}) | {"gamma": found.damping}
    label = value if isinstance(value, str) else found.title
    return Component(canonical, spelled, lambda: found, label)


def _check_gamma(gamma: Any) -> None:
    if gamma is not None and not isinstance(gamma, int | float):
        raise config_error(f"must be a number above 0, at most 1, not {gamma!r}", "gamma")


def _read_channels(value: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    """Read channels from names or tables with `name`; return them with all their options."""
    given = value if isinstance(value, list) else [value]
    each = enumerate(given)
    read = [partial(nest_errors, i, partial(_read_channel, one)) for i, one in each]
    made = nest_errors("channel", lambda: collect_errors(*read))
    return [one for one, _ in made], [said for _, said in made]


def _read_channel(value: Any) -> tuple[Any, dict[str, Any]]:
    options = as_table(value, "name", '{name = "drops", loss = 0.05}')
    name = options.pop("name")
    names = network.channels.__all__
    if name not in names:
        raise config_error(f"no channel {name!r}; {did_you_mean(name, names)}", "name")
    made, found = build_with_options(name, getattr(network.channels, name), options)
    return made, {"name": name, **found.spelled}


def _add_links(made: network.Network, costs: Any) -> tuple[network.Network, Options]:
    """Return the network with the links that the table `costs` describes."""
    if not isinstance(costs, dict):
        raise config_error(f"must be a table, as in {{rate = 1e6, latency = 0.01}}, not {costs!r}")
    return build_with_options("links", made.with_links, costs)


def as_table(value: Any, key: str, example: str) -> dict[str, Any]:
    """Return `value` as a table with the text `key`; plain text becomes the value of `key`."""
    if isinstance(value, str):
        return {key: value}
    if not isinstance(value, dict):
        raise config_error(f"must be a name or a table, as in {example}, not {value!r}")
    if key not in value:
        raise config_error(f"is missing, as in {example}", key)
    if not isinstance(value[key], str):
        raise config_error(f"must be text in quotes, not {value[key]!r}", key)
    return dict(value)


def _graph_key(value: Any) -> tuple[str, ...]:
    return () if isinstance(value, str) else ("graph",)


def parse_spec(text: str, key: str) -> dict[str, Any]:
    """Parse "name:3x3,option=value" into {key: name, "": positions, option: value}."""
    name, _, rest = text.partition(":")
    found: dict[str, Any] = {key: name.strip()}
    positions: list[Any] = []
    for word in filter(None, (word.strip() for word in rest.split(","))):
        option, equals, value = word.partition("=")
        if equals:
            found[option.strip()] = parse_literal(value.strip())
        elif re.fullmatch(r"\d+(x\d+)+", word):
            positions += [int(side) for side in word.split("x")]
        else:
            positions.append(parse_literal(word))
    return found | {"": positions} if positions else found


def parse_literal(text: str) -> Any:
    """Parse a TOML value; return the text itself if it is none."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
