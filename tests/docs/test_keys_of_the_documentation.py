"""Commands of the documentation that make keys: no private key leaves the site that made it.

A folder stands for each machine. A command runs at the machine that the page names for it, and what
it needs from another machine is sent: copied, and searched for keys.
"""

import base64
import gzip
import io
import re
import shlex
import shutil
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from key_scan import UNREADABLE, KeyScan
from openssl_pki import Pki
from pages import BLOCK, DOCS, ENV, PAGES, blocks, written
from typer.testing import CliRunner

from diamond import cli
from diamond.sites.identity import private_keys
from diamond.sites.identity.private_keys import KEY
from diamond.sites.identity.roster import load_bundle

DEPLOY = DOCS / "how-to" / "deploy_sites.md"
COMMAND = re.compile(rf"{BLOCK.pattern}|`(diamond net [^`]+)`", re.S | re.M)
AUTHORITY = "authority"  # machine of the authority
MAKES_KEYS = ("init", "request", "sign", "renew", "change", "endorse")
USES_KEYS = ("start", "relay")
OTHERS = ("doctor", "status", "stop", "proof")
ROSTER_FILES = ("ca.pem", "roster.json", "roster.sig")
PASSPHRASE = "correct horse"
EAST = 'east = "east.example.org:7101"\n'  # joins


def key_commands(page):
    """(kind, text) of the files of federations on a page, and of its `diamond net` commands."""
    for match in COMMAND.finditer(written(page)):
        kind, text, command, inline = match.groups()
        if kind == "toml" and "[sites]" in text:
            yield "toml", text
        if kind not in (None, "shell"):
            continue
        for line in (text or command or inline.replace("\n", " ")).splitlines():
            words = shlex.split(line, comments=True)
            if words[:2] == ["diamond", "net"] and len(words) > 3:
                yield "net", words[2:]


PAGES_WITH_KEYS = [page for page in PAGES if any(kind == "net" for kind, _ in key_commands(page))]


