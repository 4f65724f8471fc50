"""Problem of a federation: defined once in its file, built by each site from its own files."""

from pathlib import Path
from typing import Any

from .. import gallery
from ..core.suggestions import did_you_mean
from ..data import DataError
from ..data.table_columns import check_levels
from .components import Component
from .dataset_section import AGENT_PLACEHOLDER, TABLE_READERS
from .options import parameters, parse_options
from .partition_section import PARTS, partition_rows
from .problem_section import EXAMPLE, problem_names, read_problem
from .validation_errors import config_error, config_errors

FILE_KEYS = ("dataset", *PARTS)
# Problems whose x has entries for the agents or rows of all sites.
WITH_GLOBAL_X = ("fair_weights", "hyper_cleaning")
# Options that the sites themselves determine.
SET_BY_SITES = ("agents", "partition", "site", "folder")


def check_federated_problem(options: Any) -> dict[str, Any]:
    """Check the table `problem` of a federation: every site must be able to build its problem.

    No site sees the rows of another, so the table states everything that sites must agree on: the
    columns, the classes, and the scale of the features.
    """
    kind = options.get("kind") if isinstance(options, dict) else None
    known = [
        name
        for name in problem_names()
        if name not in ("digits", *WITH_GLOBAL_X) and "train" in parameters(getattr(gallery, name))
    ]
    if kind not in known:
        message = f"no problem {kind!r} on rows of sites; {did_you_mean(str(kind), known)}"
        raise config_error(f"{message}; give your own by --problem, as in {EXAMPLE}", "kind")
    mistakes: list[tuple[tuple[str | int, ...], str, Any]] = []
    row_options = parameters(partition_rows, without=("real", "first"))
    taken = row_options | parameters(getattr(gallery, kind), without=PARTS)
    for key in options.keys() - {"kind", *taken}:
        mistakes.append(
            ((key,), f"is no option of {kind}; {did_you_mean(key, taken)}", options[key])
        )
    for key in options.keys() & {*SET_BY_SITES}:
        mistakes.append(((key,), "every site has its own rows; leave it out", options[key]))
    for key in options.keys() & {*FILE_KEYS}:
        if not isinstance(options[key], str):
            agent = AGENT_PLACEHOLDER
            message = (
                f'must be one path; {agent} in it is the name of the site, as in "{agent}.csv"'
            )
            mistakes.append(((key,), message, options[key]))
    if "classes" in parameters(getattr(gallery, kind)) and not options.get("labels"):
        message = (
            'is missing: list all classes in their order, as in ["no", "yes"], since a site may '
        )
        mistakes.append((("labels",), f"{message}lack some", None))
    if options.get("scale") == "standard":
        message = (
            "no site sees the rows of all; give mean and deviation, as in {age = [50.0, 15.0]}"
        )
        mistakes.append((("scale",), message, "standard"))
    if options.get("categories") == "one_hot":
        message = (
            "no site sees the levels of others; declare those of each column and leave this key "
            'out, as in levels = {sex = ["F", "M"]}'
        )
        mistakes.append((("categories",), message, "one_hot"))
    if mistakes:
        raise config_errors(sorted(mistakes, key=lambda mistake: str(mistake[0])))
    parse_options(kind, taken, {key: value for key, value in options.items() if key != "kind"})
    try:
        check_levels(options.get("levels", {}), options.get("features", options.get("levels", {})))
    except DataError as cause:
        raise config_error(str(cause).removeprefix("levels: "), "levels") from None
    return dict(options)


def read_site_problem(
    options: dict[str, Any], site: str, agent: int, data: Path | None, *, base: Path
) -> Component:
    """Build the problem on the files of one site: `data`, or the files that the table names."""
    options_of_site = {key: value for key, value in options.items() if key not in FILE_KEYS}
    places = (
        {"dataset": str(data)}
        if data
        else {key: options[key] for key in FILE_KEYS if key in options}
    )
    if not places:
        raise config_error("is missing: give the file of this site by --data", "dataset")
    options_of_site |= {
        key: place.replace(AGENT_PLACEHOLDER, site) for key, place in places.items()
    }
    tables = [place for place in places.values() if Path(place).suffix in TABLE_READERS]
    if tables and "features" not in options:
        message = "is missing: name the columns to use, so that all sites use the same"
        raise config_error(message, "features")
    return read_problem(options_of_site | {"agents": 1}, base, agent)
