"""Changes of the members of a federation in mid-run, signed by its authority."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from ...core.exclusions import check_combination
from ...network import Network
from ...network.membership_epochs import Epoch, check_epoch
from ..transport.reachability import reachability_mistakes
from .certificate_authority import load_own_roster, public_part, requested_keys, write_bundles
from .private_keys import REQUESTED_KEY, BadBundle, SiteRequest, SiteSubject, fingerprint
from .roster import Member, Roster, RosterEpoch


def change_members(
    folder: Path,
    sites: Mapping[str, str],
    network: Network,
    table: dict[str, Any],
    from_round: int,
    relays: Mapping[str, str] | None = None,
    rewinds: bool = False,
    requests: Iterable[SiteRequest] = (),
    rejoining: Collection[str] = (),
    authorities: Mapping[str, tuple[str, ...]] | None = None,
    subjects: Mapping[str, SiteSubject] | None = None,
) -> dict[str, Path]:
    """Sign a roster with these members from a round on; return the bundles of those that join.

    A site that has left may join again under its name, as a new member with a new key.

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
        requests: of sites that join with keys of their own.
        rejoining: members that leave and join again from that round on, as after the loss of their
            run folder, or with other rows.
        authorities, subjects: as in `create_federation`, of sites that join.
    """
    old, relays = load_own_roster(folder, "members change"), relays or {}
    epochs = old.all_epochs
    _check_terms(old, epochs[-1], from_round, rewinds)
    every = int(old.terms.get("every", 1))
    if rewinds and from_round % every:
        raise ValueError(
            f"from_round = {from_round}: sites have checkpoints of every {every} rounds"
        )
    numbers = {
        old.members[i].name: i for i in epochs[-1].members if old.members[i].name not in rejoining
    }
    joining = [name for name in sites if name not in numbers]
    if strange := [name for name in rejoining if name not in joining or not old.by_name(name)]:
        raise ValueError(
            f"{strange[0]} cannot rejoin: it is not in [sites], or never was a member of "
            f"{old.federation}"
        )
    if [*sites] != [name for name in numbers if name in sites] + joining:
        raise ValueError(
            f"sites: list those that stay in their order ({', '.join(numbers)}), then those that "
            f"join"
        )
    for name, number in numbers.items():
        member = old.members[number]
        given = (subjects or {}).get(name, ("", ""))
        if name in sites and given != (member.authority, member.subject):
            raise ValueError(
                f"subjects: {name} is a member by another authority or name in its certificates, "
                f"which stay; let it rejoin with the new ones"
            )
    numbers |= {name: len(old.members) + k for k, name in enumerate(joining)}
    members = tuple(numbers[name] for name in sites)
    epoch = Epoch(from_round, network, members)
    check_epoch(epoch, epochs[-1].members)
    for key in ("robust", "liars", "masked"):
        if table.get(key) != epochs[-1].network.get(key):
            raise ValueError(f"network: {key} cannot change while the run goes on")
    if mistakes := reachability_mistakes(sites, network, relays):
        raise ValueError("; ".join(mistakes))
    requested = requested_keys(requests, joining)
    make = lambda: ec.generate_private_key(ec.SECP256R1())
    named = {name: subject for name, subject in (subjects or {}).items() if name in joining}
    known = {(member.authority, member.subject) for member in old.members}
    if used := [name for name, given in named.items() if given in known]:
        raise BadBundle(
            f"the certificate of {used[0]} has the name of a member that the roster lists: have it "
            f"issued with another name"
        )
    keys = {n: None if n in named else requested.get(n) or make() for n in joining}
    joined = {name: fingerprint(public_part(key)) if key else "" for name, key in keys.items()}
    if used := [name for name, key in joined.items() if key and old.by_key(key)]:
        raise BadBundle(
            f"the request of {used[0]} has the key of a member that the roster lists: remove "
            f"{REQUESTED_KEY} at the site and run `diamond net request` again"
        )
    listed = list(old.members)
    for name, key_digest in joined.items():
        member = Member(numbers[name], name, sites[name], key_digest, ())
        authority, subject = named.get(name, ("", ""))
        listed.append(replace(member, authority=authority, subject=subject))
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
        authorities=old.authorities | dict(authorities or {}),
        epochs=(*epochs, RosterEpoch(from_round, version, members, dict(table), rewinds)),
    )
    return write_bundles(folder, roster, keys)


def _check_terms(old: Roster, last: RosterEpoch, from_round: int, rewinds: bool) -> None:
    """Refuse rounds and terms that do not allow a change."""
    rounds = int(old.terms.get("rounds", from_round + 1))
    if not last.from_round < from_round < rounds:
        raise ValueError(
            f"from_round = {from_round}: a change comes after round {last.from_round}, from which "
            f"the last roster holds, and before round {rounds}, the end"
        )
    missing = old.terms.get("missing", "wait")
    used = {f"missing='{missing}'": True, "privacy": "privacy" in old.terms}
    used |= {"changing members": True, "--rewind": rewinds}
    check_combination(used, old.federation, "sites")
