"""Why Cassandra cannot be reached: a look at each host, after the driver has failed, that names the cause."""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loader.cassandra.access import Access, by_name
from loader.cassandra.probe import OPTIONS
from loader.errors import AccessError, LoaderError, UnreachableError

_LOOK_SECONDS = 3.0  # for each step of a look
_SILENT_SECONDS = 0.5
_NO_ANSWER = (OSError, EOFError, TimeoutError)  # ssl.SSLError is an OSError
_STRANGERS = {18, 19, 20, 21}  # OpenSSL's numbers for certificates that no known authority has signed
_TOO_OLD, _TOO_YOUNG = 10, 9
_UNWANTED = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "ACCESS_DENIED")  # what servers say of clients


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """One host to look at: what is said there first, how an answer begins, and by what name it is known."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    greeting: bytes = OPTIONS
    identity: str | None = None
    """The name that its certificate must have; else its address, or what a reverse lookup calls that."""


async def diagnosis(hosts: Sequence[str], port: int, access: Access) -> LoaderError | None:
    """The error that says what is wrong with the hosts or the access to them; None if nothing is, as far as is seen.

    Takes a few seconds at most. No secret is sent.
    """
    tls = access.tls()
    if access.bundle is not None:
        host, port = access.metadata_service()
        request = f"GET /metadata?version=1 HTTP/1.0\r\nHost: {host}:{port}\r\nAccept: */*\r\n\r\n"
        endpoints, what = [_Endpoint(host, port, tls, request.encode(), host)], "the bundle's metadata service"
    else:
        endpoints, what = [_Endpoint(host, port, tls) for host in hosts], "Cassandra"
    names = by_name(hosts)
    found = await asyncio.gather(*(_look(endpoint, access, names) for endpoint in endpoints), return_exceptions=True)
    errors = [one for one in found if isinstance(one, LoaderError)]
    if len(errors) < len(endpoints):
        return None  # one host at least is as it should be, and the driver has another reason
    sayings: dict[str, list[str]] = {}
    for endpoint, error in zip(endpoints, errors, strict=True):
        sayings.setdefault(str(error), []).append(endpoint.host)
    # Where hosts differ, one that answers and refuses tells more than one that is away.
    kind = AccessError if any(isinstance(error, AccessError) for error in errors) else UnreachableError
    said = next(iter(sayings))
    if len(sayings) > 1:
        said = " ".join(f"{', '.join(where)}: {words}" for words, where in sayings.items())
    return kind(f"Wanted {what} at {', '.join(endpoint.host for endpoint in endpoints)} port {port}. Found: {said}")


async def _look(endpoint: _Endpoint, access: Access, names: bool) -> None:
    """Raises what is wrong; its words follow upon "Found: "."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise UnreachableError("no answer about its name. Is the name server at work?") from None
    except OSError as error:
        raise UnreachableError(
            f"its name does not resolve ({error.strerror}). Correct the name, or give the address."
        ) from None
    try:
        answer, certificate, address = await _ask(endpoint, endpoint.tls)
    except ssl.SSLCertVerificationError as error:
        raise AccessError(_distrust(error, access)) from None
    except ConnectionRefusedError:
        raise UnreachableError("nothing listens there. Is Cassandra up, and the port right?") from None
    except TimeoutError:
        raise UnreachableError(
            f"no answer within {_LOOK_SECONDS:.0f} s. Is it Cassandra's port, and does a firewall let it through?"
        ) from None
    except _NO_ANSWER as error:
        await _explain_silence(endpoint, access, error)
        raise UnreachableError(_reason(error)) from None
    if certificate is not None:
        if endpoint.identity is not None:
            _check_identity(certificate, "DNS", endpoint.identity, "Download the bundle again")
        elif names:
            called = await _called(address)
            looked_up = f"{called}, as a reverse lookup calls {address}"
            _check_identity(
                certificate,
                "DNS",
                called,
                "Give hosts by address if it names these, or have one made that does",
                looked_up,
            )
        else:
            _check_identity(
                certificate, "IP Address", address, "Give hosts by name if it names these, or have one made that does"
            )
    if endpoint.identity is not None and not answer.partition(b" ")[2].startswith(b"2"):
        said = answer.decode("ascii", "replace").strip()
        raise UnreachableError(f"the answer {said!r}. Is the database awake, and the bundle its own?")


async def _ask(endpoint: _Endpoint, tls: ssl.SSLContext | None) -> tuple[bytes, dict[str, Any] | None, str]:
    """The first bytes of an answer, the server's certificate and its address. Raises what a connection raises, and
    `EOFError` where it ends, or what comes is no answer of that kind."""
    async with asyncio.timeout(_LOOK_SECONDS):
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=tls)
        try:
            if tls is not None:
                await _stay_silent(reader)
            writer.write(endpoint.greeting)
            answer = await reader.readline() if endpoint.identity is not None else await reader.readexactly(9)
            if endpoint.identity is None and not answer[0] & 0x80:
                raise EOFError("an answer that is not Cassandra's")
            return answer, writer.get_extra_info("peercert"), writer.get_extra_info("peername")[0]
        finally:
            writer.transport.abort()


