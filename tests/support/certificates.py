"""Certificates for tests, made with openssl: an authority and the certificates that it signs."""

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

_CONFIG = """
[ca]
default_ca = all
[all]
database = {folder}/index.txt
new_certs_dir = {folder}
rand_serial = yes
default_md = sha256
policy = names
unique_subject = no
[names]
commonName = supplied
"""


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, as files in PEM."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates; its own is `ca`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True)
        self.ca, self._key = folder / "ca.pem", folder / "ca.key"
        self._config = folder / "ca.cnf"
        self._config.write_text(_CONFIG.format(folder=folder), encoding="utf-8")
        (folder / "index.txt").touch()
        new = ["req", "-x509", *_NEW_KEY, "-keyout", str(self._key), "-subj", f"/CN={folder.name}"]
        _openssl(*new, "-days", "3650", "-out", str(self.ca))

    def issue(
        self, name: str, *, names: str = "IP:127.0.0.1,DNS:localhost", expired: bool = False, passphrase: str = ""
    ) -> Certificate:
        """A certificate for `names`, in openssl's syntax. With a passphrase, the key is encrypted."""
        made = Certificate(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={names}\n", encoding="ascii")
        _openssl("req", *_NEW_KEY, "-keyout", str(made.key), "-subj", f"/CN={name}", "-out", str(request))
        dates = ["-startdate", "20200101000000Z", "-enddate", "20200201000000Z" if expired else "20991231000000Z"]
        signer = ["-config", str(self._config), "-cert", str(self.ca), "-keyfile", str(self._key)]
        files = ["-in", str(request), "-extfile", str(extensions), "-out", str(made.certificate)]
        _openssl("ca", "-batch", "-notext", *signer, *dates, *files)
        if passphrase:
            plain = made.key.rename(made.key.with_suffix(".plain"))
            _openssl(*f"pkcs8 -topk8 -v2 aes-256-cbc -in {plain} -out {made.key} -passout pass:{passphrase}".split())
        return made

    def server(self, certificate: Certificate) -> ssl.SSLContext:
        """The TLS context of a server with this certificate. It requires none of its clients."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certificate, certificate.key)
        return context

    def client(self, certificate: Certificate) -> ssl.SSLContext:
        """The TLS context of a client with this certificate."""
        context = ssl.create_default_context(cafile=self.ca)
        context.check_hostname = False
        context.load_cert_chain(certificate.certificate, certificate.key)
        return context


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: str) -> None:
    program = shutil.which("openssl")
    assert program is not None, "these tests need the program openssl"
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
