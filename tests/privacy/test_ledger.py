"""The ledger: what is on the disk before a message is sent, and what is refused."""

import json
import os
import shutil

import numpy as np
import pytest

pytest.importorskip("dp_accounting")

from diamond.privacy.accountant import Mechanism, Release, Spending, epsilon_after, spent_epsilon
from diamond.privacy.ledger import (
    GENESIS_FILE,
    HEAD_FILE,
    KEY_FILE,
    LEDGER_FILE,
    BudgetExhausted,
    LedgerMismatch,
    LedgerTerms,
    check_earlier_run,
    open_ledger,
    read_or_create_key,
    write_genesis,
)

MECHANISM = Mechanism(5.0, (Release(1.0, 1),))
BUDGET = epsilon_after(MECHANISM, 4, 1e-5)  # of four rounds
TERMS = LedgerTerms(BUDGET, 1e-5, MECHANISM, "first")


@pytest.fixture
def bundle(tmp_path):
    """A bundle as `net init` makes it."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    write_genesis(folder, "trial", "north")
    return folder


def message(number):
    return [np.full(3, number, np.float32)]


def fill(ledger, rounds):
    for t in rounds:
        ledger.record(t, t, message(t))
    return ledger


def lines_of(folder):
    return [json.loads(line) for line in (folder / LEDGER_FILE).read_bytes().splitlines()]


@pytest.mark.quick
def test_a_ledger_adds_rounds_up_and_stops_before_it_overspends(bundle):
    ledger = fill(open_ledger(bundle, None, TERMS), range(4))
    assert ledger.spent == pytest.approx(BUDGET)
    before = (bundle / LEDGER_FILE).read_bytes()
    with pytest.raises(BudgetExhausted, match="round 4 would spend epsilon"):
        ledger.record(4, 4, message(4))
    assert (bundle / LEDGER_FILE).read_bytes() == before
    again = open_ledger(bundle, None, TERMS)
    assert again.spent == ledger.spent
    with pytest.raises(BudgetExhausted):
        again.record(4, 4, message(4))


def test_the_same_message_is_free_and_another_in_its_place_is_refused(bundle):
    fill(open_ledger(bundle, None, TERMS), range(3))
    again = open_ledger(bundle, None, TERMS)
    size = (bundle / LEDGER_FILE).stat().st_size
    fill(again, range(3))
    assert (bundle / LEDGER_FILE).stat().st_size == size
    with pytest.raises(LedgerMismatch, match="is not the one that was sent before"):
        again.record(2, 2, message(99))


def test_a_line_is_synced_before_record_returns(bundle, monkeypatch):
    ledger = open_ledger(bundle, None, TERMS)
    synced = []
    fsync = os.fsync

    def watch(descriptor):
        fsync(descriptor)
        synced.append(lines_of(bundle))

    monkeypatch.setattr(os, "fsync", watch)
    ledger.record(0, 0, message(0))
    assert synced[0][-1]["round"] == 0  # the line was in the file that was synced


def test_an_unfinished_line_was_never_sent(bundle):
    """The process dies while it writes a line: copy and head do not have that line yet."""
    ledger = fill(open_ledger(bundle, None, TERMS), range(1))
    path = bundle / LEDGER_FILE
    head = (bundle / HEAD_FILE).read_bytes()
    ledger.record(1, 1, message(1))
    path.write_bytes(path.read_bytes()[:-10])
    (bundle / HEAD_FILE).write_bytes(head)
    again = open_ledger(bundle, None, TERMS)
    assert again.rounds == 1
    again.record(1, 1, message(7))  # another message may be sent in its place
    assert open_ledger(bundle, None, TERMS).rounds == 2


def test_another_mechanism_of_the_same_run_is_refused(bundle):
    fill(open_ledger(bundle, None, TERMS), range(2))
    with pytest.raises(LedgerMismatch, match="another mechanism"):
        open_ledger(bundle, None, TERMS._replace(mechanism=Mechanism(6.0, MECHANISM.releases)))


@pytest.mark.parametrize("multiplier", [5.0, 7.0])
def test_a_run_in_any_other_folder_pays_for_all_runs_before(bundle, tmp_path, multiplier):
    """Another --out, --restart or --onward: another key of noise, and the same ledger."""
    fill(open_ledger(bundle, tmp_path / "one", TERMS), range(3))
    mechanism = Mechanism(multiplier, MECHANISM.releases)
    terms = TERMS._replace(mechanism=mechanism, run="second")
    ledger = open_ledger(bundle, tmp_path / "other", terms)
    assert ledger.spent == pytest.approx(epsilon_after(MECHANISM, 3, 1e-5))
    ledger.record(0, 0, message(5))  # the fourth round, where the first three were those of one
    both = spent_epsilon([Spending(MECHANISM, 3), Spending(mechanism, 1)], 1e-5)
    assert ledger.spent == pytest.approx(both)
    # Opened again, the ledger has the earlier run still, also where the first run goes on.
    assert open_ledger(bundle, tmp_path / "other", terms).spent == pytest.approx(both)
    assert open_ledger(bundle, tmp_path / "one", TERMS).spent == pytest.approx(both)
    if multiplier == 5.0:
        with pytest.raises(BudgetExhausted, match="this run sends nothing"):
            open_ledger(bundle, tmp_path / "third", terms._replace(run="third"))
        with pytest.raises(BudgetExhausted, match="earlier runs included"):
            open_ledger(bundle, tmp_path / "other", terms).record(1, 1, message(6))


def remove(bundle):
    (bundle / LEDGER_FILE).unlink()
    write_genesis(bundle, "trial", "north")  # as a bundle that is copied again


def shorten(bundle):
    lines = (bundle / LEDGER_FILE).read_bytes().splitlines(keepends=True)
    (bundle / LEDGER_FILE).write_bytes(b"".join(lines[:-2]))


def change_line(bundle):
    text = (bundle / LEDGER_FILE).read_text()
    (bundle / LEDGER_FILE).write_text(text.replace('"round": 1', '"round": 0'))


def empty(bundle):
    (bundle / LEDGER_FILE).write_bytes(b"")


@pytest.mark.parametrize("damage", [remove, shorten, change_line, empty])
@pytest.mark.parametrize("evidence", ["head", "copy"])
def test_a_ledger_that_is_missing_lower_or_damaged_is_refused(bundle, tmp_path, damage, evidence):
    """Either the file beside the key or the copy in the run folder is enough to notice it."""
    fill(open_ledger(bundle, tmp_path / "run", TERMS), range(2))
    if evidence == "copy":
        (bundle / HEAD_FILE).unlink()
    damage(bundle)
    folder = tmp_path / ("run" if evidence == "copy" else "other")
    with pytest.raises(LedgerMismatch, match="restore it from its newest copy"):
        open_ledger(bundle, folder, TERMS)
    shutil.copy(tmp_path / "run" / LEDGER_FILE, bundle)  # the remedy
    assert open_ledger(bundle, folder, TERMS).rounds == 2


def test_the_ledger_of_a_cloned_bundle_is_refused_in_the_folder_of_a_run(bundle, tmp_path):
    clone = tmp_path / "clone"
    shutil.copytree(bundle, clone)
    fill(open_ledger(bundle, tmp_path / "run", TERMS), range(2))
    fill(open_ledger(clone, tmp_path / "other", TERMS._replace(run="clone")), range(3))
    with pytest.raises(LedgerMismatch, match="another ledger or an older copy"):
        open_ledger(clone, tmp_path / "run", TERMS)


def test_the_last_x_of_a_run_is_sent_again_only_if_the_ledger_has_its_messages(bundle, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    write_genesis(other, "trial", "north")
    fill(open_ledger(bundle, tmp_path / "run", TERMS), range(1))
    open_ledger(other, None, TERMS)
    check_earlier_run(bundle, tmp_path / "run")
    check_earlier_run(bundle, tmp_path / "lost")
    with pytest.raises(LedgerMismatch, match="would be sent without noise"):
        check_earlier_run(other, tmp_path / "run")


def test_without_a_first_line_no_ledger_starts(bundle):
    (bundle / GENESIS_FILE).unlink()
    with pytest.raises(LedgerMismatch, match=r"is missing, so that .* is not known: restore it"):
        open_ledger(bundle, None, TERMS)
    write_genesis(bundle, "trial", "north")
    assert open_ledger(bundle, None, TERMS).spent == 0
    assert not (bundle / GENESIS_FILE).exists()
    fill(open_ledger(bundle, None, TERMS), range(1))
    write_genesis(bundle, "trial", "north")  # a renewed bundle is copied over this one
    assert open_ledger(bundle, None, TERMS).rounds == 1


def test_the_key_is_made_once_and_never_replaced_after_a_message(bundle, tmp_path):
    words = read_or_create_key(tmp_path)
    assert words.dtype == np.uint32 and words.shape == (4,)
    assert np.array_equal(words, read_or_create_key(tmp_path))
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o077 == 0
    assert not np.array_equal(words, read_or_create_key(tmp_path / "other"))
    fill(open_ledger(bundle, tmp_path, TERMS), range(1))
    (tmp_path / KEY_FILE).unlink()
    with pytest.raises(LedgerMismatch, match="is missing"):
        read_or_create_key(tmp_path)
