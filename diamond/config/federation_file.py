"""Federations in TOML: sites, network, algorithm and problem."""

from collections.abc import Mapping
from contextlib import suppress
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

from ..core.exclusions import find_exclusions
from ..interface.traffic import check_asynchronous_rounds, check_masked_sums
from ..network import Network
from ..records.manifest import RunOrigin
from ..sites.rounds.round_deadline import parse_deadline
from ..sites.transport.reachability import reachability_mistakes
from .agent_order import order_agents
from .components import (
    Component,
    count_agents,
    mask_network,
    read_algorithm,
    read_network,
)
from .experiment_file import read_toml
from .privacy_section import PrivacySection
from .site_problem import check_federated_problem
from .validation_errors import (
    BadExperiment,
    Mistake,
    config_error,
    nest_errors,
    translate_errors,
)

Site = Annotated[str, Field(pattern=r"^\w[\w.-]*$")]
ADDRESS = r"(\[[0-9a-fA-F:]+\]|[\w.-]+):\d{1,5}"
Address = Annotated[str, Field(pattern=rf"^{ADDRESS}$")]
MAX_BUILT = 1000  # agents of a network that is built although there are fewer sites
KEYS = {"a deadline": "deadline", "signatures": "signed"} | dict.fromkeys(
    ("missing='continue'", "missing='asynchronous'"), "missing"
)
PLACEHOLDERS = {"name": "name", "rounds": 10**6}  # of required values that are invalid
Subject = Annotated[str, Field(pattern=r"^(dns|uri|dn):.+$")]  # of a certificate
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
            "asynchronous": no site waits, and each round uses the messages that have arrived.
        deadline: Time after which a round continues without a late neighbour: seconds, or a
            multiple of the usual duration, as in "1.5 median"; needs missing = "continue".
        signed: Sign all messages, so that a site that tells different neighbours different things
            is found, with a proof, and its messages are no longer used.
        measure: "cheap" never solves the lower level for a measurement; the default is
            "exact", and "cheap" if y is large or the lower level is not convex.
        network: The network, with one agent per site.
        algorithm: The method.
        sites: Table of the sites: name = "host:port", or name = "" for a site that accepts no
            connections and dials its neighbours; {address = "host:port", relay = true} for a site
            that also relays connections between such sites.
        authorities: Table of authorities of sites' own: name = "file", root and intermediate
            certificates in PEM.
        subjects: Table by authority of the names in certificates of its sites: a table site =
            "dns:...", "uri:..." or "dn:..."; other sites have certificates of the federation.
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
    missing: Literal["wait", "continue", "asynchronous"] = "wait"  # for a neighbour
    deadline: Annotated[float | str | None, AfterValidator(_check_deadline)] = None
    measure: Literal["exact", "cheap"] | None = None  # "cheap" never solves the lower level
    signed: bool = False  # neighbours compare signed digests of messages
    network: Annotated[Component, BeforeValidator(read_network)]
    algorithm: Annotated[Component, BeforeValidator(read_algorithm)]
    sites: dict[Site, OptionalAddress]
    relays: dict[Site, Address] = {}  # sites that relay, and relays without keys
    authorities: dict[Site, str] = {}
    subjects: dict[Site, dict[Site, Subject]] = {}  # by authority and site
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
    def _order_agents(self) -> "Federation":
        """Give a network of named edges the order of the sites, unless the file states its own."""
        if "agents" not in self.network.options:
            ordered = nest_errors("network", lambda: order_agents(self.network, [*self.sites]))
            object.__setattr__(self, "network", ordered)
        return self

    @model_validator(mode="after")
    def _mask_network(self) -> "Federation":
        if self.masked is not False:
            object.__setattr__(self, "network", mask_network(self.network, self.masked))
        return self

    def mistakes(self) -> list[Mistake]:
        """List inconsistencies between the components."""
        network = self.build_network()
        messages = reachability_mistakes(self.sites, network, self.relays)
        mistakes = [Mistake("sites", message) for message in messages]
        names = [name for name in network.labels if isinstance(name, str)]
        if names and names != [*self.sites]:
            message = f"has the agents {', '.join(names)}; list the sites in this order"
            mistakes.append(Mistake("network", message))
        deadline, masks = self.deadline is not None, network.mask_limit is not None
        used = {f"missing='{self.missing}'": True, "interrupted links": network.sequence}
        used |= {"a deadline": deadline, "masked sums": masks, "signatures": self.signed}
        used |= {"authorities": bool(self.authorities)}
        mistakes += self._subject_mistakes()
        for row, pair in find_exclusions(used, "sites"):
            key = next(KEYS[name] for name in pair if name in KEYS)
            mistakes.append(Mistake(key, row.message(pair, network.name)))
        try:
            algorithm = self.algorithm.build()
            check_masked_sums(network, algorithm)
            if self.missing == "asynchronous":
                more = {name: has for name, has in network.features.items() if name not in used}
                more |= {"privacy": self.privacy is not None}
                check_asynchronous_rounds(algorithm, network.name, more)
        except ValueError as cause:
            mistakes.append(Mistake("algorithm", str(cause)))
        return mistakes

    def _subject_mistakes(self) -> list[Mistake]:
        """List names in certificates whose site or authority there is not, or which are double."""
        mistakes = [
            Mistake(f"subjects.{name}", "there is no such authority; list it in [authorities]")
            for name in self.subjects
            if name not in self.authorities
        ]
        named = [site for table in self.subjects.values() for site in table]
        mistakes += [
            Mistake("subjects", f"{site} is no site, or of several authorities")
            for site in dict.fromkeys(named)
            if site not in self.sites or named.count(site) > 1
        ]
        for name, table in self.subjects.items():
            if len({*table.values()}) < len(table):
                mistakes.append(Mistake(f"subjects.{name}", "two sites have one name"))
        return mistakes

    def read_authorities(self, folder: Path) -> dict[str, tuple[str, ...]]:
        """Read the certificates of the authorities, whose files are relative to a folder."""
        from ..sites.identity.site_authorities import read_authority

        return {
            name: read_authority(name, folder / file) for name, file in self.authorities.items()
        }

    def site_subjects(self) -> dict[str, tuple[str, str]]:
        """Return authority and name in certificates by site."""
        return {
            site: (authority, name)
            for authority, table in self.subjects.items()
            for site, name in table.items()
        }

    def build_network(self) -> Network:
        """Build the network."""
        network: Network = self.network.build()
        return network

    def terms(self) -> dict[str, Any]:
        """Return the terms that the sites agree on as plain data."""
        scalars = ("rounds", "every", "seed", "sampling", "precision", "missing")
        more = {name: getattr(self, name) for name in ("deadline", "measure", "problem")}
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
        more = {"relays": bare, "authorities": self.authorities, "subjects": self.subjects}
        tables = {name: table for name, table in more.items() if table}
        return tomli_w.dumps({"name": self.name, **self.terms(), "sites": sites, **tables})


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
    raw = read_toml(path)
    raw.setdefault("name", path.stem)
    return validate(raw, str(path))


