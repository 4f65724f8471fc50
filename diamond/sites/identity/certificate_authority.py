"""Certificate authority of a federation: founds it, writes one bundle per site, changes members."""

import datetime
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ...core.exclusions import check_combination
from ...core.suggestions import did_you_mean
from ...network import Network
from ...network.membership_epochs import Epoch, check_epoch
from ...privacy.ledger import write_genesis
from ..transport.reachability import neighbours_of, reachability_mistakes
from .certificate_check import IdentityClaim, encode_claim
from .roster import (
    CA,
    CERTIFICATE,
    KEY,
    ROSTER,
    SIGNATURE,
    SIGNATURE_ALGORITHM,
    Member,
    Roster,
    RosterEpoch,
    certificate_name,
    fingerprint,
    load_roster,
    load_signing_key,
)

AUTHORITY_KEY = "ca.key"
AUTHORITY_YEARS, SITE_DAYS = 10, 365  # validity of the authority's certificate and of a site's
CLOCK_SKEW = datetime.timedelta(minutes=5)  # tolerated difference between clocks


def create_federation(
    folder: Path,
    name: str,
    sites: Mapping[str, str],
    network: Network,
    terms: Mapping[str, Any] | None = None,
    relays: Mapping[str, str] | None = None,
) -> dict[str, Path]:
    """Found a federation of `sites`, name to "host:port" in the order of the agents.

    A site with an empty address accepts no connections and dials its neighbours. `relays` are the
    addresses of relays: of sites of that name and address, or of processes without keys. `terms`,
    what the sites agree to run, are signed with the roster. Writes the authority's key, which stays
    here, one bundle per site, and a folder without keys per relay that is no site; returns the
    bundles.
    """
    relays = relays or {}
    if mistakes := reachability_mistakes(sites, network, relays):
        raise ValueError("; ".join(mistakes))
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; a federation is founded in a new folder")
    authority = ec.generate_private_key(ec.SECP256R1())
    ca = _certificate(name, authority, authority, name, days=SITE_DAYS * AUTHORITY_YEARS)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in sites]
    fingerprints = [fingerprint(key.public_key()) for key in keys]
    members = tuple(
        Member(i, site, address, fingerprints[i], neighbours_of(network, i), site in relays)
        for i, (site, address) in enumerate(sites.items())
    )
    bare_relays = {name: address for name, address in relays.items() if name not in sites}
    folder.mkdir(parents=True, exist_ok=True)
    _write_private_key(folder / AUTHORITY_KEY, authority)
    (folder / CA).write_bytes(ca.public_bytes(Encoding.PEM))
    roster = Roster(name, members, dict(terms or {}), relays=bare_relays)
    return write_bundles(folder, roster, dict(zip(sites, keys)))


def write_bundles(
    folder: Path,
    roster: Roster,
    keys: Mapping[str, ec.EllipticCurvePrivateKey],
    days: int = SITE_DAYS,
) -> dict[str, Path]:
    """Write a bundle for each member whose key is given; all get this roster."""
    authority = load_signing_key((folder / AUTHORITY_KEY).read_bytes())
    content = roster.encode()
    signature = authority.sign(content, SIGNATURE_ALGORITHM)
    bundles = {}
    names = [member.name for member in roster.members] + list(roster.relays)
    for bundle in (folder, *(folder / name for name in names)):
        bundle.mkdir(exist_ok=True)
        (bundle / CA).write_bytes((folder / CA).read_bytes())
        (bundle / ROSTER).write_bytes(content)
        (bundle / SIGNATURE).write_bytes(signature)
    for member in roster.members:
        if member.name in keys:
            bundle, key = folder / member.name, keys[member.name]
            name, federation = certificate_name(member.fingerprint), roster.federation
            claim = encode_claim(IdentityClaim(federation, member.name, roster.version))
            certificate = _certificate(name, key, authority, federation, days=days, claim=claim)
            _write_private_key(bundle / KEY, key)
            (bundle / CERTIFICATE).write_bytes(certificate.public_bytes(Encoding.PEM))
            if "privacy" in roster.terms:
                write_genesis(bundle, roster.federation, member.name)
            bundles[member.name] = bundle
    return bundles


