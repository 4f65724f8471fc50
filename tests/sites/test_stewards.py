"""Two of three stewards sign a roster: separately, on what they have seen, and nobody else."""

import json
import shutil
from dataclasses import replace

import pytest
from cryptography.exceptions import InvalidSignature
from federations import command, trial

from diamond.sites.identity import certificate_authority as authority
from diamond.sites.identity.certificate_holder import find_holder
from diamond.sites.identity.private_keys import BadBundle, create_request, read_request
from diamond.sites.identity.roster import (
    SIGNATURE_ALGORITHM,
    SignedRoster,
    load_bundle,
    load_roster,
    load_signed_roster,
)
from diamond.sites.identity.stewards import choose_stewards

__all__ = ["command", "trial"]
PERSONS = ["anna", "ben", "carla"]


@pytest.fixture
def persons(tmp_path):
    """The request of each steward and of a stranger, by name."""
    return {name: create_request(tmp_path / name, name) for name in [*PERSONS, "stranger"]}


def key(request):
    return request.with_name("request.key")


@pytest.fixture
def found(trial, command, persons):
    """The federation of the fixture, founded again with stewards; its folder."""
    shutil.rmtree(trial / "trial")
    named = [word for name in PERSONS for word in ("--steward", persons[name])]
    done = command("init", trial / "trial.toml", "--out", trial / "trial", *named)
    assert done.exit_code == 0 and "2 stewards must sign this roster" in " ".join(
        done.stderr.split()
    )
    return trial / "trial"


def endorse(command, folder, *words):
    done = command("endorse", folder, *words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["signatures"]


def test_two_separate_signatures_make_a_roster_valid(found, command, persons, tmp_path):
    with pytest.raises(BadBundle, match="0 of 2 signatures of stewards: collect the others by"):
        load_bundle(found / "north")
    (tmp_path / "mail").mkdir()
    for name in ("ca.pem", "roster.json", "roster.sig"):  # what a steward needs, elsewhere
        shutil.copy(found / name, tmp_path / "mail")
    assert endorse(command, tmp_path / "mail", "--key", key(persons["ben"])) == 1
    assert endorse(command, found, "--key", key(persons["anna"])) == 1
    assert endorse(command, found, "--key", key(persons["anna"])) == 1  # the same person again
    with pytest.raises(BadBundle, match="1 of 2 signatures"):
        load_bundle(found / "north")
    text = command("endorse", found, "--add", tmp_path / "mail" / "roster.sig")
    assert text.stdout == (
        "roster 1 of trial, from round 0 on: north, south, west; 2 of 2 signatures\n"
    )
    assert load_bundle(found / "north").roster == load_roster(found)
    document = json.loads((found / "roster.json").read_bytes())
    assert document["stewards"] == 2


def test_nobody_else_signs_a_roster(found, command, persons):
    refused = command("endorse", found, "--key", key(persons["stranger"]))
    assert refused.exit_code == 2 and "is not the key of a steward" in refused.stderr
    for name in PERSONS[:2]:
        endorse(command, found, "--key", key(persons[name]))
    signed, roster = load_signed_roster(found)
    ca = (found / "ca.pem").read_bytes()
    alone = authority.load_signing_key((found / "ca.key").read_bytes())
    by_authority = SignedRoster(signed.content, alone.sign(signed.content, SIGNATURE_ALGORITHM))
    with pytest.raises(BadBundle, match="signatures of the roster cannot be read"):
        by_authority.verify(ca)
    forged = SignedRoster(signed.content.replace(b"north", b"nort2"), signed.signature)
    with pytest.raises(InvalidSignature):
        forged.verify(ca)
    entries = json.loads(signed.signature)
    for damaged in ([entries[0]] * 2, [["00", "00"]] * 2, [entries[0]] * 30, [1], {}, None):
        with pytest.raises((BadBundle, InvalidSignature)):
            SignedRoster(signed.content, json.dumps(damaged).encode()).verify(ca)
    # A threshold in the roster other than that of the authority's certificate is refused.
    fewer = replace(roster, stewards=1).encode()
    (found / "roster.json").write_bytes(fewer)
    for name in PERSONS[:2]:
        endorse(command, found, "--key", key(persons[name]))
    with pytest.raises(BadBundle, match="name different numbers of stewards"):
        load_roster(found)
    (found / "roster.json").write_bytes(signed.content)
    assert endorse(command, found) == 0  # those of the other roster are none of this one
    plain = command("endorse", found / "none")
    assert plain.exit_code == 2 and "has no roster" in plain.stderr


def test_later_rosters_need_signatures_too_and_no_certificate_goes_ahead_of_them(
    found, command, persons
):
    for name in PERSONS[1:]:
        endorse(command, found, "--key", key(persons[name]))
    before = load_bundle(found / "north")
    done = command("renew", found, "--site", "north")
    assert done.exit_code == 0 and "2 stewards must sign" in " ".join(done.stderr.split())
    again = command("renew", found, "--site", "north")
    assert again.exit_code == 2 and "0 of 2 signatures" in " ".join(again.stderr.split())
    for name in PERSONS[:2]:
        endorse(command, found, "--key", key(persons[name]))
    after = load_bundle(found / "north")
    assert after.roster.version == 2
    assert find_holder(after.x509_certificate, after.roster) == after.me
    assert find_holder(after.x509_certificate, before.roster) is None  # it claims, unsigned


@pytest.mark.parametrize(("count", "threshold"), [(3, 4), (0, 1), (1, 2)])
def test_thresholds_that_cannot_be_met_are_refused(persons, count, threshold):
    keys = [read_request(path).public_key for path in list(persons.values())[:count]]
    with pytest.raises(BadBundle, match="--threshold of at most as many"):
        choose_stewards([*keys, *keys], threshold)


def test_a_federation_without_stewards_needs_none(trial, command, persons):
    refused = command("endorse", trial / "trial", "--key", key(persons["anna"]))
    assert refused.exit_code == 2 and "names no stewards: its authority" in refused.stderr
