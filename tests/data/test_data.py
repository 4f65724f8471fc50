"""Readers, lookup and download: what is right is read exactly, what is wrong is refused by name."""

import bz2
import functools
import gzip
import hashlib
import http.server
import io
import os
import struct
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from diamond import data
from diamond.data import cifar, download, fetch, libsvm_files, standard_datasets
from diamond.data.dataset import DataError
from diamond.data.download import DataFile

REPOSITORY = Path(__file__).parents[2]
SHARED = Path(os.environ.get("DIAMOND_DATA") or REPOSITORY.parent / "shared" / "data")


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """Keep the tests off the user's own folders, cache and network."""
    for name in ("DIAMOND_DATA", "DIAMOND_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(fetch, "cache", lambda: tmp_path / "cache")
    unreachable = dict.fromkeys(download.SOURCES, ("http://127.0.0.1:9/",))
    monkeypatch.setattr(download, "SOURCES", unreachable)


def shared(name: str) -> Path:
    if not (SHARED / name).is_dir():
        pytest.skip(f"no {name} in {SHARED}; name its folder by DIAMOND_DATA")
    return SHARED


def sha(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def test_import_is_light():
    # A stub stands for the parent package, which may well import jax.
    code = (
        "import sys, types; parent = types.ModuleType('diamond'); "
        f"parent.__path__ = [{str(REPOSITORY / 'diamond')!r}]; sys.modules['diamond'] = parent; "
        "import diamond.data; heavy = {'jax', 'pooch', 'PIL', 'matplotlib', 'platformdirs'}; "
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- the real datasets ---


@pytest.mark.wide
def test_mnist_statistics():
    mnist = data.mnist(shared("mnist"))
    rows, labels = mnist.train
    assert rows.shape == (60_000, 784) and rows.dtype == np.float32 and labels.dtype == np.int32
    assert np.bincount(labels).tolist() == [
        *(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
    ]
    assert mnist.test is not None and np.bincount(mnist.test[1]).tolist() == [
        *(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009)
    ]
    assert rows.mean(dtype=float) == pytest.approx(0.1307, abs=5e-5)
    assert rows.std(dtype=float) == pytest.approx(0.3081, abs=5e-5)
    assert mnist.shape == (28, 28) and len(mnist.classes) == 10


@pytest.mark.wide
def test_cifar10_statistics():
    pytest.importorskip("PIL")
    cifar10 = data.cifar10(shared("cifar10"))
    assert cifar10.test is not None
    assert cifar10.train[0].shape == (50_000, 3072) and cifar10.test[0].shape == (10_000, 3072)
    assert np.bincount(cifar10.train[1]).tolist() == [5000] * 10
    assert np.bincount(cifar10.test[1]).tolist() == [1000] * 10
    # The official files, rebuilt from what the caller gets, have their published digests.
    last = tuple(array[-10_000:] for array in cifar10.train)
    for (rows, labels), file in ((last, cifar.BATCHES[4]), (cifar10.test, cifar.BATCHES[5])):
        raw = official(np.rint(rows * 255).astype(np.uint8), labels)
        assert "md5:" + hashlib.md5(raw).hexdigest() == file.digest


@pytest.mark.wide
@pytest.mark.parametrize("file", [0, 1])
def test_a9a_against_scikit_learn(file):
    sklearn = pytest.importorskip("sklearn.datasets")
    folder = shared("a9a")
    a9a = data.a9a(folder)
    rows, labels = (a9a.train, a9a.test)[file]
    expected, marks = sklearn.load_svmlight_file(
        folder / "a9a" / standard_datasets.A9A[file].name, n_features=123
    )
    assert np.array_equal(rows, expected.toarray()) and np.array_equal(labels * 2 - 1, marks)
    assert rows.shape == ((32_561, 123), (16_281, 123))[file]
    assert labels.sum() == (7841, 3846)[file] and rows.sum() == (451_592, 225_731)[file]


@pytest.mark.wide
def test_ijcnn1_statistics():
    ijcnn1 = data.ijcnn1(shared("ijcnn1"))
    rows, labels = ijcnn1.train
    assert rows.shape == (49_990, 22) and labels.sum() == 4853 and ijcnn1.test is None
    assert (rows[:, :10].sum(1) == 1).all()
    assert rows[:, 10:].min() == pytest.approx(-0.931, abs=1e-3)
    assert rows[:, 10:].max() == pytest.approx(0.904, abs=1e-3)


def test_environment_names_the_folder(monkeypatch):
    monkeypatch.setenv("DIAMOND_DATA", str(shared("a9a")))
    assert data.a9a().files == (SHARED / "a9a" / "a9a", SHARED / "a9a" / "a9a.t")


def test_digits():
    digits = data.digits()
    rows, labels = digits.train
    assert rows.shape == (1797, 64) and rows.dtype == np.float32 and labels.dtype == np.int32
    assert rows.min() == 0 and rows.max() == 1
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    source = pytest.importorskip("sklearn.datasets").load_digits()
    assert np.array_equal(rows * 16, source.data) and np.array_equal(labels, source.target)


# --- idx ---


def idx_file(path: Path, array: np.ndarray, magic: int | None = None) -> Path:
    head = struct.pack(f">{1 + array.ndim}I", magic or 0x800 + array.ndim, *array.shape)
    path.write_bytes(gzip.compress(head + array.tobytes()))
    return path


def test_idx_reads_back(tmp_path):
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    labels = np.array([9, 0], np.uint8)
    paths = idx_file(tmp_path / "images.gz", images), idx_file(tmp_path / "labels.gz", labels)
    found = standard_datasets.read_images_and_labels(*paths, 10)
    assert np.array_equal(found[0], images) and np.array_equal(found[1], labels)


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (lambda raw: raw[:-9], "damaged gzip"),
        (lambda raw: b"not gzip", "damaged gzip"),
        (lambda raw: b"", "shorter than an idx header"),
        (lambda raw: raw[:20] + bytes([raw[20] ^ 255]) + raw[21:], "damaged gzip"),
        (lambda raw: gzip.compress(gzip.decompress(raw)[:-1]), "1 bytes of data"),
        (lambda raw: gzip.compress(gzip.decompress(raw) + b"x"), "3 bytes of data"),
        (lambda raw: gzip.compress(b"\0\0"), "shorter than an idx header"),
        (lambda raw: gzip.compress(b"\0\0\x0d\1" + bytes(8)), "magic number"),
    ],
)
def test_idx_refuses(tmp_path, damage, cause):
    path = idx_file(tmp_path / "labels.gz", np.array([1, 2], np.uint8))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=cause) as refusal:
        standard_datasets.read_idx(path, 1)
    assert "labels.gz" in str(refusal.value)


def test_idx_refuses_pairs(tmp_path):
    images = idx_file(tmp_path / "images.gz", np.zeros((2, 3, 3), np.uint8))
    with pytest.raises(DataError, match=r"2 images .* 3 labels"):
        standard_datasets.read_images_and_labels(
            images, idx_file(tmp_path / "three.gz", np.zeros(3, np.uint8)), 10
        )
    with pytest.raises(DataError, match="row 2: label 10"):
        standard_datasets.read_images_and_labels(
            images, idx_file(tmp_path / "ten.gz", np.array([0, 10], np.uint8)), 10
        )


# --- CIFAR-10 ---


def official(rows: np.ndarray, labels: np.ndarray) -> bytes:
    """Write rows (height, width, colour) in the official layout: label, red, green, blue."""
    planes = rows.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2).reshape(len(rows), 3072)
    return np.concatenate([labels[:, None].astype(np.uint8), planes], axis=1).tobytes()


