"""Federations in TOML: sites, network, algorithm and problem."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from ..interface.traffic import check_masked_sums
from ..network import Network
from ..peers.deadline_setting import parse_deadline
from ..peers.reachability import reachability_mistakes
from ..records.manifest import RunOrigin
from .components import Component, mask_network, read_algorithm, read_network
from .privacy_section import PrivacySection
from .site_problem import check_federated_problem
from .validation_errors import BadExperiment, Mistake, config_error, translate_errors

Site = Annotated[str, Field(pattern=r"^\w[\w.-]*$")]
ADDRESS = r"(\[[0-9a-fA-F:]+\]|[\w.-]+):\d{1,5}"
Address = Annotated[str, Field(pattern=rf"^{ADDRESS}$")]
OptionalAddress = Annotated[str, Field(pattern=rf"^({ADDRESS})?$")]


def _check_deadline(value: float | str | None) -> float | str | None:
    try:
        parse_deadline(value)
    except ValueError as cause:
        raise config_error(str(cause)) from None
    return value


class Federation(BaseModel):
    """Settings that all sites share; the sites are agents 0, 1, ... in their order.

    Attributes:
        name: Name of the federation; by default that of the file.
        rounds: Number of rounds.
        every: Rounds between checkpoints and between measurements.
        seed: Seed of the start and of every mini-batch.
        sampling: How mini-batches are drawn, as in an experiment.
        precision: Precision of the numbers.
        missing: Handling of an absent neighbour: "wait" for it, or "continue" without it.
        deadline: Time after which a round continues without a late neighbour: seconds, or a
            multiple of the usual duration, as in "1.5 median"; needs missing = "continue".
        clip: Limit of the influence of one neighbour, in multiples of the median difference.
        signed: Sign all messages, so that a site that tells different neighbours different things
            is found, with a proof, and its messages are no longer used.
        measure: "cheap" never solves the lower level for a measurement; the default is
            "exact", and "cheap" if y is large or the lower level is not convex.
        network: The network, with one agent per site.
        algorithm: The method.
        sites: Table of the sites: name = "host:port", or name = "" for a site that accepts no
            connections and dials its neighbours; {address = "host:port", relay = true} for a site
            that also relays connections between such sites.
        relays: Table of relays without keys (`diamond net relay`): name = "host:port".
        masked: Whether a site sees only the weighted sum of its neighbours' messages, not each of
            them; a number is the largest one that a site may send. Every site needs two neighbours.
        privacy: Differential privacy of everything that a site sends, as in an experiment; every
            site keeps a ledger of it and stops before it would overspend.
        problem: Problem of the gallery on files at each site; without it, `--problem` names a
            function of your own.
    """

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True
    )

    name: Site
    rounds: Annotated[int, Field(ge=1)]
    every: Annotated[int, Field(ge=1)] = 10  # rounds between checkpoints
    seed: Annotated[int, Field(ge=0)] = 0
    sampling: Literal["blocks", "rows"] = "blocks"
    precision: Literal["float32", "float64"] = "float32"
    missing: Literal["wait", "continue"] = "wait"  # how to handle an absent neighbour
    deadline: Annotated[float | str | None, AfterValidator(_check_deadline)] = None
    clip: Annotated[float, Field(ge=1)] | None = None  # limit in multiples of the usual
    measure: Literal["exact", "cheap"] | None = None  # "cheap" never solves the lower level
    signed: bool = False  # neighbours compare signed digests of messages
    network: Annotated[Component, BeforeValidator(read_network)]
    algorithm: Annotated[Component, BeforeValidator(read_algorithm)]
    sites: dict[Site, OptionalAddress]
    relays: dict[Site, Address] = {}  # sites that relay, and relays without keys
    masked: bool | Annotated[float, Field(gt=0)] = False
    privacy: PrivacySection | None = None
    problem: Annotated[dict[str, Any] | None, BeforeValidator(check_federated_problem)] = None

    @model_validator(mode="after")
    def _protect_algorithm(self) -> "Federation":
        if self.privacy is not None:
            protected = self.privacy.protect(self.algorithm, self.rounds)
            object.__setattr__(self, "algorithm", protected)
        return self

    @model_validator(mode="after")
    def _mask_network(self) -> "Federation":
        if self.masked is not False:
            object.__setattr__(self, "network", mask_network(self.network, self.masked))
        return self

    def mistakes(self) -> list[Mistake]:
        """List inconsistencies between the components."""
        network = self.build_network()
        if network.agents != len(self.sites):
            message = f"{len(self.sites)} are listed, the network has {network.agents} agents"
            return [Mistake("sites", message)]
        messages = reachability_mistakes(self.sites, network, self.relays)
        mistakes = [Mistake("sites", message) for message in messages]
        if self.deadline is not None and self.missing != "continue":
            mistakes.append(Mistake("deadline", 'needs missing = "continue"'))
        if self.deadline is not None and network.sequence:
            message = "exchange_every and deadline exclude each other; leave out one of the two"
            mistakes.append(Mistake("deadline", message))
        if network.mask_limit is not None:
            mistakes += [Mistake(name, reason) for name, reason in self._unmaskable().items()]
        return mistakes

    def _unmaskable(self) -> dict[str, str]:
        """Return the keys that exclude masked sums, with the reason."""
        reasons = {}
        if self.missing == "continue":
            reasons["missing"] = (
                'masks cancel only in the sum of all neighbours: masked needs missing = "wait"'
            )
        if self.clip is not None:
            reasons["clip"] = "compares single messages, which masked hides; leave out one of them"
        if self.signed:
            reasons["signed"] = (
                "compares single messages, which masked hides; leave out one of them"
            )
        try:
            check_masked_sums(self.build_network(), self.algorithm.build())
        except ValueError as cause:
            reasons["algorithm"] = str(cause)
        return reasons

    def build_network(self) -> Network:
        """Build the network."""
        network: Network = self.network.build()
        return network

    def terms(self) -> dict[str, Any]:
        """Return the terms that the sites agree on as plain data."""
        scalars = ("rounds", "every", "seed", "sampling", "precision", "missing")
        more = {name: getattr(self, name) for name in ("deadline", "clip", "measure", "problem")}
        more["signed"] = self.signed or None
        if self.masked is not False:
            more["masked"] = self.masked
        if self.privacy is not None:
            more["privacy"] = self.privacy.as_table(self.rounds)
        return (
            {name: getattr(self, name) for name in scalars}
            | {name: value for name, value in more.items() if value is not None}
            | {
                "network": {"graph": self.network.name, **self.network.options},
                "algorithm": {"name": self.algorithm.name, **self.algorithm.options},
            }
        )

    def to_toml(self) -> str:
        """Format the federation in full as a file that reads as the same federation."""
        import tomli_w

        sites: dict[str, Any] = {
            name: {"address": address, "relay": True} if name in self.relays else address
            for name, address in self.sites.items()
        }
        bare = {name: address for name, address in self.relays.items() if name not in self.sites}
        relays = {"relays": bare} if bare else {}
        return tomli_w.dumps({"name": self.name, **self.terms(), "sites": sites, **relays})


def origin(federation: Federation, site: str, problem: Component, command: str) -> RunOrigin:
    """Describe the origin of a site's run for the manifest."""
    part = federation.algorithm
    return RunOrigin(
        name=site,
        experiment=federation.name,
        problem=Path(problem.name).name,
        algorithm=part.name,
        label=part.label,
        options=part.options,
        command=command,
        sources={Path(path).name: digest for path, digest in problem.sources.items()},
    )


