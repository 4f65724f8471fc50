"""Algorithms and networks of an experiment by name, each with its options."""

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from .. import catalogue, network
from ..algorithms.parts.optax_optimizers import with_optimizers
from ..core.suggestions import did_you_mean
from ..core.validation import as_int
from ..interface.round_interface import Algorithm
from .options import Options, build_with_options, parameters
from .user_functions import UserFunction, user_function
from .validation_errors import collect_errors, config_error, nest_errors

EDGES = "from_edges"  # the graph of a table with edges
ALIASES = {"er": "erdos_renyi"}


@dataclass(frozen=True)
class Component:
    """One component of an experiment: its name and options as in the file, and its constructor."""

    name: str
    options: dict[str, Any]
    build: Callable[[], Any] = field(compare=False, repr=False)
    label: str = field(default="", compare=False)  # for run names and legends
    sources: dict[str, str] = field(default_factory=dict)  # the user's files: path to digest
    sites: tuple[str, ...] = ()  # names of a problem's agents, if files name them


def algorithm_names() -> list[str]:
    """List the algorithms of the registry."""
    return catalogue.names()


def read_algorithm(value: Any, base: Path | None = None) -> Component:
    """Read an algorithm from its name, or from a table with `name`, options and perhaps a `label`.

    The name may refer to the user's own function, "mine.py:make", relative to `base`. The table
    `optimizers` of any composed method has optimizers of optax, as in {y = "adamw(1e-3)"}.
    """
    table = as_table(value, "name", '{name = "diamond", alpha = 0.1}')
    name, label = table.pop("name"), table.pop("label", None)
    canonical = name.lower().replace("-", "_")
    optimizers = table.pop("optimizers", None)
    function = None if base is None else user_function(name, base, "name")
    if function is None and canonical not in algorithm_names():
        near = did_you_mean(name, algorithm_names())
        raise config_error(f'no algorithm {name!r}; {near}, or your own as "mine.py:make"', "name")

    def check_label() -> None:
        if not isinstance(label, str | None):
            raise config_error(f"must be text in quotes, not {label!r}", "label")

    def make() -> tuple[Any, Options]:
        if function is not None:
            algorithm, options = _call_user_function(function, table)
        else:
            algorithm, options = build_with_options(canonical, catalogue.maker(canonical), table)
        if optimizers is not None:
            algorithm = _with_optimizers(algorithm, optimizers)
            options = options._replace(
                toml_values=options.toml_values | {"optimizers": dict(optimizers)}
            )
        try:
            as_int("batch", algorithm.batch, 1)
        except ValueError as cause:
            raise config_error(str(cause), "batch") from None
        return algorithm, options

    _, (algorithm, options) = collect_errors(check_label, make)
    if function is not None:
        function_name = function.make.__name__
        label = label or (function.path.stem if function_name == "make" else function_name)
        return Component(
            function.reference, options.toml_values, lambda: algorithm, label, function.sources
        )
    return Component(canonical, options.toml_values, lambda: algorithm, label or canonical)


def _with_optimizers(algorithm: Any, optimizers: Any) -> Any:
    """Return the algorithm with the optimizers of this table."""
    if not isinstance(optimizers, dict) or not all(isinstance(t, str) for t in optimizers.values()):
        raise config_error(
            f'must be a table of texts such as {{y = "adamw(1e-3)"}}, not {optimizers!r}',
            "optimizers",
        )
    if unknown := [name for name in optimizers if name not in ("x", "y", "z")]:
        raise config_error(f"has {unknown[0]!r}; the variables are x, y and z", "optimizers")
    try:
        return with_optimizers(algorithm, **optimizers)
    except (ValueError, TypeError, ImportError) as cause:
        raise config_error(str(cause), "optimizers") from None


