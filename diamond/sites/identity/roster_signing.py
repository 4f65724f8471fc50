"""Change of the members of a federation: its authority signs a roster that names a round."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from ...core.exclusions import check_combination
from ...network import Network
from ...network.membership_epochs import Epoch, check_epoch
from ..transport.reachability import reachability_mistakes
from .certificate_authority import AUTHORITY_KEY, write_bundles
from .roster import Member, Roster, RosterEpoch, fingerprint, load_roster


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
    if not (folder / AUTHORITY_KEY).exists():
        raise FileNotFoundError(
            f"{folder} has no {AUTHORITY_KEY}: members change in the folder that `net init` made"
        )
    old, relays = load_roster(folder), relays or {}
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
    listed = [
        *old.members,
        *(
            Member(numbers[name], name, sites[name], fingerprint(key.public_key()), ())
            for name, key in keys.items()
        ),
    ]
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
