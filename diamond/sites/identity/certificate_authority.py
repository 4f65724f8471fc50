"""Certificate authority of a federation: founds it, writes one bundle per site, changes members."""

import datetime
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ...core.parsing import refuse_unreadable
from ...core.suggestions import did_you_mean
from ...network import Network
from ...privacy.ledger import write_genesis
from ...records.checkpoint_file import replace_file
from ..transport.reachability import neighbours_of, reachability_mistakes
from .certificate_holder import IdentityClaim, encode_claim
from .private_keys import (
    KEY,
    BadBundle,
    SiteRequest,
    SiteSubject,
    fingerprint,
    load_signing_key,
    read_key,
    write_private_key,
)
from .roster import (
    CA,
    CERTIFICATE,
    ROSTER,
    SIGNATURE,
    SIGNATURE_ALGORITHM,
    Member,
    Roster,
    certificate_name,
    decode_roster,
    load_roster,
)
from .stewards import (
    Stewards,
    read_signatures,
    read_stewards,
    sign_as_steward,
    valid_signatures,
    write_signatures,
)

AUTHORITY_KEY = "ca.key"
AUTHORITY_DAYS, SITE_DAYS = 3650, 365  # validity of the certificates of the authority and of a site
CLOCK_SKEW = datetime.timedelta(minutes=5)  # tolerated difference between clocks
# Keys of sites: public where the site has made its key itself.
SiteKey = ec.EllipticCurvePrivateKey | ec.EllipticCurvePublicKey


def create_federation(
    folder: Path,
    name: str,
    sites: Mapping[str, str],
    network: Network,
    terms: Mapping[str, Any] | None = None,
    relays: Mapping[str, str] | None = None,
    requests: Iterable[SiteRequest] | None = None,
    authorities: Mapping[str, tuple[str, ...]] | None = None,
    subjects: Mapping[str, SiteSubject] | None = None,
    stewards: Stewards | None = None,
) -> dict[str, Path]:
    """Found a federation of `sites`, name to "host:port" in the order of the agents.

    A site with an empty address accepts no connections and dials its neighbours. `relays` are the
    addresses of relays: of sites of that name and address, or of processes without keys. `terms`,
    what the sites agree to run, are signed with the roster. Writes the authority's key, which stays
    here, one bundle per site, and a folder without keys per relay that is no site; returns the
    bundles. With `requests`, one per site, no bundle has a key: each site has its own. Sites in
    `subjects` have certificates of `authorities`, their own, given in PEM. With `stewards`, rosters
    are valid once enough of them have signed (`endorse_roster`).
    """
    relays, subjects = relays or {}, subjects or {}
    if mistakes := reachability_mistakes(sites, network, relays):
        raise ValueError("; ".join(mistakes))
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; a federation is founded in a new folder")
    authority = ec.generate_private_key(ec.SECP256R1())
    uri = "" if stewards is None else stewards.encode()
    ca = _certificate(name, authority, authority, name, days=AUTHORITY_DAYS, uri=uri)
    keys: dict[str, SiteKey | None] = {name: None for name in subjects}
    if requests is None:
        keys |= {n: ec.generate_private_key(ec.SECP256R1()) for n in sites if n not in subjects}
    else:
        keys |= requested_keys(requests, [name for name in sites if name not in subjects])
        if missing := [name for name in sites if name not in keys]:
            raise BadBundle(
                f"no request of {', '.join(missing)}: a federation is founded with the requests of "
                f"all its sites"
            )
    members = tuple(
        Member(
            i,
            site,
            address,
            "" if (key := keys[site]) is None else fingerprint(public_part(key)),
            neighbours_of(network, i),
            site in relays,
            *(("", 0.0, *subjects[site]) if site in subjects else ()),
        )
        for i, (site, address) in enumerate(sites.items())
    )
    bare_relays = {name: address for name, address in relays.items() if name not in sites}
    folder.mkdir(parents=True, exist_ok=True)
    write_private_key(folder / AUTHORITY_KEY, authority)
    (folder / CA).write_bytes(ca.public_bytes(Encoding.PEM))
    roster = Roster(
        name,
        members,
        dict(terms or {}),
        relays=bare_relays,
        authorities=dict(authorities or {}),
        stewards=0 if stewards is None else stewards.threshold,
    )
    return write_bundles(folder, roster, keys)


def _has_own_key(bundle: Path) -> bool:
    """Return whether the site of this bundle has made its key itself."""
    return (bundle / CERTIFICATE).exists() and not (bundle / KEY).exists()


def public_part(key: SiteKey) -> ec.EllipticCurvePublicKey:
    """Return the public part of a site's key."""
    return key if isinstance(key, ec.EllipticCurvePublicKey) else key.public_key()


def requested_keys(requests: Iterable[SiteRequest], sites: Collection[str]) -> dict[str, SiteKey]:
    """Return the keys of requests by site; two of one site, or of none of `sites`, are refused."""
    keys: dict[str, SiteKey] = {}
    for request in requests:
        if request.site not in sites:
            suggestion = did_you_mean(request.site, sites)
            raise BadBundle(f"a request is of {request.site!r}, which is no site; {suggestion}")
        if request.site in keys:
            raise BadBundle(f"two requests are of {request.site}; give one of them")
        keys[request.site] = request.public_key
    return keys