def renew_keys(
    folder: Path, site: str | None = None, days: int = SITE_DAYS, overlap: float = 0.0
) -> dict[str, Path]:
    """Issue new keys and certificates for all sites of the federation in `folder`, or for one.

    The authority and the terms stay. The roster that lists the new keys has the next version; sites
    that have it refuse the old keys `overlap` seconds from now. Sites that do not have it yet
    accept the new certificates, which carry the name of the site and the version.
    """
    old = _load_own_roster(folder, "keys are renewed")
    names = [member.name for member in old.members]
    if site is not None and site not in names:
        raise FileNotFoundError(
            f"{old.federation} has no site {site!r}; {did_you_mean(site, names)}"
        )
    renewed = names if site is None else [site]
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in renewed}
    members = tuple(
        replace(
            member,
            fingerprint=fingerprint(keys[member.name].public_key()),
            retired=member.fingerprint if overlap > 0 else "",
            retired_until=time.time() + overlap if overlap > 0 else 0.0,
        )
        if member.name in keys
        else member
        for member in old.members
    )
    return write_bundles(folder, replace(old, members=members, version=old.version + 1), keys, days)


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    authority: ec.EllipticCurvePrivateKey,
    issuer: str,
    *,
    days: int,
    claim: str = "",
) -> x509.Certificate:
    is_authority = key is authority
    now = datetime.datetime.now(datetime.UTC)
    x509_name = lambda text: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509_name(name))
        .issuer_name(x509_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - max(CLOCK_SKEW, datetime.timedelta(days=1 - days)))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(
            x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), True
        )
    )
    if not is_authority:
        names: list[x509.GeneralName] = [x509.DNSName(name)]
        if claim:
            names.append(x509.UniformResourceIdentifier(claim))
        builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), False)
    return builder.sign(authority, hashes.SHA256())


def _write_private_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a key that only its owner can read, from the first byte on."""
    content = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(content)
    os.replace(temporary, path)


def change_members(
    folder: Path,
    sites: Mapping[str, str],
    network: Network,
    table: dict[str, Any],
    from_round: int,
    relays: Mapping[str, str] | None = None,
    rewinds: bool = False,
) -> dict[str, Path]:
    """Sign a roster with these members from a round on; return the bundles of those that join.

    Args:
        folder: folder of the authority, which `create_federation` made.
        sites: all members from then on, name to address: those that stay in their order, then
            those that join. A site that is not listed leaves.
        network: the network of these members, in the same order.
        table: the network as a table of the federation's file.
        from_round: first round with these members.
        relays: as in `create_federation`.
        rewinds: whether sites return to their checkpoint of `from_round`, which has passed, since
            a site that is not listed has gone for good, and the others wait for it.
    """
    old, relays = _load_own_roster(folder, "members change"), relays or {}
    epochs = old.all_epochs
    _check_terms(old, epochs[-1], from_round)
    every = int(old.terms.get("every", 1))
    if rewinds and from_round % every:
        raise ValueError(
            f"from_round = {from_round}: sites have checkpoints of every {every} rounds"
        )
    numbers = {old.members[i].name: i for i in epochs[-1].members}
    joining = [name for name in sites if name not in numbers]
    if former := [name for name in joining if old.by_name(name)]:
        raise ValueError(f"{former[0]} has left, and its number is taken: give it another name")
    if [*sites] != [name for name in numbers if name in sites] + joining:
        raise ValueError(
            f"sites: list those that stay in their order ({', '.join(numbers)}), then those that "
            f"join"
        )
    numbers |= {name: len(old.members) + k for k, name in enumerate(joining)}
    members = tuple(numbers[name] for name in sites)
    epoch = Epoch(from_round, network, members)
    check_epoch(epoch, epochs[-1].members)
    if mistakes := reachability_mistakes(sites, network, relays):
        raise ValueError("; ".join(mistakes))
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in joining}
    joined = {name: fingerprint(key.public_key()) for name, key in keys.items()}
    listed = [*old.members, *(Member(numbers[n], n, sites[n], f, ()) for n, f in joined.items())]
    for i in members:
        name, neighbours = listed[i].name, {*listed[i].neighbours, *epoch.neighbours(i)}
        listed[i] = replace(
            listed[i],
            address=sites[name],
            neighbours=tuple(sorted(neighbours)),
            relay=name in relays,
        )
    version = old.version + 1
    bare_relays = {name: address for name, address in relays.items() if name not in sites}
    roster = replace(
        old,
        members=tuple(listed),
        version=version,
        relays=bare_relays,
        epochs=(*epochs, RosterEpoch(from_round, version, members, dict(table), rewinds)),
    )
    return write_bundles(folder, roster, keys)


def _load_own_roster(folder: Path, change: str) -> Roster:
    """Load the roster of the federation that `folder` is the authority of."""
    if not (folder / AUTHORITY_KEY).exists():
        raise FileNotFoundError(
            f"{folder} has no {AUTHORITY_KEY}: {change} in the folder that `net init` made"
        )
    return load_roster(folder)


def _check_terms(old: Roster, last: RosterEpoch, from_round: int) -> None:
    """Refuse rounds and terms that do not allow a change."""
    rounds = int(old.terms.get("rounds", from_round + 1))
    if not last.from_round < from_round < rounds:
        raise ValueError(
            f"from_round = {from_round}: a change comes after round {last.from_round}, from which "
            f"the last roster holds, and before round {rounds}, the end"
        )
    continues = old.terms.get("missing", "wait") != "wait"
    used = {"missing='continue'": continues, "privacy": "privacy" in old.terms}
    check_combination(used | {"changing members": True}, old.federation, "sites")
