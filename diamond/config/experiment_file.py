"""Experiments in TOML: parsing, validation, defaults, and writing in full."""

import os
import re
import tomllib
import unicodedata
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from ..metrics.evaluations import default_every
from .agent_order import order_agents
from .components import Component, parse_literal, read_network
from .privacy_section import PrivacySection
from .problem_section import read_problem
from .sweeps import read_algorithms
from .validation_errors import (
    BadExperiment,
    Mistake,
    collect_errors,
    config_error,
    nest_errors,
    translate_errors,
)

NonNegativeInt = Annotated[int, Field(ge=0)]


def _as_list(value: Any) -> Any:
    """Wrap a single value in a list."""
    return value if isinstance(value, list) else [value]


def _read_problem(value: Any, info: ValidationInfo) -> Component:
    return value if isinstance(value, Component) else read_problem(value, _base_folder(info))


def _base_folder(info: ValidationInfo) -> Path:
    """Return the folder that relative paths start at."""
    folder: Path = (info.context or {}).get("base", Path())
    return folder


def _read_network(value: Any) -> Component:
    return value if isinstance(value, Component) else read_network(value)


def _read_algorithms(value: Any, info: ValidationInfo) -> list[Component]:
    """Read one or several algorithms and expand lists of options into sweeps."""
    read_one = lambda item: (
        [item] if isinstance(item, Component) else read_algorithms(item, _base_folder(info))
    )
    numbered = enumerate(_as_list(value))
    components = collect_errors(
        *(partial(nest_errors, i, partial(read_one, item)) for i, item in numbered)
    )
    return [part for group in components for part in group]


def _check_devices(value: Any) -> Any:
    is_count = type(value) is int and value >= 1
    if value is not None and not is_count and value not in ("cores", "all"):
        raise config_error(f"must be 'cores', 'all', or a whole number from 1, not {value!r}")
    return value


class Experiment(BaseModel):
    """Validated experiment: every algorithm on every network from every seed.

    Attributes:
        name: Name of the run's folder; by default that of the file.
        rounds: Number of rounds.
        every: Rounds between evaluations. Default: a fortieth of the rounds.
        seed: Seed of the start and of every mini-batch.
        sampling: How mini-batches are drawn: "blocks" takes successive rows and is fast; "rows"
            draws each row independently.
        precision: Precision of the numbers; "tf32" and "bf16" apply to the products inside the
            losses only.
        devices: Devices to shard the agents over; by default one device.
        stop: Targets and budgets that end the run early, as in {metric = 1e-3, samples = 1e6} or
            {accuracy = ">= 0.9"}.
        measure: Measures of an evaluation: "exact", "loss", "cheap", or a list of columns; by
            default "exact", and "cheap" if y is large or the lower level is not convex.
        on_divergence: "shrink" rolls back and continues with smaller steps, "stop" ends the run; by
            default "shrink" if alpha is learned.
        checkpoint_seconds: Least time between checkpoints, in seconds.
        problem: The problem: one of the gallery, or your own function.
        network: The network.
        algorithm: The method, or several for `diamond compare`.
        privacy: Differential privacy of everything that a site sends, as in {epsilon = 8.0,
            delta = 1e-5, clip = 1.0}; further keys are clipping ("row", "whole" or "auto"),
            noise_multiplier and rounds.
    """

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True
    )

    name: Annotated[str, Field(pattern=r"^\w[\w.+-]*$")]
    rounds: NonNegativeInt
    every: Annotated[int, Field(ge=1)] = Field(default=None)  # type: ignore[assignment]
    seed: Annotated[list[NonNegativeInt], BeforeValidator(_as_list), Field(min_length=1)] = [0]
    sampling: Literal["blocks", "rows"] = "blocks"
    precision: Literal["float32", "float64", "tf32", "bf16"] = "float32"
    devices: Annotated[
        Annotated[int, Field(ge=1)] | Literal["cores", "all"] | None,
        BeforeValidator(_check_devices),
    ] = None
    stop: dict[str, float | str] = {}
    measure: Annotated[list[str], BeforeValidator(_as_list), Field(min_length=1)] | None = None
    on_divergence: Literal["stop", "shrink"] | None = None
    checkpoint_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 2.0
    problem: Annotated[Component, BeforeValidator(_read_problem)]
    network: Annotated[
        list[Annotated[Component, BeforeValidator(_read_network)]],
        BeforeValidator(_as_list),
        Field(min_length=1),
    ]
    algorithm: Annotated[list[Component], BeforeValidator(_read_algorithms), Field(min_length=1)]
    privacy: PrivacySection | None = None

    @model_validator(mode="before")
    @classmethod
    def _choose_every(cls, values: dict[str, Any]) -> dict[str, Any]:
        rounds = values.get("rounds")
        return {"every": default_every(rounds)} | values if isinstance(rounds, int) else values

    @model_validator(mode="after")
    def _protect_algorithms(self) -> "Experiment":
        if self.privacy is not None:
            parts = [self.privacy.protect(part, self.rounds) for part in self.algorithm]
            object.__setattr__(self, "algorithm", parts)
        return self

    @model_validator(mode="after")
    def _order_agents(self) -> "Experiment":
        """Give networks of named edges the order of the sites."""
        ordered = [
            nest_errors("network", partial(order_agents, part, self.problem.sites))
            for part in self.network
        ]
        object.__setattr__(self, "network", ordered)
        return self

    @property
    def is_single_run(self) -> bool:
        """Return whether the experiment consists of one run."""
        return len(self.seed) == len(self.network) == len(self.algorithm) == 1

    @property
    def sources(self) -> dict[str, str]:
        """Return the user's own files: path to digest."""
        parts = [self.problem, *self.algorithm]
        return {path: digest for part in parts for path, digest in part.sources.items()}

    @property
    def product_precision(self) -> Literal["tf32", "bf16"] | None:
        """Return the precision of matrix products in the losses, None if that of the numbers."""
        return self.precision if self.precision in ("tf32", "bf16") else None

    def to_toml(self, folder: Path) -> str:
        """Format the experiment in full as a file in `folder` that `load` reads as the same."""
        import tomli_w

        unwrap = lambda values: values[0] if len(values) == 1 else values
        kind = make_relative(self.problem.name, folder)
        options = {key: make_relative(value, folder) for key, value in self.problem.options.items()}
        scalars = ["name", "rounds", "every", "sampling", "precision", "checkpoint_seconds"]
        optional = {name: getattr(self, name) for name in ("on_divergence", "devices")}
        optional |= {"stop": self.stop or None}
        optional |= {"privacy": self.privacy and self.privacy.as_table(self.rounds)}
        optional |= {"measure": None if self.measure is None else unwrap(self.measure)}
        return tomli_w.dumps(
            {name: getattr(self, name) for name in scalars}
            | {name: value for name, value in optional.items() if value is not None}
            | {"seed": unwrap(self.seed)}
            | {"problem": {"kind": kind, **options}}
            | {"network": unwrap([{"graph": part.name, **part.options} for part in self.network])}
            | {
                "algorithm": unwrap(
                    [
                        {
                            "name": make_relative(part.name, folder),
                            "label": part.label,
                            **part.options,
                        }
                        for part in self.algorithm
                    ]
                )
            }
        )