def from_terms(
    name: str,
    terms: Mapping[str, Any],
    sites: Mapping[str, str],
    relays: Mapping[str, str] | None = None,
    *,
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
    raw, mistakes = _replace_large_network(raw)
    federation: Federation | None = None
    try:
        federation = Federation.model_validate(raw)
    except ValidationError as error:
        mistakes += translate_errors(error, raw, Federation)
        with suppress(ValidationError):  # mistakes elsewhere are found if the rest can be read
            federation = Federation.model_validate(_replace_invalid(raw, error))
    if federation is not None and not is_checked:
        mistakes += federation.mistakes()
    if mistakes or federation is None:
        raise BadExperiment(source, mistakes)
    return federation


def _replace_large_network(raw: dict[str, Any]) -> tuple[dict[str, Any], list[Mistake]]:
    """Replace a network that has too many agents for the sites, instead of building it."""
    sites, agents = raw.get("sites"), count_agents(raw.get("network"))
    if not isinstance(sites, Mapping) or agents is None or agents <= max(len(sites), MAX_BUILT):
        return raw, []
    message = f"{len(sites)} are listed, the network has {agents} agents"
    table = {"graph": "complete", "agents": max(len(sites), 2)}
    return raw | {"network": table}, [Mistake("sites", message)]


def _replace_invalid(raw: dict[str, Any], error: ValidationError) -> dict[str, Any]:
    """Replace the invalid values, so that mistakes between the others can be found as well."""
    valid: dict[str, Any] = dict(raw)
    tables = [name for name in ("sites", "relays") if isinstance(raw.get(name), Mapping)]
    for name in tables:
        valid[name] = dict(raw[name])
    for place in (e["loc"] for e in error.errors()):
        key, site = str(place[0]), place[-1] if len(place) == 2 else None
        if key in tables and site is not None:
            for name in tables:
                valid[name] |= {site: "localhost:1"} if site in valid[name] else {}
        elif key in tables:  # a name that is none
            valid[key][f"valid-{len(valid[key])}"] = valid[key].pop(place[1], "localhost:1")
        elif key in PLACEHOLDERS:
            valid[key] = PLACEHOLDERS[key]
        else:
            valid.pop(key, None)
    return valid
