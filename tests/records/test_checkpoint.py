"""Checkpoints: whole or not there, checked bit by bit, the two newest kept."""

import json
import os

import numpy as np
import pytest

from diamond.records import checkpoint_file

pytestmark = pytest.mark.quick

ARRAYS = {
    ".t": np.int32(7),
    ".state.x['w']": np.arange(6000, dtype=np.float32).reshape(3, 2000),
    ".spent": np.full((3, 2, 4), 2**32 - 1, np.uint32),
    ".state.y": np.array([np.inf, -0.0, np.nan, 1e-300]),
}
NOTES = {"seconds": 0.1 + 0.2, "found": {"lipschitz": {"value": 1 / 3}}}
PAGE = 4096


def save_rounds(folder, *rounds):
    for round in rounds:
        checkpoint_file.save(folder, round, ARRAYS | {".t": np.int32(round)}, NOTES)


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_is_saved_is_loaded_to_the_bit(tmp_path):
    save_rounds(tmp_path, 7)
    loaded = checkpoint_file.load(tmp_path, 7)
    assert loaded.round == 7 and loaded.notes == NOTES
    assert set(loaded.arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert loaded.arrays[name].dtype == array.dtype
        assert loaded.arrays[name].shape == np.shape(array)
        assert loaded.arrays[name].tobytes() == array.tobytes()


def test_the_two_newest_are_kept_and_nothing_else(tmp_path):
    save_rounds(tmp_path, 5, 10)
    (tmp_path / "0000000007.safetensors").write_bytes(b"left by a killed writer")
    (tmp_path / "0000000012.json.tmp").write_bytes(b"{")
    save_rounds(tmp_path, 100)
    assert checkpoint_file.saved_rounds(tmp_path) == [10, 100]
    assert files(tmp_path) == [
        f"{round:010d}.{kind}" for round in (10, 100) for kind in ("json", "safetensors")
    ]


def is_complete(folder, round):
    try:
        checkpoint_file.load(folder, round)
        return True
    except checkpoint_file.DamagedCheckpoint:
        return False


@pytest.mark.wide
@pytest.mark.parametrize("kind", ["safetensors", "json"])
def test_torn_at_any_page_and_flipped_in_any_bit_it_is_refused(tmp_path, kind):
    save_rounds(tmp_path, 3)
    path = tmp_path / f"0000000003.{kind}"
    content = path.read_bytes()
    assert len(content) > (5 if kind == "safetensors" else 0) * PAGE
    cuts = [*range(0, len(content), PAGE), 1, len(content) - 1]
    for cut in cuts:
        path.write_bytes(content[:cut])
        assert not is_complete(tmp_path, 3), cut
        path.write_bytes(content[:cut] + b"\0" * (len(content) - cut))  # a hole, as after a crash
        assert not is_complete(tmp_path, 3) or content[cut:].strip(b"\0") == b"", cut
    random = np.random.default_rng(0)
    for place in random.integers(0, len(content), 200):
        flipped = bytearray(content)
        flipped[place] ^= 1 << int(random.integers(8))
        path.write_bytes(flipped)
        assert not is_complete(tmp_path, 3) or json_alike(flipped, content), place
    path.write_bytes(content)
    assert is_complete(tmp_path, 3)


def json_alike(a, b):
    """A flip that leaves the meaning of the JSON alone, such as 1E5 for 1e5."""
    try:
        return json.loads(bytes(a)) == json.loads(b)
    except ValueError:
        return False


def test_one_without_its_other_half_is_refused(tmp_path):
    for kind in ("safetensors", "json"):
        save_rounds(tmp_path, 3)
        (tmp_path / f"0000000003.{kind}").unlink()
        with pytest.raises(
            checkpoint_file.DamagedCheckpoint, match="0000000003: not a whole checkpoint"
        ):
            checkpoint_file.load(tmp_path, 3)


def test_arrays_of_another_checkpoint_are_refused(tmp_path):
    save_rounds(tmp_path, 3, 4)
    os.replace(tmp_path / "0000000003.safetensors", tmp_path / "0000000004.safetensors")
    with pytest.raises(
        checkpoint_file.DamagedCheckpoint, match=r"its digest is not the one in 0000000004\.json"
    ):
        checkpoint_file.load(tmp_path, 4)


def test_a_file_is_replaced_at_once_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "manifest.json"
    checkpoint_file.replace_file(path, b"old")

    def power_cut(*_):
        raise OSError("no more")

    monkeypatch.setattr(os, "replace", power_cut)
    with pytest.raises(OSError, match="no more"):
        checkpoint_file.replace_file(path, b"new and longer")
    assert path.read_bytes() == b"old"
    monkeypatch.undo()
    checkpoint_file.replace_file(path, b"new and longer")
    assert path.read_bytes() == b"new and longer"
    assert files(tmp_path) == ["manifest.json"]