class Machines:
    """A folder for each machine, and the private keys in them."""

    def __init__(self, root, monkeypatch, is_encrypted=False):
        self.root, self.monkeypatch, self.is_encrypted = root, monkeypatch, is_encrypted
        self.scan = KeyScan(PASSPHRASE.encode() if is_encrypted else None)
        self.homes = {}  # by key: machines that may have it
        self.sent = []  # (file, receiver, content)
        self.played = []
        (root / AUTHORITY).mkdir(parents=True)
        if is_encrypted:
            (root / "passphrase").write_text(PASSPHRASE)
            monkeypatch.setenv(private_keys.PASSPHRASE_FILE, str(root / "passphrase"))

    def run(self, machine, *words):
        """Run a command at a machine, and look at the keys of all machines."""
        place = self.root / machine
        place.mkdir(exist_ok=True)
        self.monkeypatch.chdir(place)
        done = CliRunner().invoke(cli.app, ["net", *map(str, words)], env=ENV)
        assert done.exit_code == 0, f"{words}\n{done.output}\n{done.exception!r}"
        self.check_keys(machine)
        return " ".join(done.output.split())

    def send(self, source, target, machine):
        """Send a file, or the files of a folder, to a path at another machine."""
        for path in [source] if source.is_file() else sorted(source.iterdir()):
            copy = target if source.is_file() else target / path.name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
            self.sent.append((path.name, machine, path.read_bytes()))

    def check_keys(self, machine=None):
        """Every key lies at its machine, in one private file; a new one belongs to `machine`."""
        found = self.scan.find(self.root)
        places = {}
        for path, keys in found.items():
            where, *rest = path.relative_to(self.root).parts
            assert path.name in {"agent.key", "request.key", "ca.key"}, path
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
            assert len(keys) == 1 and UNREADABLE not in keys, path
            (key,) = keys
            homes = self.homes.setdefault(key, self._homes(machine, rest))
            assert where in homes, f"{path} has a key of {homes}"
            assert (path.name == "ca.key") <= (where == AUTHORITY), path
            places.setdefault((key, where), []).append(path)
        assert all(len(paths) == 1 for paths in places.values()), places
        for name, receiver, content in self.sent:
            for key in self.scan.keys_in(content):
                assert name == "agent.key", f"{name} for {receiver} has a private key"
                assert self.homes[key] == {AUTHORITY, receiver}

    @staticmethod
    def _homes(machine, parts):
        """A key of a command at a site stays there; the authority makes its own and bundles."""
        is_bundle = machine == AUTHORITY and parts[-1] == "agent.key"
        return {machine, parts[-2]} if is_bundle else {machine}

    def play(self, page):
        """Run the commands of a page that make or use keys, in their order."""
        for kind, value in key_commands(page):
            if kind == "toml":
                name = value.splitlines()[0].removeprefix("# ")
                (self.root / AUTHORITY / name).write_text(value)
            else:
                verb, *words = value
                assert verb in MAKES_KEYS + USES_KEYS + OTHERS, verb
                if verb not in OTHERS:
                    getattr(self, verb)(*words)
                    self.played.append(verb)
        self.check_keys()

    def request(self, *words):
        words += ("--encrypt",) * self.is_encrypted
        self.run(words[words.index("--site") + 1], "request", *words)

    def init(self, *words):
        self.collect(words)
        file = self.root / AUTHORITY / words[0]
        if not file.exists():  # a page that refers to another one
            texts = [t for kind, t in blocks(DEPLOY) if kind == "toml"]
            file.write_text(next(t for t in texts if t.startswith(f"# {words[0]}")))
        printed = self.run(AUTHORITY, "init", *words)
        folder = self.option(words, "--out") or Path(words[0]).stem
        assert f"keys of all sites were made here, and who has {folder} can act as any" in printed
        if "--steward" not in words:
            self.deliver(folder)

    def sign(self, *words):
        renews = not words[0].endswith(".toml")
        for file in [word for word in words if word.endswith(".csr")] if renews else []:
            site = Path(file).stem
            self.request(site, "--site", site)
        self.collect(words)
        self.run(AUTHORITY, "sign", *words)
        self.deliver(words[0] if renews else self.option(words, "--out"), has_keys=False)

    def renew(self, folder, *words):
        self.run(AUTHORITY, "renew", folder, *words)
        self.deliver(folder)

    def change(self, *words):
        """Members change as the page says: by hand in the file, which the example leaves out."""
        if words[0] == "...":
            words = "signed", "joined.toml", "--from-round", "100", *words[1:]
        folder, file, *_ = words
        if not (self.root / AUTHORITY / folder).exists():
            self.init(f"{folder}.toml")
        text = (self.root / AUTHORITY / "trial.toml").read_text()
        if rejoining := self.option(words, "--rejoin"):
            (line,) = re.findall(rf"^{rejoining} = .*\n", text, re.M)
            text = text.replace(line, "") + line
        else:
            west = re.search(r"^west = .*\n", text, re.M)[0]
            text = text.replace("ring:3", "ring:4").replace(west, west + EAST)
        (self.root / AUTHORITY / file).write_text(text)
        for site in [Path(w).stem for w in words if w.endswith(".csr")]:
            self.request(site, "--site", site)
        self.collect(words)
        self.run(AUTHORITY, "change", *words)
        self.deliver(folder, has_keys="--request" not in words)

    def endorse(self, folder, *words):
        """Each steward signs at its machine; the authority collects two signatures."""
        key = Path(self.option(words, "--key"))
        stewards = sorted(p.parent.name for p in self.root.glob("*/*/request.key"))[:2]
        assert key.parent.name in stewards
        added = []
        for name in stewards:
            for file in ROSTER_FILES:
                self.send(self.at(folder, file), self.root / name / folder / file, name)
            own = str(key).replace(key.parent.name, name)
            self.run(name, "endorse", folder, *words[:-1], own)
            copy = self.root / AUTHORITY / f"{name}.sig"
            self.send(self.root / name / folder / "roster.sig", copy, AUTHORITY)
            added += ["--add", copy.name]
        printed = self.run(AUTHORITY, "endorse", folder, *added)
        assert "2 of 2 signatures" in printed
        self.deliver(folder)

    def start(self, bundle, *words):
        """What `start` does first: the bundle is read, and a new key is put into use."""
        site = Path(bundle).name
        loaded = load_bundle(self.root / site / bundle)
        own = private_keys.load_signing_key(loaded.key).public_key()
        assert loaded.me.fingerprint == private_keys.fingerprint(own)
        self.check_keys()

    def relay(self, folder, *words):
        federation, name = folder.split("/")
        self.init(f"{federation}.toml")
        assert not self.scan.find(self.root / name)

    @staticmethod
    def option(words, name):
        return words[words.index(name) + 1] if name in words else None

    def at(self, *parts):
        return self.root.joinpath(AUTHORITY, *parts)

    def collect(self, words):
        """Send the requests among these words from where they were made to the authority."""
        for word in [word for word in words if word.endswith(".csr")]:
            (request,) = self.root.glob(f"{Path(word).stem}/*/{Path(word).name}")
            self.send(request, self.at(word), AUTHORITY)

    def deliver(self, folder, has_keys=True):
        """Copy the bundles of a federation, and the folders of relays, to where they are used."""
        for bundle in [path for path in self.at(folder).iterdir() if path.is_dir()]:
            name = bundle.name
            target = self.root / name / (f"{folder}/{name}" if has_keys else name)
            self.send(bundle, target, name)
            if (bundle / "agent.pem").exists():  # no relay
                load_bundle(target)
        self.check_keys(AUTHORITY)