@pytest.fixture
def fake_cifar(monkeypatch, tmp_path):
    """Six official files of 4 random images, their digests in place of the published ones."""
    random = np.random.default_rng(0)
    monkeypatch.setattr(cifar, "PART", 4)
    rows = random.integers(0, 256, (6, 4, 3072), dtype=np.uint8)
    labels = random.integers(0, 10, (6, 4), dtype=np.uint8)
    raws = [official(*part) for part in zip(rows, labels, strict=True)]
    names = [file.name for file in cifar.BATCHES]
    files = tuple(DataFile(name, sha(raw)) for name, raw in zip(names, raws, strict=True))
    monkeypatch.setattr(cifar, "BATCHES", files)
    contents = {cifar.FOLDER + name: raw for name, raw in zip(names, raws, strict=True)}
    return rows, labels, contents


def write(folder: Path, contents: dict[str, bytes]) -> None:
    for name, raw in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(raw)


def packed(contents: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as box:
        for name, raw in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(raw)
            box.addfile(entry, io.BytesIO(raw))
    return stream.getvalue()


@pytest.mark.parametrize("layout", ["below", "beside", "cifar10", "archive"])
def test_cifar10_official_reads_back(fake_cifar, monkeypatch, tmp_path, layout):
    rows, labels, contents = fake_cifar
    if layout == "archive":
        raw = packed(contents)
        monkeypatch.setattr(cifar, "ARCHIVE", (DataFile("cifar-10-binary.tar.gz", sha(raw)),))
        write(tmp_path, {"cifar-10-binary.tar.gz": raw})
    else:
        write(tmp_path / layout, contents)
    folder = {"below": "below", "beside": "beside/cifar-10-batches-bin"}.get(layout, ".")
    found = data.cifar10(tmp_path / folder)
    assert np.array_equal(np.rint(found.train[0] * 255), rows[:5].reshape(20, 3072))
    assert found.test is not None
    assert np.array_equal(found.test[0], rows[5] / np.float32(255))
    assert np.array_equal(found.train[1], labels[:5].ravel())
    assert np.array_equal(found.test[1], labels[5])


def test_cifar10_refuses(fake_cifar, monkeypatch, tmp_path):
    contents = fake_cifar[2]
    name, raw = next(iter(contents.items()))
    with pytest.raises(DataError, match=r"part.bin: 12291 bytes, not 4 records of 3073"):
        cifar.parse_records(raw[:-1], Path("part.bin"))
    with pytest.raises(DataError, match=r"part.bin, row 1: label 10"):
        cifar.parse_records(b"\x0a" + raw[1:], Path("part.bin"))
    write(tmp_path, contents | {name: raw[:-1] + b"?"})
    with pytest.raises(DataError, match=r"data_batch_1.bin: sha256 is"):
        data.cifar10(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(DataError, match=r"data_batch_1.bin missing"):
        data.cifar10(tmp_path)


def test_cifar10_archive_refuses(fake_cifar, tmp_path):
    path = tmp_path / "cifar.tar.gz"
    whole = packed(fake_cifar[2])
    for raw, cause in (
        (packed({}), "no cifar-10-batches-bin/data_batch_1.bin inside"),
        (whole[: len(whole) // 2], "damaged archive"),
        (b"not an archive", "damaged archive"),
    ):
        path.write_bytes(raw)
        with pytest.raises(DataError, match=cause):
            list(cifar.read_archive(path))


def test_cifar10_tiles(tmp_path, monkeypatch):
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "part.webp"
    image.new("RGB", (32, 32)).save(path, lossless=True)
    with pytest.raises(DataError, match=r"RGB \(32, 32\), not RGB \(3200, 3200\)"):
        cifar.read_picture(path)
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(DataError, match="not a whole WebP picture"):
        cifar.read_picture(path)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match=r"needs Pillow: pip install diamond-bilevel\[data\]"):
        cifar.read_picture(path)


def test_cifar10_label_vector_refuses(tmp_path):
    path = tmp_path / "labels.npy"
    for array, cause in (
        (np.zeros(3, np.uint8), r"uint8 \(3,\), not uint8 \(2,\)"),
        (np.zeros(2, np.int64), "int64"),
        (np.array([0, 10], np.uint8), "row 2: label 10"),
        (np.array([None, None]), "not a whole npy array"),
    ):
        np.save(path, array)
        with pytest.raises(DataError, match=cause):
            cifar.read_labels(path, 2)


# --- LIBSVM ---


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2"])
def test_libsvm_reads(tmp_path, suffix):
    path = tmp_path / f"rows{suffix}"
    pack = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}[suffix]
    path.write_bytes(pack(b"+1 1:0.5 3:-2e1 \r\n-1\n3.0\t2:7\n\n"))
    found = data.libsvm(path)
    assert found.train[0].tolist() == [[0.5, 0, -20], [0, 0, 0], [0, 7, 0]]
    assert found.train[1].tolist() == [1, 0, 2] and found.classes == ("-1", "1", "3")
    assert data.libsvm(path, features=5).shape == (5,)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("1 0:1", "'0:1': indices count from 1"),
        ("1 -1:1", "'-1:1': an index must be a whole number"),
        ("1 1.5:1", "'1.5:1': an index must be a whole number"),
        ("1 1e1:1", "'1e1:1': an index must be a whole number"),
        ("1 2:1 2:1", "'2:1': indices must ascend"),
        ("1 3:1 2:1", "'2:1': indices must ascend"),
        ("1 5:1", "'5:1': index above the declared width of 4 features"),
        ("1 1:nan", "'1:nan': not a label or index:value of finite numbers"),
        ("1 1:inf", "'1:inf': not a label or index:value of finite numbers"),
        ("1 1:1e99", "'1:1e99': the value is not finite"),
        ("1 1:1-2", "'1:1-2': not a number"),
        ("1 1:", "'1:': index or value is missing"),
        ("1 :1", "':1': index or value is missing"),
        ("1 1: 2", "'2': not of the form index:value"),
        ("1 1:2:3", "'1:2:3': not of the form index:value"),
        ("1 7", "'7': not of the form index:value"),
        ("1:1 2:1", "'1:1': a line must begin with its label"),
        ("0.5 1:1", "'0.5': the label must be a whole number"),
        ("1e400 1:1", "'1e400': the label must be a whole number"),
        ("cat 1:1", "'cat': not a label"),
        ("1 1:1 # comment", "'#': not a label"),
        ("1 qid:3 1:1", "'qid:3': not a label"),
        ("", "empty"),
    ],
)
def test_libsvm_refuses(tmp_path, line, cause):
    path = tmp_path / "rows.txt"
    path.write_text(f"1 1:1 4:2\n{line}\n1 1:1\n")
    with pytest.raises(DataError) as refusal:
        data.libsvm(path, features=4)
    assert str(refusal.value).startswith(f"{path}, line 2: {cause}")


