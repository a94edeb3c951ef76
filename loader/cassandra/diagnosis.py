"""Why Cassandra cannot be reached: tests each host, after the driver has failed, to name the cause."""

import asyncio
import socket
import ssl
from dataclasses import dataclass
from typing import Any

from formats.tls import is_named, names_of
from loader.cassandra.access import Access, by_name
from loader.cassandra.cluster import Cluster
from loader.cassandra.probe import OPTIONS
from loader.errors import AccessError, LoaderError, UnreachableError

_LOOK_SECONDS = 3.0  # for each step
_SILENT_SECONDS = 0.5  # how long to wait for an alert after the handshake
_NO_ANSWER = (OSError, EOFError, TimeoutError)  # ssl.SSLError is an OSError
_STRANGERS = {18, 19, 20, 21}  # OpenSSL's numbers for certificates of unknown authorities
_TOO_OLD, _TOO_YOUNG = 10, 9
_UNWANTED = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "ACCESS_DENIED")  # in alerts of servers about clients


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """One host to test: what is sent first, how an answer begins, and the name that it must have."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    greeting: bytes = OPTIONS
    # The name that its certificate must have; else its address, or the name from a reverse lookup.
    identity: str | None = None


async def diagnosis(cluster: Cluster) -> LoaderError | None:
    """The error that says what is wrong with the hosts or with access to them, within a few seconds and without sending
    a secret; None if these tests find nothing.
    """
    hosts, port, access = cluster.hosts, cluster.port, cluster.access
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
        return None  # at least one host is as it should be, so the driver has another reason
    sayings: dict[str, list[str]] = {}
    for endpoint, error in zip(endpoints, errors, strict=True):
        sayings.setdefault(str(error), []).append(endpoint.host)
    # If hosts differ, one that answers and refuses says more than one that does not answer.
    kind = AccessError if any(isinstance(error, AccessError) for error in errors) else UnreachableError
    said = next(iter(sayings))
    if len(sayings) > 1:
        said = " ".join(f"{', '.join(where)}: {words}" for words, where in sayings.items())
    return kind(f"Wanted {what} at {', '.join(endpoint.host for endpoint in endpoints)} port {port}. Found: {said}")


async def _look(endpoint: _Endpoint, access: Access, names: bool) -> None:
    """Raise what is wrong with a host. The message follows "Found: "."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise UnreachableError("the name server does not answer. Is it running?") from None
    except OSError as error:
        raise UnreachableError(
            f"its name does not resolve ({error.strerror}). Correct the name, or give the address."
        ) from None
    try:
        answer, certificate, address = await _ask(endpoint, endpoint.tls)
    except ssl.SSLCertVerificationError as error:
        raise AccessError(_distrust(error, access)) from None
    except ConnectionRefusedError:
        raise UnreachableError("nothing listens there. Is Cassandra running, and is the port right?") from None
    except TimeoutError:
        raise UnreachableError(
            f"no answer within {_LOOK_SECONDS:.0f} s. Is it Cassandra's port? Does a firewall block it?"
        ) from None
    except _NO_ANSWER as error:
        await _explain_silence(endpoint, access, error)
        raise UnreachableError(_reason(error)) from None
    if certificate is not None:
        if endpoint.identity is not None:
            _check_identity(certificate, "DNS", endpoint.identity, "Download the bundle again")
        elif names:
            called = await _called(address)
            looked_up = f"{called}, which is the reverse lookup of {address}"
            _check_identity(
                certificate,
                "DNS",
                called,
                "Give hosts by address if it names these, or get a certificate for the name",
                looked_up,
            )
        else:
            _check_identity(
                certificate, "IP Address", address, "Give hosts by name if it names these, or get one for the address"
            )
    if endpoint.identity is not None and not answer.partition(b" ")[2].startswith(b"2"):
        said = answer.decode("ascii", "replace").strip()
        raise UnreachableError(f"the answer {said!r}. Is the database running? Does the bundle belong to it?")


