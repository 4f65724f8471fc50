"""Problems of an experiment: those of the package, or the user's own function."""

import inspect
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from .. import gallery
from ..core.suggestions import did_you_mean
from ..data import DataError, Dataset
from ..data.missing_values import check_names
from ..data.standardize import parse_scale
from ..gallery.stored_predictions import describe_model
from ..problem import Problem
from .components import Component, as_table
from .dataset_section import DATASETS, file_paths, load_parts, resolve_paths
from .digits import digits
from .options import parameters, parse_options
from .partition_section import PARTS, parse_columns, partition_options, partition_rows
from .site_agents import check_partition, check_same_sites, resolve_agents
from .user_functions import UserFunction, digests, user_function
from .validation_errors import collect_errors, config_error, report_mistakes

FILES = (str, list, dict)
IN_PYTHON = ("representation",)  # takes functions, which a file cannot express
EXAMPLE = '{kind = "my_problem.py:make"}'


def problem_names() -> list[str]:
    """List the problems of the package."""
    functions = [name for name in gallery.__all__ if inspect.isfunction(getattr(gallery, name))]
    return sorted({*functions, "digits"} - {*IN_PYTHON})


def read_problem(value: Any, base: Path, first: int = 0) -> Component:
    """Read a problem from its kind, or from a table with `kind` and options; paths start at `base`.

    `first` is the number of the first agent, which differs from 0 at a single site.
    """
    table = as_table(value, "kind", EXAMPLE)
    kind = table.pop("kind")
    if function := user_function(kind, base, "kind"):
        return _read_user_problem(function, table)
    canonical = kind.lower().replace("-", "_")
    if canonical not in problem_names():
        message = f"no problem {kind!r}; {did_you_mean(kind, problem_names())}"
        raise config_error(f"{message}, or your own as {EXAMPLE}", "kind")
    make: Callable[..., Any] = digits
    if canonical != "digits":
        make = getattr(gallery, canonical)
    if "train" in parameters(make):
        return _read_rows_problem(canonical, make, table, base, first=first)
    options = parse_options(canonical, parameters(make), table)
    return Component(
        canonical, options.toml_values, lambda: _as_problem(make(**options.arguments), canonical)
    )


def _read_rows_problem(
    name: str, make: Callable[..., Any], table: dict[str, Any], base: Path, *, first: int
) -> Component:
    """Read a problem that takes rows, on a data set partitioned over the agents."""
    row_options = parameters(partition_rows, without=("real", "first"))
    problem_options = parameters(make, without=PARTS)
    real = "classes" not in problem_options  # labels are numbers to regress on
    files_of = {k: table[k] for k in ("dataset", *PARTS) if isinstance(table.get(k), FILES)}
    readers: list[Callable[[], Any]] = [
        lambda: parse_options(name, {**row_options, **problem_options}, table),
        lambda: check_partition(table),
    ]
    if isinstance(table.get("partition"), str | dict):
        readers.append(lambda: partition_options(table["partition"]))
    readers += [partial(resolve_paths, place, base, key) for key, place in files_of.items()]
    options = collect_errors(*readers)[0]
    select = lambda taken: {k: v for k, v in options.arguments.items() if k in taken}
    places = {key: resolve_paths(value, base, key) for key, value in files_of.items()}
    row_arguments = select(row_options) | places | {"real": real, "first": first}
    problem_arguments = select(problem_options)

    def build() -> Problem:
        partition = partition_rows(**row_arguments)
        train, valid, test, classes, names = partition[:5]
        known: dict[str, Any] = {"classes": classes} if "classes" in problem_options else {}
        known |= {"names": names} if "names" in problem_options and names else {}
        if "class_names" in problem_options and "classes" not in problem_arguments:
            known["class_names"] = partition.class_names
        sites = partition.sites or None
        known |= {"agent_names": sites} if "agent_names" in problem_options and sites else {}
        problem = _as_problem(make(train, valid, test, **known | problem_arguments), name)
        model = {"model": describe_model(name, options.toml_values)}
        preparation = partition.preparation.model_copy(update=model)
        return problem.annotate(sites, partition.notes, preparation)

    toml_values = {k: v for k, v in options.toml_values.items() if k not in ("agents", "partition")}
    if "dataset" not in table:
        toml_values.pop("shares", None)
    options_resolved = table | places
    resolve_agents(options_resolved, None)  # mistakes that do not depend on the files
    dataset = _load_user_dataset(row_arguments, places)
    resolved = resolve_agents(options_resolved, dataset)
    toml_values |= places | resolved
    sites = () if dataset is None or "partition" in resolved else dataset.places
    if "classes" not in table:
        toml_values.pop("classes", None)  # the data set determines the number
    used = [Path(path) for place in places.values() for path in file_paths(place)]
    return Component(name, toml_values, build, sources=digests(*used), sites=sites)


def _load_user_dataset(rows: dict[str, Any], places: dict[str, Any]) -> Dataset | None:
    """Load the data set, or its training part if parts have separate files, if it is the user's."""
    first = next(iter(places))
    if isinstance(places[first], str) and places[first] in DATASETS:
        return None
    try:
        datasets = load_parts(places, rows.get("folder"), parse_columns(rows))
        check_names(rows.get("missing_values", "refuse"), datasets[first].names)
        if isinstance(rows.get("scale"), dict):
            parse_scale(rows["scale"], datasets[first].names)
    except (DataError, OSError) as cause:
        raise config_error(str(cause), first) from None
    if "train" in places:
        check_same_sites(datasets, any(isinstance(place, dict) for place in places.values()))
    return datasets[first]


def _read_user_problem(function: UserFunction, table: dict[str, Any]) -> Component:
    """Read a problem made by a function of the user's own file."""
    options = parse_options(function.name, parameters(function.make), table)
    build = lambda: _as_problem(function.wrapped(**options.arguments), function.name)
    return Component(function.reference, options.toml_values, build, sources=function.sources)


def _as_problem(result: Any, name: str) -> Problem:
    problem = getattr(result, "problem", result)
    if not isinstance(problem, Problem):
        raise ValueError(
            f"{name} returned {type(result).__name__}; it must return a diamond.Problem"
        )
    return problem


def problem_from_files(kind: str, **options: Any) -> Problem:
    """Make a problem of the gallery on rows of files, as an experiment does.

    Runs of the problem predict the rows of new tables: `run.predict("new.csv", agent="north")`.

    Args:
        kind: Kind of the problem, such as "regression" or "hyperparameter".
        **options: Keys of the table `problem` of a file, such as dataset, label, features, levels
            and scale, and the options of the problem. Paths start at the working directory.

    Returns:
        The problem. Remarks about its rows, such as filled cells, are warnings.

    Raises:
        BadExperiment: Options or files cannot be used; the message lists all mistakes.

    Examples:
        >>> diamond.problem_from_files("hyperparameter", dataset="digits", agents=5).counts("train")
        array([144, 144, 144, 144, 144])
    """
    table = {"kind": kind, **{name: _plain(value) for name, value in options.items()}}
    component = report_mistakes(kind, lambda: read_problem(table, Path.cwd()))
    problem: Problem = component.build()
    for note in problem.notes:
        warnings.warn(note, UserWarning, stacklevel=2)
    return problem


def _plain(value: Any) -> Any:
    """Return paths and tuples as a file has them."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return {name: _plain(item) for name, item in value.items()} if type(value) is dict else value