def test_libsvm_refuses_files(tmp_path, monkeypatch):
    whole = bz2.compress(b"1 1:1\n" * 1000)
    for name, raw, cause in (
        ("none", None, "no such file"),
        ("blank", b" \n\n", "no rows"),
        ("cut.bz2", whole[:-5], "cannot be read"),
        ("text.bz2", b"1 1:1\n", "cannot be read"),
        ("text.gz", b"1 1:1\n", "cannot be read"),
        ("wide", b"1 99999999999:1\n", "above 4294967296; take fewer"),
    ):
        if raw is not None:
            (tmp_path / name).write_bytes(raw)
        with pytest.raises(DataError, match=cause):
            data.libsvm(tmp_path / name)
    (tmp_path / "labels").write_bytes(b"1 1:1\n2 1:1\n")
    with pytest.raises(DataError, match="row 2: label 2 is none of -1, 1"):
        libsvm_files.read_encoded(tmp_path / "labels", 1, (-1, 1))


FUZZ = st.binary(max_size=60) | st.text('01289+-.eE:, \t\r\n"ab_#', max_size=60).map(str.encode)


@pytest.mark.wide
@settings(max_examples=300, deadline=None)
@given(FUZZ)
@example(b":")
@example(b"1 :")
@example(b"\n1")
@example(b"x,y\n1_0,2")
def test_readers_never_fail_otherwise(tmp_path_factory, raw):
    path = tmp_path_factory.getbasetemp() / "fuzz"
    path.write_bytes(raw)
    for read in (data.libsvm, data.npz, functools.partial(data.csv, label="a")):
        try:
            found = read(path)
        except DataError as refusal:
            assert str(path) in str(refusal)
        else:
            assert np.isfinite(found.train[0]).all() and len(found.train[0]) == len(found.train[1])