async def _stay_silent(reader: asyncio.StreamReader) -> None:
    """Hear what a server has against the client's certificate. It says so when the client takes the handshake for done,
    and hangs up: words that were on their way to it then would drown its own."""
    try:
        async with asyncio.timeout(_SILENT_SECONDS):
            if not await reader.read(1):
                raise EOFError("the connection is closed after the handshake")
    except TimeoutError:
        return
    raise EOFError("an answer that is not Cassandra's")


async def _explain_silence(endpoint: _Endpoint, access: Access, error: Exception) -> None:
    """Raises where the server wants a certificate, or one side speaks TLS and the other does not."""
    if endpoint.tls is None:
        curious = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        curious.check_hostname, curious.verify_mode = False, ssl.CERT_NONE  # nothing is told to whom it answers
        if await _speaks(endpoint, curious):
            raise AccessError(
                "it speaks TLS. Give the authorities that sign its certificate: access=loader.Access(ca=...), or "
                "IMAGESTRATA_CA."
            )
    elif "ALERT" in (reason := str(getattr(error, "reason", None) or "")):
        said = reason.rpartition("ALERT_")[2].replace("_", " ").lower()
        if not any(word in reason for word in _UNWANTED):
            raise AccessError(f"it breaks off TLS ({said}). Are its versions and ciphers of this century?")
        if access.bundle is None and access.certificate is None:
            raise AccessError(
                f"it wants the client's certificate ({said}). Give certificate and key: "
                "loader.Access(ca=..., certificate=..., key=...), or IMAGESTRATA_CERTIFICATE and IMAGESTRATA_KEY."
            )
        which = access.certificate if access.bundle is None else f"of the bundle {access.bundle}"
        raise AccessError(
            f"it refuses the client's certificate {which} ({said}). Has it expired, or been signed by "
            "an authority that the server does not know?"
        )
    elif await _speaks(endpoint, None):
        raise AccessError(
            "it speaks no TLS. Leave out ca, certificate and key (IMAGESTRATA_CA, ...), or have the server encrypt: "
            "client_encryption_options in cassandra.yaml."
        )


async def _speaks(endpoint: _Endpoint, tls: ssl.SSLContext | None) -> bool:
    """Whether there is an answer, be it that a certificate is wanted."""
    try:
        await _ask(endpoint, tls)
    except ssl.SSLError as error:
        return "ALERT" in str(error.reason)
    except _NO_ANSWER:
        return False
    return True


def _reason(error: Exception) -> str:
    if isinstance(error, asyncio.IncompleteReadError):
        return "it closes the connection without an answer. Is it Cassandra's port?"
    return str(error) or "it closes the connection at once. Is it Cassandra's port?"


def _distrust(error: ssl.SSLCertVerificationError, access: Access) -> str:
    if error.verify_code == _TOO_OLD:
        return "its certificate has expired. Have the server's certificate renewed; is this machine's clock right?"
    if error.verify_code == _TOO_YOUNG:
        return "its certificate is not valid yet. Is this machine's clock right?"
    if error.verify_code in _STRANGERS:
        known, advice = f"in {access.ca}", "Give the right ca."
        if access.bundle is not None:
            known, advice = f"of the bundle {access.bundle}", "Download the bundle again."
        return f"a certificate that none of the authorities {known} has signed ({error.verify_message}). {advice}"
    return f"a certificate that cannot be trusted: {error.verify_message}"


async def _called(address: str) -> str:
    """The name that the driver will want in a certificate."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            return (await loop.getnameinfo((address, 0)))[0].rstrip(".")
    except (OSError, TimeoutError):
        return address


def _check_identity(certificate: dict[str, Any], kind: str, called: str, advice: str, known_as: str = "") -> None:
    if is_named(certificate, kind, called):
        return
    named, common = _names(certificate)
    has = ", ".join(value for _, value in named) or f"{', '.join(common)} (its common name)"
    raise AccessError(f"a certificate for {has}, not for {known_as or called}. {advice}.")


def is_named(certificate: dict[str, Any], kind: str, called: str) -> bool:
    """Whether a certificate, as `ssl` tells it, is for this name ("DNS") or address ("IP Address")."""
    named, common = _names(certificate)
    return any(
        _is_same(called, value) for value in ([value for its, value in named if its == kind] if named else common)
    )


def _names(certificate: dict[str, Any]) -> tuple[Sequence[tuple[str, str]], list[str]]:
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return certificate.get("subjectAltName", ()), common


def _is_same(called: str, value: str) -> bool:
    try:
        return ipaddress.ip_address(called) == ipaddress.ip_address(value)
    except ValueError:
        called, value = called.lower(), value.lower()
        return called == value or (value.startswith("*.") and called.partition(".")[2] == value[2:])
