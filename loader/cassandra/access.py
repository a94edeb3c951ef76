"""Access to Cassandra: the user, and the certificates of both sides."""

import enum
import ipaddress
import os
import re
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self, TypeAlias

from formats.errors import FormatsError
from formats.tls import Bundle
from loader.errors import OptionError

FilePath: TypeAlias = str | os.PathLike[str]

_PREFIX = "IMAGESTRATA_"
_SECRETS = ("password", "passphrase")  # a file may hold them
_CERTIFICATE = re.compile(r"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----")
_KEY = re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----")


class _Verify(enum.IntFlag):
    """What the driver verifies of a server's certificate. Its own constants cannot be combined, and without CHAIN it
    accepts self-signed certificates."""

    CHAIN = 1
    ADDRESS = 2
    NAME = 4


@dataclass(frozen=True, kw_only=True)
class Access:
    """How a source authenticates to Cassandra, and how it verifies the servers.

    With ``ca``, connections use TLS, and servers are always verified. If all ``hosts`` of the `Cluster` are
    addresses, a server's certificate must have the server's address. If one of them is a name, the certificate must
    have the name that a reverse lookup of the server's address gives, because servers report each other by address
    only. Files are read again for each new connection, so renewed certificates are found. ``repr`` and
    the log show no secrets. Pickles have the secrets, for worker processes.

    Attributes:
        username: The user to log in as.
        password: The user's password.
        ca: A PEM file with the authorities that sign the servers' certificates. It turns TLS on.
        certificate: A PEM file with the client's certificate, if the servers ask for one.
        key: A PEM file with the client's key.
        passphrase: The passphrase of the key.
        bundle: A secure connect bundle (Astra's zip), instead of hosts, port, ``ca``, ``certificate`` and ``key``.

    Raises:
        OptionError: Fields contradict each other, or a file is missing, is not PEM, or does not open with the
            passphrase.
    """

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: FilePath | None = None
    certificate: FilePath | None = None
    key: FilePath | None = None
    passphrase: str | None = field(default=None, repr=False)
    bundle: FilePath | None = None

    def __post_init__(self) -> None:
        for name in ("username", *_SECRETS):
            _check_text(name, getattr(self, name))
        for name in ("ca", "certificate", "key", "bundle"):
            path = getattr(self, name)
            if path is not None and not isinstance(path, (str, os.PathLike)):
                raise OptionError(f"Wanted {name} as the path of a file. Found: {type(path).__name__}")
        self._check_together("username", "password")
        if self.bundle is not None:
            if others := self._given("ca", "certificate", "key", "passphrase"):
                raise OptionError(f"Wanted only a bundle, which has all certificates. Found: also {others}")
        else:
            self._check_together("certificate", "key")
            self._check_needs("certificate", "ca", "the file of authorities that sign the servers' certificates")
            self._check_needs("passphrase", "key", "the file that the passphrase opens")
        self.tls()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ, **given: Any) -> Self:
        """Take each field that is not given, or None, from the environment.

        The variables are IMAGESTRATA_USERNAME, IMAGESTRATA_PASSWORD, IMAGESTRATA_CA, IMAGESTRATA_CERTIFICATE,
        IMAGESTRATA_KEY, IMAGESTRATA_PASSPHRASE and IMAGESTRATA_BUNDLE. IMAGESTRATA_PASSWORD_FILE and
        IMAGESTRATA_PASSPHRASE_FILE name files whose first line is the secret. Empty variables count as not set.

        Args:
            environment: The variables.
            **given: Fields of the access.

        Returns:
            The access.

        Raises:
            OptionError: As for the constructor; also if a secret and its file are both set, or the file has no secret.
        """
        found = {name: value for name, value in given.items() if value is not None}
        for name in (one.name for one in fields(cls)):
            if name not in found and (value := _look_up(name, environment)):
                found[name] = value
        return cls(**found)

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.ca is not None or self.bundle is not None

    def for_acsylla(self, hosts: Sequence[str]) -> dict[str, Any]:
        """The arguments of ``acsylla.create_cluster`` about hosts and access. A missing file raises `OptionError`."""
        options: dict[str, Any] = {"username": self.username, "password": self.password}
        if self.bundle is not None:
            return options | {"cloud_secure_connection_bundle": os.path.abspath(self.bundle)}
        options["contact_points"] = list(hosts)
        if self.ca is None:
            return options
        options |= {
            "ssl_enabled": True,
            "ssl_trusted_cert": _read("ca", self.ca),
            "ssl_verify_flags": _Verify.CHAIN | (_Verify.NAME if by_name(hosts) else _Verify.ADDRESS),
            "hostname_resolution": by_name(hosts),
        }
        if self.certificate is not None and self.key is not None:
            options["ssl_cert"] = _read("certificate", self.certificate)
            options["ssl_private_key"] = _read("key", self.key)
            options["ssl_private_key_password"] = self.passphrase or ""
        return options

    def tls(self) -> ssl.SSLContext | None:
        """A TLS context to test a server, without a check of names; None without TLS. Raises `OptionError`."""
        if self.bundle is not None:
            bundle = _opened(self.bundle)
            # Python takes keys from files only. No other user can read this folder.
            with tempfile.TemporaryDirectory() as folder:
                ca, certificate, key = (Path(folder, name) for name in ("ca.crt", "cert", "key"))
                for path, text in zip(
                    (ca, certificate, key), (bundle.authorities, bundle.certificate, bundle.key), strict=True
                ):
                    path.write_text(text, encoding="utf-8")
                return _context(ca, certificate, key, passphrase=None, where=f"the bundle {bundle.path}")
        if self.ca is None:
            return None
        return _context(self.ca, self.certificate, self.key, passphrase=self.passphrase)

    def strict_tls(self) -> ssl.SSLContext | None:
        """A TLS context for a driver without its own: `tls`, with strong keys and a check of names."""
        context = self.tls()
        if context is not None:
            context.set_ciphers("DEFAULT")
            context.check_hostname = True
        return context

    def metadata_service(self) -> tuple[str, int]:
        """Host and port that the bundle names. Raises `OptionError`."""
        assert self.bundle is not None
        return _opened(self.bundle).service

    def _given(self, *names: str) -> str:
        return ", ".join(name for name in names if getattr(self, name) is not None)

    def _check_together(self, one: str, other: str) -> None:
        if (getattr(self, one) is None) != (getattr(self, other) is None):
            raise OptionError(
                f"Wanted {one} and {other}, or neither. Found: only {self._given(one, other)}. "
                f"Set them as options, or as {_PREFIX}{one.upper()} and {_PREFIX}{other.upper()}."
            )

    def _check_needs(self, one: str, other: str, why: str) -> None:
        if getattr(self, one) is not None and getattr(self, other) is None:
            raise OptionError(
                f"Wanted {other} together with {one}: {other} is {why}. Found: none. Set it as an option, or as "
                f"{_PREFIX}{other.upper()}."
            )