# --- csv and npz ---


def table(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_csv_reads(tmp_path):
    path = table(tmp_path / "a.csv", "age,ward,ill,dose\n30,north,yes,0.5\n41,south,no,1e1\n")
    found = data.csv(path, label="ill", site="ward")
    assert found.train[0].tolist() == [[30, 0.5], [41, 10]] and found.train[1].tolist() == [1, 0]
    assert found.classes == ("no", "yes") and found.sites is not None
    assert found.sites.tolist() == ["north", "south"]
    numbers = data.csv(table(tmp_path / "b.csv", "x,y\n1,10\n2,9.0\n3,-1\n"), label="y")
    assert numbers.classes == ("-1", "9", "10") and numbers.train[1].tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("x,y\n1,0\nred,1\n", "row 3, column 'x': 'red' is not a finite number"),
        ("x,y\nnan,0\n,1\n", "row 2, column 'x': 'nan' is a missing value; row 3, .*: ''"),
        ("x,y\n1e39,0\n", "row 2, column 'x': '1e39'"),
        ("x,y\n1_0,0\n", "row 2, column 'x': '1_0'"),
        ("x,y\n1,\n", "row 2, column 'y': empty"),
        ("x,y\n1,0.5\n", "row 2, column 'y': label 0.5 is not a whole number"),
        ("x,y\n1,0,4\n", "row 2: 3 cells under 2 columns"),
        ("x,z\n1,0\n", "no column 'y'; there are x, z"),
        ("x,x,y\n1,0,1\n", "empty or repeated name"),
        ("y\n1\n", "no feature column"),
        ("x,y\n", "no rows below the header"),
        ("", "no rows below the header"),
        ('x,y\n"1,0\n', "not a readable utf-8 csv"),
        ("x,y\n" + "?,0\n" * 12, "row 11, column 'x': '\\?' is a missing value and 2 more; drop"),
    ],
)
def test_csv_refuses(tmp_path, text, cause):
    with pytest.raises(DataError, match=cause):
        data.csv(table(tmp_path / "a.csv", text), label="y")


