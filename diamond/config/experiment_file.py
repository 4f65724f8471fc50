"""Experiments in TOML: parsing, validation, defaults, and writing in full."""

import os
import re
import tomllib
import unicodedata
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo

from .components import Part, graph, literal
from .problem_section import problem
from .sweeps import swept
from .validation_errors import BadExperiment, Mistake, gather, mistakes_of, within

Whole = Annotated[int, Field(ge=0)]


def _several(value: Any) -> Any:
    """Wrap a single value in a list."""
    return value if isinstance(value, list) else [value]


def _problem(value: Any, info: ValidationInfo) -> Part:
    return value if isinstance(value, Part) else problem(value, _base(info))


def _base(info: ValidationInfo) -> Path:
    """Return the folder that relative paths start at."""
    found: Path = (info.context or {}).get("base", Path())
    return found


def _network(value: Any) -> Part:
    return value if isinstance(value, Part) else graph(value)


def _algorithms(value: Any, info: ValidationInfo) -> list[Part]:
    """Read one or several algorithms and expand lists of options into sweeps."""
    of = lambda one: [one] if isinstance(one, Part) else swept(one, _base(info))
    each = enumerate(_several(value))
    found = gather(*(partial(within, i, partial(of, one)) for i, one in each))
    return [part for parts in found for part in parts]


class Experiment(BaseModel):
    """Validated experiment: every algorithm on every network from every seed."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True
    )

    name: Annotated[str, Field(pattern=r"^\w[\w.+-]*$")]
    rounds: Whole
    every: Annotated[int, Field(ge=1)] = 100
    seed: Annotated[list[Whole], BeforeValidator(_several), Field(min_length=1)] = [0]
    sampling: Literal["blocks", "rows"] = "blocks"
    precision: Literal["float32", "float64", "tf32", "bf16"] = "float32"
    devices: Annotated[int, Field(ge=1)] | Literal["cores", "all"] | None = None
    stop: dict[str, float | str] = {}
    measure: Annotated[list[str], BeforeValidator(_several), Field(min_length=1)] = ["exact"]
    on_divergence: Literal["stop", "shrink"] | None = None
    checkpoint_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 2.0
    problem: Annotated[Part, BeforeValidator(_problem)]
    network: Annotated[
        list[Annotated[Part, BeforeValidator(_network)]],
        BeforeValidator(_several),
        Field(min_length=1),
    ]
    algorithm: Annotated[list[Part], BeforeValidator(_algorithms), Field(min_length=1)]

    @property
    def single(self) -> bool:
        """Return whether the experiment consists of one run."""
        return len(self.seed) == len(self.network) == len(self.algorithm) == 1

    @property
    def sources(self) -> dict[str, str]:
        """Return the user's own files: path to digest."""
        parts = [self.problem, *self.algorithm]
        return {path: digest for part in parts for path, digest in part.sources.items()}

    @property
    def products(self) -> Literal["tf32", "bf16"] | None:
        """Return the precision of matrix products in the losses, None if that of the numbers."""
        return self.precision if self.precision in ("tf32", "bf16") else None

    def toml(self, folder: Path) -> str:
        """Format the experiment in full as a file in `folder` that `load` reads as the same."""
        import tomli_w

        one = lambda found: found[0] if len(found) == 1 else found
        kind = relative(self.problem.name, folder)
        options = {key: relative(value, folder) for key, value in self.problem.options.items()}
        scalars = ["name", "rounds", "every", "sampling", "precision", "checkpoint_seconds"]
        chosen = {name: getattr(self, name) for name in ("on_divergence", "devices")}
        chosen |= {"stop": self.stop or None}
        chosen |= {"measure": None if self.measure == ["exact"] else one(self.measure)}
        return tomli_w.dumps(
            {name: getattr(self, name) for name in scalars}
            | {name: value for name, value in chosen.items() if value is not None}
            | {"seed": one(self.seed)}
            | {"problem": {"kind": kind, **options}}
            | {"network": one([{"graph": part.name, **part.options} for part in self.network])}
            | {
                "algorithm": one(
                    [
                        {"name": relative(part.name, folder), "label": part.label, **part.options}
                        for part in self.algorithm
                    ]
                )
            }
        )


def relative(value: Any, folder: Path) -> Any:
    """Make absolute paths relative to `folder`, so that the files can be moved together."""
    if isinstance(value, list):
        return [relative(one, folder) for one in value]
    if isinstance(value, str) and os.path.isabs(value):
        return Path(os.path.relpath(value, folder.absolute())).as_posix()
    return value


def load(path: Path, changes: Sequence[str] = ()) -> Experiment:
    """Load the experiment in the file at `path`, with `changes` such as "algorithm.alpha=0.1".

    Raises `BadExperiment` with every mistake.
    """
    return read(parsed(path, changes), path.parent, str(path))


def parsed(path: Path, changes: Sequence[str] = ()) -> dict[str, Any]:
    """Parse the file at `path` into tables, with its name and `changes`, without validation."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as cause:
        said = cause.strerror if isinstance(cause, OSError) else str(cause)
        kind = "cannot be read" if isinstance(cause, OSError) else "is not valid TOML"
        raise BadExperiment(str(path), [Mistake("", f"{kind}: {said}")]) from None
    raw.setdefault("name", named(path.stem))
    for change in changes:
        _change(raw, change, str(path))
    return raw


def named(stem: str) -> str:
    """Turn a file name into the name of an experiment: "my first try" becomes my-first-try."""
    plain = re.sub(r"[^\w.+-]+", "-", unicodedata.normalize("NFC", stem)).strip("-.+")
    return plain or "experiment"


def read(raw: Mapping[str, Any], base: Path, source: str) -> Experiment:
    """Validate the experiment in `raw`; relative paths start at `base`."""
    try:
        return Experiment.model_validate(dict(raw), context={"base": base.absolute()})
    except ValidationError as error:
        raise BadExperiment(
            source, mistakes_of(error, raw, list(Experiment.model_fields))
        ) from None


def _change(raw: dict[str, Any], change: str, source: str) -> None:
    """Set "a.b=value" in `raw`; if a is a list of tables, in each of them."""
    key, equals, text = change.partition("=")
    steps = key.strip().split(".")
    if not equals or not all(steps):
        said = f"--set {change}: write it as key=value, as in --set rounds=500"
        raise BadExperiment(source, [Mistake("", said)])
    places: list[Any] = [raw]
    for step in steps[:-1]:
        inside = [_opened(place, step) for place in places]
        places = [
            one for found in inside for one in (found if isinstance(found, list) else [found])
        ]
        if not all(isinstance(place, dict) for place in places):
            said = f"--set {change}: {step} is no table, so it has no {steps[-1]}"
            raise BadExperiment(source, [Mistake("", said)])
    for place in places:
        place[steps[-1]] = literal(text.strip())


def _opened(place: dict[str, Any], step: str) -> Any:
    """Return the table at `step`; a component given by its name alone becomes a table."""
    found = place.setdefault(step, {})
    first = {"problem": "kind", "algorithm": "name", "hypergradient": "name"}.get(step)
    if first and isinstance(found, str):
        place[step] = {first: found}
    if first and isinstance(found, list):
        place[step] = [{first: one} if isinstance(one, str) else one for one in found]
    return place[step]
