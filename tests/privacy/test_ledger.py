"""The ledger: what is on the disk before a message is sent, and what is refused."""

import json
import os

import numpy as np
import pytest

pytest.importorskip("dp_accounting")

from diamond.privacy.accountant import Mechanism, Release, epsilon_after
from diamond.privacy.ledger import (
    KEY_FILE,
    LEDGER_FILE,
    BudgetExhausted,
    LedgerMismatch,
    LedgerTerms,
    carry_over,
    open_ledger,
    read_or_create_key,
)

MECHANISM = Mechanism(5.0, (Release(1.0, 1),))
BUDGET = epsilon_after(MECHANISM, 4, 1e-5)  # of four rounds
TERMS = LedgerTerms(BUDGET, 1e-5, MECHANISM)


def message(number):
    return [np.full(3, number, np.float32)]


def fill(ledger, rounds):
    for t in rounds:
        ledger.record(t, t, message(t))
    return ledger


@pytest.mark.quick
def test_a_ledger_adds_rounds_up_and_stops_before_it_overspends(tmp_path):
    ledger = fill(open_ledger(tmp_path, TERMS), range(4))
    assert ledger.spent == pytest.approx(BUDGET)
    before = (tmp_path / LEDGER_FILE).read_bytes()
    with pytest.raises(BudgetExhausted, match="round 4 would spend epsilon"):
        ledger.record(4, 4, message(4))
    assert (tmp_path / LEDGER_FILE).read_bytes() == before
    again = open_ledger(tmp_path, TERMS)
    assert again.spent == ledger.spent
    with pytest.raises(BudgetExhausted):
        again.record(4, 4, message(4))


def test_the_same_message_is_free_and_another_in_its_place_is_refused(tmp_path):
    fill(open_ledger(tmp_path, TERMS), range(3))
    again = open_ledger(tmp_path, TERMS)
    size = (tmp_path / LEDGER_FILE).stat().st_size
    fill(again, range(3))
    assert (tmp_path / LEDGER_FILE).stat().st_size == size
    with pytest.raises(LedgerMismatch, match="is not the one that was sent before"):
        again.record(2, 2, message(99))


def test_a_line_is_synced_before_record_returns(tmp_path, monkeypatch):
    ledger = open_ledger(tmp_path, TERMS)
    synced = []
    fsync = os.fsync

    def watch(descriptor):
        fsync(descriptor)
        synced.append((tmp_path / LEDGER_FILE).read_text().splitlines())

    monkeypatch.setattr(os, "fsync", watch)
    ledger.record(0, 0, message(0))
    assert json.loads(synced[0][-1])["round"] == 0  # the line was in the file that was synced


def test_an_unfinished_line_was_never_sent(tmp_path):
    fill(open_ledger(tmp_path, TERMS), range(2))
    path = tmp_path / LEDGER_FILE
    data = path.read_bytes()
    path.write_bytes(data[:-10])
    again = open_ledger(tmp_path, TERMS)
    assert again.rounds == 1
    again.record(1, 1, message(7))  # another message may be sent in its place
    assert open_ledger(tmp_path, TERMS).rounds == 2


def test_damage_and_another_mechanism_are_refused(tmp_path):
    fill(open_ledger(tmp_path, TERMS), range(2))
    other = LedgerTerms(BUDGET, 1e-5, Mechanism(6.0, MECHANISM.releases))
    with pytest.raises(LedgerMismatch, match="another mechanism"):
        open_ledger(tmp_path, other)
    path = tmp_path / LEDGER_FILE
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"{}\n" + lines[2])
    with pytest.raises(LedgerMismatch, match="is damaged"):
        open_ledger(tmp_path, TERMS)


@pytest.mark.parametrize("multiplier", [5.0, 7.0])
def test_a_new_run_pays_for_the_one_that_was_set_aside(tmp_path, multiplier):
    old, new, third = tmp_path / "old", tmp_path / "new", tmp_path / "third"
    old.mkdir()
    fill(open_ledger(old, TERMS), range(3))
    carry_over(old, new)
    terms = LedgerTerms(BUDGET, 1e-5, Mechanism(multiplier, MECHANISM.releases))
    ledger = open_ledger(new, terms)
    assert ledger.spent == pytest.approx(epsilon_after(MECHANISM, 3, 1e-5))
    ledger.record(0, 0, message(5))  # the fourth round, where the first three were those of old
    assert ledger.spent > epsilon_after(MECHANISM, 3, 1e-5)
    if multiplier == 5.0:
        with pytest.raises(BudgetExhausted):
            ledger.record(1, 1, message(6))
    carry_over(new, third)
    assert open_ledger(third, TERMS).spent == pytest.approx(ledger.spent)


def test_the_key_is_made_once_and_never_replaced_after_a_message(tmp_path):
    words = read_or_create_key(tmp_path)
    assert words.dtype == np.uint32 and words.shape == (4,)
    assert np.array_equal(words, read_or_create_key(tmp_path))
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o077 == 0
    assert not np.array_equal(words, read_or_create_key(tmp_path / "other"))
    fill(open_ledger(tmp_path, TERMS), range(1))
    (tmp_path / KEY_FILE).unlink()
    with pytest.raises(LedgerMismatch, match="is missing"):
        read_or_create_key(tmp_path)
