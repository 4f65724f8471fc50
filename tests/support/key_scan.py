"""Search for private keys in files: as PEM, DER, or the bare number, also in archives."""

import base64
import gzip
import io
import re
import tarfile
import zipfile
import zlib

from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key

from diamond.sites.identity.private_keys import fingerprint

PEM = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.S)
DER = re.compile(rb"\x02\x01\x01\x04[\x20\x30\x42]")  # version and length of an ECPrivateKey
HEADER_BYTES = 40  # of PKCS 8 before an ECPrivateKey, at most
UNREADABLE = "a key that cannot be read"


class KeyScan:
    """Remembers every key that it has read, and finds it in any later form.

    `passphrase` opens encrypted keys.
    """

    def __init__(self, passphrase=None):
        self.passphrase = passphrase
        self.forms = {}  # by fingerprint, the number in each form in which a file may have it
        self._known = {}  # by content: its parts, keys in them, how many `forms` were looked for

    def find(self, folder):
        """Fingerprints of the private keys in each file of a folder that has any, by path."""
        contents = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        found = {path: self.keys_in(content) for path, content in contents.items()}
        for path, content in contents.items():  # by all keys that were read now
            found[path] |= self.keys_in(content)
        return {path: keys for path, keys in found.items() if keys}

    def keys_in(self, content):
        """Fingerprints of the private keys in these bytes."""
        if content not in self._known:
            parts = [*parts_of(content)]
            self._known[content] = parts, set().union(*map(self._read_all, parts)), 0
        parts, keys, count = self._known[content]
        new = [*self.forms.items()][count:]
        keys |= {k for k, forms in new if any(f in part for f in forms for part in parts)}
        self._known[content] = parts, keys, len(self.forms)
        return {*keys}

    def _read_all(self, part):
        keys = {self._read(load_pem_private_key, pem, True) for pem in PEM.findall(part)}
        for match in DER.finditer(part):
            starts = range(max(0, match.start() - HEADER_BYTES), match.start())
            sequences = [cut(part[i:]) for i in starts if part[i] == 0x30]
            read = {self._read(load_der_private_key, one) for one in sequences}
            keys |= read - {UNREADABLE} or {UNREADABLE}
        return keys

    def _read(self, load, content, may_be_encrypted=False):
        password = self.passphrase if may_be_encrypted and b"ENCRYPTED" in content else None
        try:
            key = load(content, password)
        except (ValueError, TypeError):
            return UNREADABLE
        name = fingerprint(key.public_key())
        self.forms[name] = forms_of(key.private_numbers().private_value)
        return name


def cut(der):
    """The bytes of the DER sequence at the beginning."""
    if len(der) < 3 or der[1] < 0x80:
        return der[: 2 + (der[1] if len(der) > 1 else 0)]
    size = der[1] & 0x7F
    return der[: 2 + size + int.from_bytes(der[2 : 2 + size], "big")]


def forms_of(number):
    """A private number as bytes, in both orders, in hexadecimal and decimal digits, and base64."""
    raw = number.to_bytes(max(32, -(-number.bit_length() // 8)), "big")
    aligned = [base64.b64encode(bytes(k) + raw)[4 * (k > 0) : -4] for k in range(3)]
    digits = raw.hex()
    return [raw, raw[::-1], digits.encode(), digits.upper().encode(), b"%d" % number, *aligned]


def parts_of(content):
    """The bytes themselves, and of an archive the files in it."""
    yield content
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                yield from parts_of(archive.read(name))
        return
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for member in archive:
                if member.isfile():
                    yield from parts_of(archive.extractfile(member).read())
    except (tarfile.TarError, EOFError, OSError, zlib.error):
        if content[:2] == b"\x1f\x8b":
            yield from parts_of(gzip.decompress(content))