async def _ask(endpoint: _Endpoint, tls: ssl.SSLContext | None) -> tuple[bytes, dict[str, Any] | None, str]:
    """The first bytes of an answer, the server's certificate and its address. Raises what a connection raises, and
    `EOFError` if it ends, or if the answer is of another kind.
    """
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
    """Wait for a server's objection to the client's certificate."""
    # The server sends it when the client takes the handshake for complete, and closes the connection. Bytes on their
    # way to it would then hide its message.
    try:
        async with asyncio.timeout(_SILENT_SECONDS):
            if not await reader.read(1):
                raise EOFError("the connection is closed after the handshake")
    except TimeoutError:
        return
    raise EOFError("an answer that is not Cassandra's")


async def _explain_silence(endpoint: _Endpoint, access: Access, error: Exception) -> None:
    """Raise an error if the server wants a certificate, or if only one side speaks TLS."""
    if endpoint.tls is None:
        curious = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        curious.check_hostname, curious.verify_mode = False, ssl.CERT_NONE  # no secret is sent on this connection
        if await _speaks(endpoint, curious):
            raise AccessError(
                "it uses TLS. Give the authorities that sign its certificate: access=loader.Access(ca=...), or "
                "IMAGESTRATA_CA."
            )
    elif "ALERT" in (reason := str(getattr(error, "reason", None) or "")):
        said = reason.rpartition("ALERT_")[2].replace("_", " ").lower()
        if not any(word in reason for word in _UNWANTED):
            raise AccessError(f"it ends the TLS handshake ({said}). Check the server's versions and ciphers.")
        if access.bundle is None and access.certificate is None:
            raise AccessError(
                f"it requires a client certificate ({said}). Give certificate and key: "
                "loader.Access(ca=..., certificate=..., key=...), or IMAGESTRATA_CERTIFICATE and IMAGESTRATA_KEY."
            )
        which = access.certificate if access.bundle is None else f"of the bundle {access.bundle}"
        raise AccessError(
            f"it refuses the client's certificate {which} ({said}). Has it expired? Does the server know the "
            "authority that signed it?"
        )
    elif await _speaks(endpoint, None):
        raise AccessError(
            "it does not use TLS. Leave out ca, certificate and key (IMAGESTRATA_CA, ...), or have the server "
            "encrypt: client_encryption_options in cassandra.yaml."
        )


async def _speaks(endpoint: _Endpoint, tls: ssl.SSLContext | None) -> bool:
    """Whether there is an answer, even if it asks for a certificate."""
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
    return str(error) or "it closes the connection immediately. Is it Cassandra's port?"


def _distrust(error: ssl.SSLCertVerificationError, access: Access) -> str:
    if error.verify_code == _TOO_OLD:
        return "its certificate has expired. Renew the server's certificate. Is this machine's clock right?"
    if error.verify_code == _TOO_YOUNG:
        return "its certificate is not valid yet. Is this machine's clock right?"
    if error.verify_code in _STRANGERS:
        known, advice = f"in {access.ca}", "Give the right ca."
        if access.bundle is not None:
            known, advice = f"of the bundle {access.bundle}", "Download the bundle again."
        return f"a certificate that no authority {known} has signed ({error.verify_message}). {advice}"
    return f"a certificate that cannot be trusted: {error.verify_message}"


async def _called(address: str) -> str:
    """The name that the driver will require in a certificate."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            return (await loop.getnameinfo((address, 0)))[0].rstrip(".")
    except (OSError, TimeoutError):
        return address


def _check_identity(certificate: dict[str, Any], kind: str, called: str, advice: str, known_as: str = "") -> None:
    if is_named(certificate, kind, called):
        return
    named, common = names_of(certificate)
    has = ", ".join(value for _, value in named) or f"{', '.join(common)} (its common name)"
    raise AccessError(f"a certificate for {has}, not for {known_as or called}. {advice}.")