def test_csv_refuses_files(tmp_path):
    with pytest.raises(DataError, match="not a readable"):
        data.csv(tmp_path / "none.csv", label="y")
    (tmp_path / "latin.csv").write_bytes(b"x,y\n1,\xe9\n")
    with pytest.raises(DataError, match="not a readable utf-8"):
        data.csv(tmp_path / "latin.csv", label="y")


def test_npz_reads(tmp_path):
    images = np.arange(24).reshape(4, 2, 3)
    arrays = {"features": images, "labels": [5, 3, 5, 7], "sites": ["b", "a", "b", "a"]}
    np.savez(tmp_path / "a.npz", **arrays, test_features=images[:1], test_labels=[7])
    found = data.npz(tmp_path / "a.npz")
    assert np.array_equal(found.train[0], images.reshape(4, 6)) and found.shape == (2, 3)
    assert found.train[1].tolist() == [1, 0, 1, 2] and found.classes == ("3", "5", "7")
    assert found.test is not None and found.test[1].tolist() == [2]
    assert found.sites is not None and found.sites.tolist() == ["b", "a", "b", "a"]


GOOD = {"features": np.ones((2, 3)), "labels": np.array([0, 1])}


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"features": np.array([[1, np.nan], [1, 2]])}, "row 1, column 2: nan is not finite"),
        ({"features": np.ones(2)}, "give real numbers, one row an example"),
        ({"features": np.ones((2, 3), complex)}, "complex128"),
        ({"features": np.array([[None], [1]])}, "plain arrays"),
        ({"labels": np.array([0, 1, 1])}, "for 2 rows"),
        ({"labels": np.array([0.5, 1])}, "labels float64"),
        ({"test_features": np.ones((1, 3))}, "holds features, labels, test_features"),
        ({"other": np.ones(1)}, "holds features, labels, other"),
        ({"test_features": np.ones((1, 3)), "test_labels": [2]}, "row 1: label 2 is none of 0, 1"),
        ({"test_features": np.ones((1, 3)), "test_labels": ["2"]}, "both be numbers or both names"),
        ({"test_features": np.ones((1, 4)), "test_labels": [0]}, "give both the same"),
        ({"sites": np.array(["a"])}, "for 2 rows"),
    ],
)
def test_npz_refuses(tmp_path, change, cause):
    np.savez(tmp_path / "a.npz", **(GOOD | change))
    with pytest.raises(DataError, match=cause):
        data.npz(tmp_path / "a.npz")


def test_npz_refuses_files(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, **GOOD)
    whole = path.read_bytes()
    np.save(tmp_path / "bare.npy", GOOD["features"])
    for raw in (whole[:-30], whole[:70] + b"??" + whole[72:], b"text", b"", None):
        path.write_bytes((tmp_path / "bare.npy").read_bytes() if raw is None else raw)
        with pytest.raises(DataError, match="not a whole npz file"):
            data.npz(path)


# --- lookup and download ---

SMALL = {"a9a": b"+1 1:1 123:1\n-1 2:1\n", "a9a.t": b"-1 3:1\n"}


@pytest.fixture
def small_a9a(monkeypatch):
    monkeypatch.setattr(
        standard_datasets, "A9A", tuple(DataFile(name, sha(raw)) for name, raw in SMALL.items())
    )


@pytest.fixture
def server(monkeypatch, tmp_path):
    """A public source on this machine; yields its folder and the paths it was asked for."""
    asked: list[str] = []

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format, *args):
            asked.append(self.path)

    (tmp_path / "public").mkdir()
    handler = functools.partial(Quiet, directory=tmp_path / "public")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as service:
        thread = threading.Thread(target=service.serve_forever)
        thread.start()
        base = f"http://127.0.0.1:{service.server_port}/"
        monkeypatch.setattr(download, "SOURCES", {"a9a": ("http://127.0.0.1:9/", base)})
        yield tmp_path / "public", asked
        service.shutdown()
        thread.join()


