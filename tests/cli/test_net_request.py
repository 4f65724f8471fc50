"""`diamond net request` and `net sign`: no private key but its own is in the authority's folder."""

import json
import shutil
import stat
import subprocess

import numpy as np
import pytest
from federations import FEDERATION, NAMES, PROBLEM, start_site
from key_scan import KeyScan
from tls_sites import ports

from diamond.sites.identity import certificate_authority, private_keys, roster
from diamond.sites.identity.private_keys import KEY, REQUESTED_KEY, BadBundle
from diamond.sites.transport.tls import tls_context


def private_key_files(folder):
    """All files in a folder with a private key, as their paths in it."""
    return {str(path.relative_to(folder)) for path in KeyScan().find(folder)}


@pytest.fixture
def own_keys(tmp_path, command):
    """Three sites with folders of their own, and an authority that signed their requests."""
    sites = [f'{name} = "127.0.0.1:{port}"' for name, port in zip(NAMES, ports(3))]
    (tmp_path / "trial.toml").write_text(FEDERATION + "\n".join(sites))
    requests = []
    for name in NAMES:
        answer = command("request", tmp_path / "sites" / name, "--site", name, "--json")
        assert answer.exit_code == 0, answer.output
        requests.append(json.loads(answer.stdout)["request"])
    signed = command("sign", tmp_path / "trial.toml", *requests, "--out", tmp_path / "authority")
    assert signed.exit_code == 0, signed.output
    deliver(tmp_path, NAMES)
    return tmp_path


def deliver(place, names):
    """Copy what the authority has for each site into its folder."""
    for name in names:
        shutil.copytree(place / "authority" / name, place / "sites" / name, dirs_exist_ok=True)


def test_every_key_is_at_its_site_and_only_there(own_keys):
    for name in NAMES:
        folder = own_keys / "sites" / name
        assert private_key_files(folder) == {REQUESTED_KEY}
        bundle = roster.load_bundle(folder)
        assert bundle.me.name == name and private_key_files(folder) == {KEY}
        assert stat.S_IMODE((folder / KEY).stat().st_mode) == 0o600
        own = private_keys.load_signing_key(bundle.key).public_key()
        assert bundle.me.fingerprint == private_keys.fingerprint(own)
        assert tls_context(bundle, is_server=True).get_ca_certs()  # key and certificate are a pair
    assert private_key_files(own_keys / "authority") == {certificate_authority.AUTHORITY_KEY}


def test_a_key_is_renewed_at_its_site(own_keys, command):
    before = roster.load_bundle(own_keys / "sites" / "south")
    refused = command("renew", own_keys / "authority", "--site", "south")
    assert refused.exit_code == 2 and "the key was made at the site" in refused.stderr
    request = command("request", own_keys / "sites" / "south", "--site", "south", "--json")
    path = json.loads(request.stdout)["request"]
    assert roster.load_bundle(own_keys / "sites" / "south").me == before.me  # in use until signed
    again = command("request", own_keys / "sites" / "south", "--site", "south", "--json")
    assert again.exit_code == 0  # the same key, of which the first request is valid too
    signed = command("sign", own_keys / "authority", path, "--revoke")
    assert signed.exit_code == 0, signed.output
    deliver(own_keys, NAMES)
    after = roster.load_bundle(own_keys / "sites" / "south")
    assert after.roster.version == before.roster.version + 1
    assert after.me.fingerprint != before.me.fingerprint and after.key != before.key
    assert after.me.retired == ""
    assert private_key_files(own_keys / "sites" / "south") == {KEY}
    assert private_key_files(own_keys / "authority") == {certificate_authority.AUTHORITY_KEY}
    assert roster.load_bundle(own_keys / "sites" / "north").me.name == "north"


def test_a_site_joins_with_a_key_of_its_own(own_keys, command):
    text = (own_keys / "trial.toml").read_text().replace("ring:3", "ring:4")
    (own_keys / "more.toml").write_text(f'{text}\neast = "127.0.0.1:{ports(1)[0]}"\n')
    request = command("request", own_keys / "sites" / "east", "--site", "east", "--json")
    words = ["change", own_keys / "authority", own_keys / "more.toml", "--from-round", "20"]
    answer = command(*words, "--request", json.loads(request.stdout)["request"])
    assert answer.exit_code == 0, answer.output
    deliver(own_keys, ["east"])
    assert roster.load_bundle(own_keys / "sites" / "east").me.number == 3
    assert private_key_files(own_keys / "authority") == {certificate_authority.AUTHORITY_KEY}


def test_an_encrypted_key_needs_its_passphrase(tmp_path, command, monkeypatch):
    secret = tmp_path / "passphrase"
    secret.write_text("correct horse\n")
    monkeypatch.setenv(private_keys.PASSPHRASE_FILE, str(secret))
    site = "alone"
    answer = command("request", tmp_path / site, "--site", site, "--encrypt", "--json")
    assert answer.exit_code == 0, answer.output
    text = FEDERATION.replace("ring:3", "complete:1") + f'{site} = "127.0.0.1:{ports(1)[0]}"'
    (tmp_path / "trial.toml").write_text(text)
    path = json.loads(answer.stdout)["request"]
    signed = command("sign", tmp_path / "trial.toml", path, "--out", tmp_path / "authority")
    assert signed.exit_code == 0, signed.output
    shutil.copytree(tmp_path / "authority" / site, tmp_path / site, dirs_exist_ok=True)
    assert roster.load_bundle(tmp_path / site).key.startswith(b"-----BEGIN PRIVATE KEY")
    assert private_keys.ENCRYPTED in (tmp_path / site / KEY).read_bytes()
    (tmp_path / site / REQUESTED_KEY).unlink(missing_ok=True)
    for words in ([], ["--encrypt"]):  # a waiting key that was not encrypted is encrypted now
        command("request", tmp_path / site, "--site", site, *words)
        content = (tmp_path / site / REQUESTED_KEY).read_bytes()
        assert (private_keys.ENCRYPTED in content) == bool(words)
    secret.write_text("wrong")
    with pytest.raises(BadBundle, match="the passphrase does not open"):
        roster.load_bundle(tmp_path / site)
    monkeypatch.setenv(private_keys.PASSPHRASE_FILE, str(tmp_path / "none"))
    with pytest.raises(BadBundle, match=r"PASSPHRASE_FILE = .*none cannot be read"):
        roster.load_bundle(tmp_path / site)
    monkeypatch.delenv(private_keys.PASSPHRASE_FILE)
    with pytest.raises(BadBundle, match=r"is encrypted: put its passphrase into a file"):
        roster.load_bundle(tmp_path / site)