def make_relative(value: Any, folder: Path) -> Any:
    """Make absolute paths relative to `folder`, so that the files can be moved together."""
    if isinstance(value, list):
        return [make_relative(item, folder) for item in value]
    if isinstance(value, str) and os.path.isabs(value):
        return Path(os.path.relpath(value, folder.absolute())).as_posix()
    return value


def load(path: Path, changes: Sequence[str] = ()) -> Experiment:
    """Load the experiment in the file at `path`, with `changes` such as "algorithm.alpha=0.1".

    Raises `BadExperiment` with every mistake.
    """
    return validate(parse_file(path, changes), path.parent, str(path))


def read_toml(path: Path) -> dict[str, Any]:
    """Read the tables of the TOML file at `path`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as cause:
        reason = f"cannot be read: {cause.strerror}; check the path"
    except UnicodeDecodeError:
        reason = "is not text in UTF-8; save it in this encoding"
    except tomllib.TOMLDecodeError as cause:
        reason = f"is not valid TOML: {cause}"
    raise BadExperiment(str(path), [Mistake("", reason)])


def parse_file(path: Path, changes: Sequence[str] = ()) -> dict[str, Any]:
    """Parse the file at `path` into tables, with its name and `changes`, without validation."""
    raw = read_toml(path)
    raw.setdefault("name", experiment_name(path.stem))
    for change in changes:
        _apply_change(raw, change, str(path))
    return raw


def experiment_name(stem: str) -> str:
    """Turn a file name into the name of an experiment: "my first try" becomes my-first-try."""
    plain = re.sub(r"[^\w.+-]+", "-", unicodedata.normalize("NFC", stem)).strip("-.+")
    return plain or "experiment"


def validate(raw: Mapping[str, Any], base: Path, source: str) -> Experiment:
    """Validate the experiment in `raw`; relative paths start at `base`."""
    try:
        return Experiment.model_validate(dict(raw), context={"base": base.absolute()})
    except ValidationError as error:
        raise BadExperiment(source, translate_errors(error, raw, Experiment)) from None


def _apply_change(raw: dict[str, Any], change: str, source: str) -> None:
    """Set "a.b=value" in `raw`; if a is a list of tables, in each of them."""
    key, equals, text = change.partition("=")
    steps = key.strip().split(".")
    if not equals or not all(steps):
        message = f"--set {change}: write it as key=value, as in --set rounds=500"
        raise BadExperiment(source, [Mistake("", message)])
    tables: list[Any] = [raw]
    for step in steps[:-1]:
        entries = [_open_table(table, step) for table in tables]
        tables = [
            inner for entry in entries for inner in (entry if isinstance(entry, list) else [entry])
        ]
        if not all(isinstance(table, dict) for table in tables):
            message = f"--set {change}: {step} is no table, so it has no {steps[-1]}"
            raise BadExperiment(source, [Mistake("", message)])
    for table in tables:
        table[steps[-1]] = parse_literal(text.strip())


def _open_table(table: dict[str, Any], step: str) -> Any:
    """Return the table at `step`; a component given by its name alone becomes a table."""
    entry = table.setdefault(step, {})
    key_name = {"problem": "kind", "algorithm": "name", "hypergradient": "name"}.get(step)
    if key_name and isinstance(entry, str):
        table[step] = {key_name: entry}
    if key_name and isinstance(entry, list):
        table[step] = [{key_name: item} if isinstance(item, str) else item for item in entry]
    return table[step]
