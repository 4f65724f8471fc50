"""An institution's PKI, made by the program openssl: root, intermediate, certificates, lists."""

import subprocess

CONFIG = """
[ca]
default_ca = own
[own]
dir = {folder}
database = $dir/index.txt
serial = $dir/serial
crlnumber = $dir/crlnumber
new_certs_dir = $dir
certificate = $dir/issuing.pem
private_key = $dir/issuing.key
default_md = sha256
default_days = 30
default_crl_days = {crl_days}
policy = any
unique_subject = no
copy_extensions = copy
[any]
commonName = supplied
"""
AUTHORITY = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign"]
BOTH_USES = "serverAuth,clientAuth"
P256 = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
P384 = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-384"]
RSA = ["-newkey", "rsa:2048"]


class Pki:
    """Root and intermediate in a folder; `chain` has the certificates of both."""

    def __init__(self, folder, name, crl_days=30):
        self.folder, self.name = folder, name
        folder.mkdir(parents=True)
        self.request("root", f"{name} root", P256, AUTHORITY, "-x509", "-days", "60")
        self.request("issuing", f"{name} issuing", P256, AUTHORITY)
        self.sign_by_root("issuing")
        for file, content in (("index.txt", ""), ("serial", "1000"), ("crlnumber", "1000")):
            (folder / file).write_text(content)
        (folder / "ca.cnf").write_text(CONFIG.format(folder=folder, crl_days=crl_days))
        self.chain = folder / "chain.pem"
        pems = (folder / "root.pem").read_bytes() + (folder / "issuing.pem").read_bytes()
        self.chain.write_bytes(pems)

    def run(self, *words):
        done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def request(self, file, name, key, extensions, *more):
        out = self.folder / f"{file}.{'pem' if '-x509' in more else 'csr'}"
        added = [word for extension in extensions for word in ("-addext", extension)]
        own = "-keyout", self.folder / f"{file}.key", "-out", out, "-subj", f"/CN={name}"
        self.run("req", *(more or ("-new",)), *key, "-nodes", *own, *added)

    def sign_by_root(self, file):
        paths = [self.folder / name for name in (f"{file}.csr", "root.pem", "root.key")]
        words = "-in", paths[0], "-CA", paths[1], "-CAkey", paths[2], "-CAcreateserial"
        copied = "-copy_extensions", "copy", "-days", "30", "-out", self.folder / f"{file}.pem"
        self.run("x509", "-req", *words, *copied)

    def issue(self, file, names, key=P256, uses=BOTH_USES, dates=(), common_name=None):
        """Issue a certificate by the intermediate; return those of it and of its key."""
        extensions = [f"subjectAltName={names}"] * bool(names)
        extensions += [f"extendedKeyUsage={uses}"] * bool(uses)
        self.request(file, common_name or file, key, extensions)
        paths = [self.folder / f"{file}.{kind}" for kind in ("csr", "pem", "key")]
        config = "-batch", "-notext", "-config", self.folder / "ca.cnf"
        self.run("ca", *config, "-in", paths[0], "-out", paths[1], *dates)
        return paths[1], paths[2]

    def revoke(self, certificate):
        """Revoke a certificate; return the new list."""
        config = "-config", self.folder / "ca.cnf"
        self.run("ca", *config, "-revoke", certificate)
        return self.list_revoked()

    def list_revoked(self):
        out = self.folder / "crl.pem"
        self.run("ca", "-config", self.folder / "ca.cnf", "-gencrl", "-out", out)
        return out