def load(path: Path) -> Federation:
    """Load the federation in the file at `path`; raises `BadExperiment` with every mistake."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as cause:
        raise BadExperiment(str(path), [Mistake("", f"cannot be read: {cause}")]) from None
    raw.setdefault("name", path.stem)
    return validate(raw, str(path))


def from_terms(
    name: str,
    terms: Mapping[str, Any],
    sites: Mapping[str, str],
    relays: Mapping[str, str] | None = None,
    is_checked: bool = False,
) -> Federation:
    """Build the federation with these terms.

    Addresses that were checked when the members changed need not fit those of round 0.
    """
    raw = {"name": name, **terms, "sites": dict(sites), "relays": dict(relays or {})}
    return validate(raw, f"the roster of {name}", is_checked)


def _read_site_tables(raw: dict[str, Any]) -> dict[str, Any]:
    """Replace tables of sites, {address = ..., relay = true}, by addresses and relays."""
    if not isinstance(sites := raw.get("sites"), Mapping):
        return raw
    addresses, relays = dict(sites), raw.get("relays", {})
    for name, entry in sites.items():
        if isinstance(entry, Mapping) and {*entry} <= {"address", "relay"}:
            addresses[name] = entry.get("address", "")
            if entry.get("relay") is True and isinstance(relays, Mapping):
                relays = {**relays, name: addresses[name]}
    return raw | {"sites": addresses, "relays": relays}


def build_roster_network(table: Mapping[str, Any]) -> Network:
    """Build the network of a table in a roster that changes the members."""
    network: Network = read_network(dict(table)).build()
    return network


def validate(raw: Mapping[str, Any], source: str, is_checked: bool = False) -> Federation:
    """Validate the federation in `raw`; the sites are not checked if they were before."""
    raw = _read_site_tables(dict(raw))
    try:
        federation = Federation.model_validate(dict(raw))
    except ValidationError as error:
        raise BadExperiment(
            source, translate_errors(error, raw, list(Federation.model_fields))
        ) from None
    if not is_checked and (mistakes := federation.mistakes()):
        raise BadExperiment(source, mistakes)
    return federation