def _call_user_function(function: UserFunction, table: dict[str, Any]) -> tuple[Any, Options]:
    """Call the user's function with the options in `table`; check that it returns an algorithm."""
    algorithm, options = build_with_options(function.name, function.wrapped, table)
    if not isinstance(algorithm, Algorithm):
        raise config_error(
            f"{function.name} returned {type(algorithm).__name__}; return an algorithm, a subclass "
            f"of diamond.interface.Method, as diamond.diamond(...) is one",
            "name",
        )
    return algorithm, options


def graph_names() -> list[str]:
    """List the graphs that a file can name."""
    built_in_python = {"Network", "changing", "directed", "from_graph", "interrupted"}
    return sorted(set(network.__all__) - built_in_python)


def read_network(value: Any) -> Component:
    """Read a network from "er:9,p=0.3,seed=0", "ring:5", "torus:3x3", or a table.

    The table has `graph`, or `edges`, as in {edges = [["north", "south"]]}.
    """
    raw = parse_spec(value, "graph") if isinstance(value, str) else value
    if isinstance(raw, dict) and "edges" in raw and "graph" not in raw:
        raw = {"graph": EDGES, **raw}
    table = as_table(raw, "graph", '"er:9,p=0.3,seed=0" or {graph = "ring", agents = 5}')
    name = table.pop("graph")
    canonical = _canonical_name(name)
    if canonical not in graph_names():
        known = [*graph_names(), *ALIASES]
        place = [] if isinstance(value, str) else ["graph"]
        raise config_error(f"no graph {name!r}; {did_you_mean(name, known)}", *place)
    channels, gamma = table.pop("channel", []), table.pop("gamma", None)
    exchange_every = table.pop("exchange_every", 1)
    defense: dict[str, Any] = {key: table.pop(key) for key in ("robust", "liars") if key in table}
    masked = table.pop("masked", False)
    make = getattr(network, canonical)
    taken = parameters(make)
    positions = table.pop("", [])
    if len(positions) > len(taken):
        raise config_error(
            f"{value!r} gives more numbers than {canonical} takes ({', '.join(taken)})"
        )
    table = dict(zip(taken, positions)) | table
    costs = table.pop("links", None)
    if isinstance(value, str):  # text holds no tables, so tables of links are separate
        flat = [
            key
            for key in table
            if key in parameters(network.Network.with_links, ["self"]) and key not in taken
        ]
        costs = {key: table.pop(key) for key in flat} or costs
    _, (network_built, options), (channel_objects, channel_tables) = collect_errors(
        lambda: _check_gamma(gamma),
        lambda: build_with_options(canonical, make, table),
        lambda: _read_channels(channels),
    )
    toml_values = options.toml_values
    if exchange_every != 1:
        try:
            network_built = network_built.every(exchange_every)
        except (TypeError, ValueError) as cause:
            raise config_error(str(cause), "exchange_every") from None
        toml_values = toml_values | {"exchange_every": exchange_every}
    if costs is not None:
        network_built, link_options = nest_errors("links", lambda: _add_links(network_built, costs))
        toml_values = toml_values | {"links": link_options.toml_values}
    if channel_objects or gamma is not None:
        try:
            network_built = network_built.through(*channel_objects, gamma=gamma)
        except ValueError as cause:
            raise config_error(str(cause), "channel") from None
        toml_values = (
            toml_values
            | ({"channel": channel_tables} if channel_tables else {})
            | {"gamma": network_built.damping}
        )
    if defense:
        network_built = _add_defense(network_built, defense)
        toml_values = toml_values | {"liars": 1} | defense
    if masked is not False:
        network_built = _add_masks(network_built, masked)
        toml_values = toml_values | {"masked": masked}
    label = value if isinstance(value, str) else network_built.title
    return Component(canonical, toml_values, lambda: network_built, label)