@pytest.mark.parametrize("below", ["", "a9a"])
def test_lookup_finds_both_layouts(small_a9a, monkeypatch, tmp_path, below):
    first, second = tmp_path / "first", tmp_path / "second"
    for root in (first, second, tmp_path / "cache"):
        write(root / below, SMALL)
    monkeypatch.setenv("DIAMOND_DATA", str(second))
    assert data.a9a(first).files[0] == first / below / "a9a"
    assert data.a9a().files[0] == second / below / "a9a"
    monkeypatch.delenv("DIAMOND_DATA")
    assert data.a9a().files[0] == tmp_path / "cache" / below / "a9a"
    found = data.a9a()
    assert found.train[0].shape == (2, 123) and found.train[1].tolist() == [1, 0]


def test_lookup_refuses(small_a9a, monkeypatch, tmp_path):
    with pytest.raises(DataError, match=r"folder = .* is not a folder"):
        data.a9a(tmp_path / "nowhere")
    write(tmp_path, {"a9a": SMALL["a9a"]})
    with pytest.raises(DataError, match=r"a9a.t missing"):
        data.a9a(tmp_path)
    write(tmp_path, {"a9a.t": b"-1 4:1\n"})
    with pytest.raises(DataError, match=r"a9a.t: sha256 is .* delete it and fetch it again"):
        data.a9a(tmp_path)


def test_download(small_a9a, server, tmp_path):
    pytest.importorskip("pooch")
    write(server[0], SMALL)
    first = data.a9a()
    assert first.files == (tmp_path / "cache/a9a/a9a", tmp_path / "cache/a9a/a9a.t")
    assert server[1] == ["/a9a", "/a9a.t"]
    data.a9a()
    assert len(server[1]) == 2  # the second time from the cache
    (tmp_path / "cache/a9a/a9a").unlink()
    data.a9a()
    assert server[1] == ["/a9a", "/a9a.t", "/a9a"]  # an interrupted download goes on


def test_download_refuses_a_wrong_digest(small_a9a, server, tmp_path):
    pytest.importorskip("pooch")
    write(server[0], SMALL | {"a9a": b"+1 1:1\n"})
    with pytest.raises(DataError, match="hash of downloaded file"):
        data.a9a()
    assert not (tmp_path / "cache/a9a/a9a").exists()


def test_download_refusals_say_all(small_a9a, monkeypatch, tmp_path):
    pytest.importorskip("pooch")
    (tmp_path / "mine").mkdir()
    places = [tmp_path / "mine/a9a", tmp_path / "mine", tmp_path / "cache/a9a", tmp_path / "cache"]
    for prepare, cause in (
        (lambda: None, "download failed: http://127.0.0.1:9/a9a (ConnectionError"),
        (lambda: monkeypatch.setitem(sys.modules, "pooch", None), "needs pooch: pip install"),
        (lambda: monkeypatch.setenv("DIAMOND_OFFLINE", "1"), "DIAMOND_OFFLINE forbids"),
    ):
        prepare()
        with pytest.raises(DataError) as refusal:
            data.a9a(tmp_path / "mine")
        message = str(refusal.value)
        assert message.startswith("a9a: found a9a, a9a.t in none of " + ", ".join(map(str, places)))
        assert cause in message and "http://127.0.0.1:9/" in message
        assert "name it by folder=, --data or DIAMOND_DATA" in message


def test_ijcnn1_without_a_digest(tmp_path):
    with pytest.raises(DataError, match=r"ijcnn1.bz2 in none .* fetch it from .* yourself"):
        data.ijcnn1()
    write(tmp_path, {"ijcnn1.bz2": bz2.compress(b"-1 1:1\n1 2:1\n")})
    with pytest.raises(DataError, match="2 rows, 1 positive, not 49990 and 4853"):
        data.ijcnn1(tmp_path)


def test_cache_is_the_users():
    pytest.importorskip("platformdirs")
    code = "from diamond.data import fetch; print(fetch.cache())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                         check=True, cwd=REPOSITORY)  # fmt: skip
    assert Path(run.stdout.strip()).parts[-2:] == ("diamond", "data")
