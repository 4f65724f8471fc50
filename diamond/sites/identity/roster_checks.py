"""Checks of a decoded roster: the authority has signed it, by mistake or by another program."""

from dataclasses import fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, get_origin

from .private_keys import BadBundle
from .site_authorities import check_authority

if TYPE_CHECKING:
    from .roster import Member, Roster, RosterEpoch


def check_roster(roster: "Roster") -> None:
    """Raise `BadBundle` if a roster contradicts itself."""
    members, authorities = roster.members, roster.authorities
    entries: list[Member | RosterEpoch] = [*roster.members, *roster.epochs]
    for entry in entries:
        _check_types(entry)
    if [m.number for m in members] != [*range(len(members))]:
        raise BadBundle("the members of the roster are not numbered from 0")
    if any(j == m.number or not 0 <= j < len(members) for m in members for j in m.neighbours):
        raise BadBundle("the roster gives a member a neighbour that is no other member")
    _check_epochs(roster)
    for name, authority in authorities.items():
        check_authority(name, authority)
    if any(bool(m.subject) == bool(m.fingerprint) for m in members):
        raise BadBundle("the roster has a member without one key or one name in certificates")
    if any(m.subject and m.authority not in authorities for m in members):
        raise BadBundle("the roster has a member of an authority that it does not list")


def _check_types(entry: "Member | RosterEpoch") -> None:
    for item in fields(entry):
        value, kind = vars(entry)[item.name], get_origin(item.type) or item.type
        numbers = value if kind is tuple else ()
        if type(value) not in (kind, int if kind is float else kind) or any(
            type(number) is not int for number in numbers
        ):
            raise BadBundle(f"the roster has a {type(entry).__name__} without its {item.name}")


def _check_epochs(roster: "Roster") -> None:
    """Refuse epochs that no sequence of changes from the founding on leads to."""
    epochs = roster.all_epochs
    founding = replace(roster, members=roster.founders, epochs=()).all_epochs
    if epochs[:1] != founding:
        raise BadBundle("the first epoch of the roster is not that of its founding")
    if not all(epoch.members for epoch in epochs):
        raise BadBundle("the roster has rounds without members")
    for epoch in epochs:
        names = [roster.members[i].name for i in epoch.members if i < len(roster.members)]
        if len(names) > len({*names}):
            raise BadBundle(f"from round {epoch.from_round} on, two members have one name")
    known = len(roster.founders)  # members so far, those that left included
    for before, epoch in pairwise(epochs):
        joining = [i for i in epoch.members if i not in before.members]
        known += len(joining)
        is_ordered = before.from_round < epoch.from_round and before.version < epoch.version
        if not is_ordered or epoch.version > roster.version:
            raise BadBundle(f"the epoch of round {epoch.from_round} in the roster is out of order")
        stay = [i for i in before.members if i in epoch.members]
        if [*epoch.members] != stay + joining or joining != [*range(known - len(joining), known)]:
            raise BadBundle(
                f"from round {epoch.from_round} on, the roster has members that did not join"
            )
    if known != len(roster.members):
        raise BadBundle("the roster lists members that are in none of its epochs")