def _add_defense(network_built: network.Network, defense: dict[str, Any]) -> network.Network:
    """Return the network with the robust mixing that the keys `robust` and `liars` describe."""
    if "robust" not in defense:
        raise config_error('needs robust = "clipped" or "trimmed" beside it', "liars")
    liars = defense.get("liars", 1)
    try:
        return network_built.robust(defense["robust"], liars)
    except (ValueError, TypeError) as cause:
        raise config_error(str(cause), "robust") from None


def _add_masks(network_built: network.Network, masked: Any) -> network.Network:
    """Return the network with masked sums: true, or the largest number that is sent."""
    try:
        return network_built.masked() if masked is True else network_built.masked(masked)
    except ValueError as cause:
        raise config_error(str(cause), "masked") from None


def _canonical_name(name: str) -> str:
    return ALIASES.get(name.lower(), name.lower().replace("-", "_"))


def count_agents(value: Any) -> int | None:
    """Return how many agents the text or table of a network names, without building it."""
    try:
        table = dict(parse_spec(value, "graph") if isinstance(value, str) else value)
        name = _canonical_name(table.pop("graph"))
    except (TypeError, ValueError, KeyError, AttributeError):
        return None  # reading it says why
    taken = list(parameters(getattr(network, name))) if name in graph_names() else []
    options = dict(zip(taken, table.pop("", []))) | table
    sizes = [options.get(key) for key in ("agents", "rows", "columns", "dimension")]
    agents, rows, columns, dimension = (n if type(n) is int and n > 0 else None for n in sizes)
    if rows and columns:
        return rows * columns
    return 2 ** min(dimension, 64) if dimension else agents


def mask_network(component: Component, masked: bool | float) -> Component:
    """Return the network of a file with masked sums, which `masked` beside it asks for."""
    masked_network = _add_masks(component.build(), masked)
    return replace(component, build=lambda: masked_network)


def _check_gamma(gamma: Any) -> None:
    if gamma is not None and not isinstance(gamma, int | float):
        raise config_error(f"must be a number above 0, at most 1, not {gamma!r}", "gamma")


def _read_channels(value: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    """Read channels from names or tables with `name`; return them with all their options."""
    tables = value if isinstance(value, list) else [value]
    numbered = enumerate(tables)
    readers = [partial(nest_errors, i, partial(_read_channel, channel)) for i, channel in numbered]
    channels = nest_errors("channel", lambda: collect_errors(*readers))
    return [channel for channel, _ in channels], [table for _, table in channels]


def _read_channel(value: Any) -> tuple[Any, dict[str, Any]]:
    options = as_table(value, "name", '{name = "drops", loss = 0.05}')
    name = options.pop("name")
    names = network.channels.__all__
    if name not in names:
        raise config_error(f"no channel {name!r}; {did_you_mean(name, names)}", "name")
    channel, channel_options = build_with_options(name, getattr(network.channels, name), options)
    return channel, {"name": name, **channel_options.toml_values}


def _add_links(network_built: network.Network, costs: Any) -> tuple[network.Network, Options]:
    """Return the network with the links that the table `costs` describes."""
    if not isinstance(costs, dict):
        raise config_error(f"must be a table, as in {{rate = 1e6, latency = 0.01}}, not {costs!r}")
    return build_with_options("links", network_built.with_links, costs)


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


def parse_spec(text: str, key: str) -> dict[str, Any]:
    """Parse "name:3x3,option=value" into {key: name, "": positions, option: value}."""
    name, _, rest = text.partition(":")
    options: dict[str, Any] = {key: name.strip()}
    positions: list[Any] = []
    for word in filter(None, (word.strip() for word in rest.split(","))):
        option, equals, value = word.partition("=")
        if equals:
            options[option.strip()] = parse_literal(value.strip())
        elif re.fullmatch(r"\d+(x\d+)+", word):
            positions += [int(side) for side in word.split("x")]
        else:
            positions.append(parse_literal(word))
    return options | {"": positions} if positions else options


def parse_literal(text: str) -> Any:
    """Parse a TOML value; return the text itself if it is none."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