def by_name(hosts: Sequence[str]) -> bool:
    """Whether servers are identified by name, because one of the hosts is a name, or else by address."""
    try:
        for host in hosts:
            ipaddress.ip_address(host)
    except ValueError:
        return True
    return False


def _opened(path: FilePath) -> Bundle:
    try:
        return Bundle.open(path)
    except FormatsError as error:
        raise OptionError(str(error)) from None


def _look_up(name: str, environment: Mapping[str, str]) -> str | None:
    variable = _PREFIX + name.upper()
    value, path = environment.get(variable), environment.get(f"{variable}_FILE") if name in _SECRETS else None
    if not path:
        return value
    if value:
        raise OptionError(f"Wanted {variable} or {variable}_FILE. Found: both. Unset one.")
    first = _read(f"{variable}_FILE", path).partition("\n")[0].rstrip("\r")
    if not first:
        raise OptionError(
            f"Wanted a secret in the first line of {path}, named by {variable}_FILE. Found: an empty line"
        )
    return first


def _check_text(name: str, value: object) -> None:
    """Check a text that is passed to the driver as UTF-8, ending at a zero byte. No message shows it."""
    if value is None:
        return
    if not isinstance(value, str):
        raise OptionError(f"Wanted {name} as text. Found: {type(value).__name__}")
    try:
        is_good = value != "" and b"\0" not in value.encode()
    except UnicodeEncodeError:
        is_good = False
    if not is_good:
        raise OptionError(f"Wanted {name} as text in UTF-8. Found: an empty one, or characters that cannot be sent")


def _read(name: str, path: FilePath) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"Wanted {name} in the file {os.fspath(path)}. Found: {_reason(error)}") from None


def _context(
    ca: FilePath, certificate: FilePath | None, key: FilePath | None, *, passphrase: str | None, where: str = ""
) -> ssl.SSLContext:
    """Read the files as the driver will, to find errors in them before anything is connected."""

    def refusal(what: str, path: FilePath, found: str) -> OptionError:
        return OptionError(f"Wanted {what} in PEM in {where or os.fspath(path)}. Found: {found}")

    def check(what: str, path: FilePath, block: re.Pattern[str]) -> str:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            text = ""
        except OSError as error:
            raise refusal(what, path, _reason(error)) from None
        if not block.search(text):
            raise refusal(what, path, "no such block in it; openssl converts other formats")
        return text

    def authorities(what: str, path: FilePath) -> ssl.SSLContext:
        check(what, path, _CERTIFICATE)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("DEFAULT:@SECLEVEL=0")  # the driver decides whether keys are long enough
        try:
            context.load_verify_locations(cafile=path)
        except ssl.SSLError as error:
            raise refusal(what, path, f"a damaged one ({_reason(error)})") from None
        return context

    context = authorities("the certificates of authorities (ca)", ca)
    if certificate is None or key is None:
        return context
    authorities("the client's certificate", certificate)  # checked first: else its error would be reported for the key
    is_locked = "ENCRYPTED" in check("the client's private key", key, _KEY)
    try:
        context.load_cert_chain(certificate, key, password=lambda: passphrase or "")
    except (ssl.SSLError, ValueError) as error:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            found = f"the key of another certificate than {where or os.fspath(certificate)}"
        elif is_locked:
            found = "the passphrase does not open it" if passphrase else "it is locked, and no passphrase is given"
        else:
            found = f"a damaged one ({_reason(error)})"
        raise refusal("the client's private key", key, found) from None
    return context


def _reason(error: Exception) -> str:
    """What an error says, without a file's contents."""
    if isinstance(error, UnicodeDecodeError):
        return "no text"
    if isinstance(error, ssl.SSLError):
        return str(error.reason or "no PEM").replace("_", " ").lower()
    return str(getattr(error, "strerror", None) or error)