@pytest.mark.parametrize("page", PAGES_WITH_KEYS, ids=lambda page: page.stem)
def test_no_private_key_is_outside_its_site(page, tmp_path, monkeypatch):
    machines = Machines(tmp_path, monkeypatch)
    machines.play(page)
    if page == DEPLOY:
        assert {*machines.played} == {*MAKES_KEYS, *USES_KEYS}
        requested = {path.parent.name for path in tmp_path.glob("*/*/*.csr")} - {AUTHORITY}
        assert {"north", "south", "west", "east", "anna", "ben", "carla"} <= requested
        assert set(machines.scan.find(machines.at("signed"))) == {machines.at("signed", "ca.key")}


@pytest.mark.wide
def test_encrypted_keys_are_nowhere_without_their_encryption(tmp_path, monkeypatch):
    machines = Machines(tmp_path, monkeypatch, is_encrypted=True)
    machines.play(DEPLOY)
    for path in machines.scan.find(tmp_path):
        machine, *folders, _ = path.relative_to(tmp_path).parts
        made_at_site = folders == [machine]  # not in a bundle of the authority
        assert made_at_site == (private_keys.ENCRYPTED in path.read_bytes()), path


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_no_key_of_an_own_authority_leaves_it(tmp_path, monkeypatch):
    """The tables of the page, in the federation of the page; its keys are renewed, one joins."""
    (tables,) = (text for kind, text in blocks(DEPLOY) if kind == "ini")
    name = re.search(r'north = "dns:([^"]+)"', tables)[1]
    hospital, machines = Pki(tmp_path / "pki", "hospital"), Machines(tmp_path / "all", monkeypatch)
    text = next(text for kind, text in key_commands(DEPLOY) if kind == "toml")
    machines.at("trial.toml").write_text(f"{text}\n{tables}")
    machines.send(hospital.chain, machines.at("hospital.pem"), AUTHORITY)
    machines.init("trial.toml")
    bundle = machines.root / "north" / "trial" / "north"
    assert not (bundle / "agent.key").exists()
    for path in hospital.issue("site", f"DNS:{name}"):
        shutil.copy(path, bundle / f"agent{path.suffix}")
    (bundle / "agent.key").chmod(0o600)
    own = load_bundle(bundle)
    machines.check_keys("north")
    machines.renew("trial")
    machines.change("trial", "trial.toml", "--from-round", "200")
    assert load_bundle(bundle).key == own.key and not machines.at("trial", "north", KEY).exists()
    assert len([keys for keys in machines.homes.values() if keys == {"north"}]) == 1


def test_a_key_is_found_in_every_form(tmp_path):
    key = ec.generate_private_key(ec.SECP256R1())
    number = key.private_numbers().private_value
    formats = PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL
    pems = [key.private_bytes(Encoding.PEM, kind, NoEncryption()) for kind in formats]
    ders = [b"xx" + key.private_bytes(Encoding.DER, kind, NoEncryption()) for kind in formats]
    for content in (*pems, *ders):
        assert KeyScan().keys_in(b"before" + content + b"after"), content
    raw = number.to_bytes(32, "big")
    texts = raw, raw.hex().encode(), str(number).encode(), base64.b64encode(b"1234" + raw)
    scan = KeyScan()
    (name,) = scan.keys_in(pems[0])
    for content in (*texts, *ders):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("inside", content)
        assert scan.keys_in(content) == scan.keys_in(packed.getvalue()) == {name}
        assert scan.keys_in(gzip.compress(content)) == {name}
        with tarfile.open(tmp_path / "all.tar.gz", "w:gz") as archive:
            (tmp_path / "file").write_bytes(content)
            archive.add(tmp_path / "file")
        assert scan.keys_in((tmp_path / "all.tar.gz").read_bytes()) == {name}
        assert not KeyScan().keys_in(content.replace(raw, bytes(32)).replace(b"\x02\x01\x01", b""))
    request = private_keys.create_request(tmp_path, "north")
    assert not scan.keys_in(request.read_bytes())
