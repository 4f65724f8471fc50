"""Problem of a federation: defined once in its file, built by each site from its own files."""

from pathlib import Path
from typing import Any

from .. import gallery
from ..core.suggestions import did_you_mean
from .components import Part
from .dataset_section import AGENT, TABLES
from .options import parameters
from .partition_section import PARTS, partition_rows
from .problem_section import EXAMPLE, names, problem
from .validation_errors import several, wrong

FILES = ("dataset", *PARTS)
OF_ALL = ("fair_weights", "hyper_cleaning")  # x has entries for the agents or rows of all sites
BY_SITES = ("agents", "partition", "site", "folder")  # options that the sites themselves determine


def stated(given: Any) -> dict[str, Any]:
    """Check the table `problem` of a federation: any site must be able to build its problem from
    it.

    No site sees the rows of another, so the table states everything that sites must agree on: the
    columns, the classes, and the scale of the features.
    """
    kind = given.get("kind") if isinstance(given, dict) else None
    known = [name for name in names() if name not in ("digits", *OF_ALL) and _on_rows(name)]
    if kind not in known:
        said = f"no problem {kind!r} on rows of sites; {did_you_mean(str(kind), known)}"
        raise wrong(f"{said}; one of your own goes by --problem, as in {EXAMPLE}", "kind")
    found: list[tuple[tuple[str | int, ...], str, Any]] = []
    taken = {
        *parameters(partition_rows, without=("real", "first")),
        *parameters(getattr(gallery, kind)),
    }
    for key in given.keys() - {"kind", *taken}:
        found.append(((key,), f"is no option of {kind}; {did_you_mean(key, taken)}", given[key]))
    for key in given.keys() & {*BY_SITES}:
        found.append(((key,), "every site has its own rows; leave it out", given[key]))
    for key in given.keys() & {*FILES}:
        if not isinstance(given[key], str):
            said = f'must be one path; {AGENT} in it is the name of the site, as in "{AGENT}.csv"'
            found.append(((key,), said, given[key]))
    if "classes" in parameters(getattr(gallery, kind)) and not given.get("labels"):
        said = 'is missing: tell all classes in their order, as in ["no", "yes"], since a site may '
        found.append((("labels",), f"{said}lack some", None))
    if given.get("scale") == "standard":
        said = "no site sees the rows of all; tell mean and deviation, as in {age = [50.0, 15.0]}"
        found.append((("scale",), said, "standard"))
    if found:
        raise several(sorted(found, key=lambda one: str(one[0])))
    return dict(given)


def at_site(given: dict[str, Any], site: str, agent: int, data: Path | None, base: Path) -> Part:
    """Build the problem on the files of one site: `data`, or the files that the table names."""
    own = {key: value for key, value in given.items() if key not in FILES}
    places = {"dataset": str(data)} if data else {key: given[key] for key in FILES if key in given}
    if not places:
        raise wrong("is missing: give the file of this site by --data", "dataset")
    own |= {key: place.replace(AGENT, site) for key, place in places.items()}
    tables = [place for place in places.values() if Path(place).suffix in TABLES]
    if tables and "features" not in given:
        said = "is missing: name the columns to use, so that all sites use the same"
        raise wrong(said, "features")
    return problem(own | {"agents": 1}, base, agent)


def _on_rows(name: str) -> bool:
    return "train" in parameters(getattr(gallery, name))