def test_a_key_comes_from_a_command_and_is_never_on_the_disk(own_keys, tmp_path, monkeypatch):
    """As of a password store: the bundle has no file with the key."""
    place, vault = own_keys / "sites" / "north", tmp_path / "vault.pem"
    other = own_keys / "sites" / "south" / REQUESTED_KEY
    expected = roster.load_bundle(place)
    (place / KEY).rename(vault)
    with pytest.raises(BadBundle, match="is no whole bundle"):
        roster.load_bundle(place)
    monkeypatch.setenv(private_keys.KEY_COMMAND, f"cat '{vault}'")
    assert roster.load_bundle(place) == expected
    tls_context(expected, is_server=True)
    assert private_key_files(place) == set()
    for command, message in (
        (f"cat '{tmp_path / 'none'}'", r"DIAMOND_KEY_COMMAND failed \(1: .*No such file"),
        ("no-such-program", "DIAMOND_KEY_COMMAND cannot be run"),
        ("unclosed '", "DIAMOND_KEY_COMMAND cannot be run: No closing quotation"),
        ("echo nothing", "DIAMOND_KEY_COMMAND holds no private key"),
        (f"cat '{other}'", "do not belong together: copy both"),
    ):
        monkeypatch.setenv(private_keys.KEY_COMMAND, command)
        with pytest.raises(BadBundle, match=message):
            roster.load_bundle(place)


def test_requests_that_cannot_be_signed(tmp_path, command):
    sites = [f'{name} = "127.0.0.1:{port}"' for name, port in zip(NAMES, ports(3))]
    (tmp_path / "trial.toml").write_text(FEDERATION + "\n".join(sites))
    paths = {n: private_keys.create_request(tmp_path / n, n) for n in (*NAMES, "noth")}
    twin = private_keys.create_request(tmp_path / "twin", "north")
    signed = lambda *p: command("sign", tmp_path / "trial.toml", *p, "--out", tmp_path / "out")

    def refused(words, *requests):
        answer = signed(*requests)
        assert answer.exit_code == 2 and words in " ".join(answer.stderr.split()), answer.output
        assert not (tmp_path / "out").exists()

    refused("no request of south, west", paths["north"])
    refused("'noth', which is no site; did you mean north?", paths["noth"])
    refused("two requests are of north", paths["north"], twin)
    refused("is no request of `diamond net request`", tmp_path / "trial.toml")
    refused("is no request of `diamond net request`", tmp_path / "missing.csr")
    for name in ("../north", "", "a" * 65, "no\nrth"):
        answer = command("request", tmp_path / "odd", "--site", name)
        assert answer.exit_code == 2 and "is no name of a site" in " ".join(answer.stderr.split())
    assert not (tmp_path / "odd").exists()
    for content in (b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"):
        (tmp_path / "twin" / REQUESTED_KEY).write_bytes(content)
        answer = command("request", tmp_path / "twin", "--site", "north")
        assert answer.exit_code == 2 and "holds no private key" in " ".join(answer.stderr.split())
    forged = bytearray(paths["north"].read_bytes())
    forged[200] = ord("A") if forged[200] != ord("A") else ord("B")
    (tmp_path / "forged.csr").write_bytes(bytes(forged))
    refused("is no request of `diamond net request`", tmp_path / "forged.csr")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_request_made_by_openssl_is_signed_unless_its_curve_is_another(tmp_path):
    def request(curve):
        key, path = tmp_path / f"{curve}.key", tmp_path / f"{curve}.csr"
        openssl = lambda *words: subprocess.run(["openssl", *map(str, words)], check=True)
        openssl("ecparam", "-name", curve, "-genkey", "-noout", "-out", key)
        openssl("req", "-new", "-key", key, "-subj", "/CN=north", "-out", path)
        return path

    assert private_keys.read_request(request("prime256v1")).site == "north"
    with pytest.raises(BadBundle, match="not of the curve P-256"):
        private_keys.read_request(request("secp384r1"))


@pytest.mark.wide
def test_three_sites_with_keys_of_their_own_end_a_run(own_keys):
    """The real thing: three processes, mutual TLS, the folders of three machines."""
    (own_keys / "mine.py").write_text(PROBLEM)
    for i, name in enumerate(NAMES):
        rows = np.random.default_rng(i).normal(i, 1, (20 + i, 3)).astype(np.float32)
        np.save(own_keys / f"{name}.npy", rows)
    (own_keys / "trial").symlink_to(own_keys / "sites")
    processes = [start_site(own_keys, name) for name in NAMES]
    answers = [json.loads(process.communicate(timeout=300)[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert [answer["site"] for answer in answers] == NAMES
    assert {answer["round"] for answer in answers} == {60}
    assert private_key_files(own_keys / "runs") == set()