def write_bundles(
    folder: Path,
    roster: Roster,
    keys: Mapping[str, SiteKey | None],
    days: int = SITE_DAYS,
) -> dict[str, Path]:
    """Write a bundle for each member in `keys`; all get this roster.

    The key None is of a site that has certificates of its own authority.
    """
    authority = load_signing_key(read_key(folder / AUTHORITY_KEY))
    content = roster.encode()
    signature = authority.sign(content, SIGNATURE_ALGORITHM)
    if roster.stewards:
        signature = write_signatures({})
    bundles = {}
    names = [member.name for member in roster.members] + list(roster.relays)
    for bundle in (folder, *(folder / name for name in names)):
        bundle.mkdir(exist_ok=True)
        (bundle / CA).write_bytes((folder / CA).read_bytes())
        (bundle / ROSTER).write_bytes(content)
        (bundle / SIGNATURE).write_bytes(signature)
    for member in roster.members:
        if member.name in keys and not roster.is_superseded(member):
            bundle, key = folder / member.name, keys[member.name]
            bundles[member.name] = bundle
            if "privacy" in roster.terms:
                write_genesis(bundle, roster.federation, member.name)
            if key is None:
                continue
            name, federation = certificate_name(member.fingerprint), roster.federation
            number = member.number if names.count(member.name) > 1 else None
            claim = encode_claim(IdentityClaim(federation, member.name, roster.version, number))
            certificate = _certificate(name, key, authority, federation, days=days, uri=claim)
            (bundle / KEY).unlink(missing_ok=True)
            if isinstance(key, ec.EllipticCurvePrivateKey):
                write_private_key(bundle / KEY, key)
            (bundle / CERTIFICATE).write_bytes(certificate.public_bytes(Encoding.PEM))
    return bundles


def renew_keys(
    folder: Path,
    site: str | None = None,
    days: int = SITE_DAYS,
    overlap: float = 0.0,
    requests: Iterable[SiteRequest] | None = None,
) -> dict[str, Path]:
    """Issue certificates of new keys for all sites of the federation in `folder`, or for some.

    New keys are those of `requests`. Without requests they are made here, for one `site` or for
    all, unless these sites have made their keys themselves.

    The authority and the terms stay. The roster that lists the new keys has the next version; sites
    that have it refuse the old keys `overlap` seconds from now. Sites that do not have it yet
    accept the new certificates, which carry the name of the site and the version.
    """
    old = load_own_roster(folder, "keys are renewed")
    names = [*dict.fromkeys(member.name for member in old.members if not member.subject)]
    member = old.by_name(site or "")
    if member is not None and member.subject:
        raise BadBundle(
            f"the certificates of {site} come from {member.authority}: renew them there, and copy "
            f"{CERTIFICATE} and {KEY} into the bundle"
        )
    if site is not None and site not in names:
        raise FileNotFoundError(
            f"{old.federation} has no site {site!r}; {did_you_mean(site, names)}"
        )
    renewed = names if site is None else [site]
    if requests is not None:
        keys = requested_keys(requests, names)
    elif own := [name for name in renewed if _has_own_key(folder / name)]:
        raise BadBundle(
            f"{', '.join(own)}: the key was made at the site, and so is the next one: run `diamond "
            f"net request` there, and `diamond net sign {folder} FILE` here"
        )
    else:
        keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in renewed}
    members = tuple(
        replace(
            member,
            fingerprint=fingerprint(public_part(keys[member.name])),
            retired=member.fingerprint if overlap > 0 else "",
            retired_until=time.time() + overlap if overlap > 0 else 0.0,
        )
        if member.name in keys and not old.is_superseded(member)
        else member
        for member in old.members
    )
    return write_bundles(folder, replace(old, members=members, version=old.version + 1), keys, days)


def _certificate(
    name: str,
    key: SiteKey,
    authority: ec.EllipticCurvePrivateKey,
    issuer: str,
    *,
    days: int,
    uri: str = "",
) -> x509.Certificate:
    is_authority = key is authority
    now = datetime.datetime.now(datetime.UTC)
    x509_name = lambda text: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509_name(name))
        .issuer_name(x509_name(issuer))
        .public_key(public_part(key))
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - max(CLOCK_SKEW, datetime.timedelta(days=1 - days)))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(
            x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), True
        )
    )
    names: list[x509.GeneralName] = [] if is_authority else [x509.DNSName(name)]
    names += [x509.UniformResourceIdentifier(uri)] if uri else []
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
    if not is_authority:
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), False)
    return builder.sign(authority, hashes.SHA256())


def endorse_roster(folder: Path, key: Path | None, others: Iterable[Path] = ()) -> Roster:
    """Add a steward's signature, and those in files, to the roster in a folder; return the roster.

    The signatures are also written into the folders in it that have the same roster. A steward
    needs ca.pem, roster.json and roster.sig only.
    """
    with refuse_unreadable(BadBundle, f"{folder} has no roster"):
        content = (folder / ROSTER).read_bytes()
        stewards = read_stewards(x509.load_pem_x509_certificate((folder / CA).read_bytes()))
    if stewards is None:
        raise BadBundle(f"{folder / CA} names no stewards: its authority signs rosters alone")
    signatures = read_signatures((folder / SIGNATURE).read_bytes())
    for path in others:
        signatures |= read_signatures(path.read_bytes())
    roster = decode_roster(content)
    if key is not None:
        signatures |= sign_as_steward(stewards, content, key)
    signatures = valid_signatures(stewards, content, signatures)
    for copy in (folder / ROSTER, *folder.glob(f"*/{ROSTER}")):
        if copy.read_bytes() == content:
            replace_file(copy.with_name(SIGNATURE), write_signatures(signatures))
    return roster


def load_own_roster(folder: Path, change: str) -> Roster:
    """Load the roster of the federation that `folder` is the authority of."""
    if not (folder / AUTHORITY_KEY).exists():
        raise FileNotFoundError(
            f"{folder} has no {AUTHORITY_KEY}: {change} in the folder that `net init` made"
        )
    return load_roster(folder)
