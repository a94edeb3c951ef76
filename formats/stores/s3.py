"""S3 endpoints: credentials, timeouts and error messages."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from formats.errors import AddressError, NoBucketError, RefusedError, StorageError

CHECK_SECONDS = 10.0  # the time limit for the check whether an endpoint is up

_CONNECT_SECONDS = 3.0
_READ_SECONDS = 15.0
_ATTEMPTS = 3
_BLOCK = 4 << 20  # read-ahead of each open file, of which a process has several
_REFUSED = (
    *("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "TokenRefreshRequired"),
    "XAdminUserNotFound",  # versitygw's code for an unknown key
)
_NO_KEYS = ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError")


@dataclass(frozen=True, slots=True)
class S3Access:
    """An endpoint and its keys. The environment of the process supplies what is None. The default endpoint is Amazon's.
    Secrets do not appear in the repr.
    """

    endpoint: str | None = None
    key: str | None = None
    secret: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_address(self.endpoint or "")

    @classmethod
    def from_environment(cls, env: Mapping[str, str] = os.environ) -> "S3Access":
        """Read the ``AWS_*`` variables. The client finds profiles and roles itself."""
        get = env.get
        return cls(
            endpoint=get("AWS_ENDPOINT_URL_S3") or get("AWS_ENDPOINT_URL") or None,
            key=get("AWS_ACCESS_KEY_ID") or None,
            secret=get("AWS_SECRET_ACCESS_KEY") or None,
            token=get("AWS_SESSION_TOKEN") or None,
        )

    @property
    def place(self) -> str:
        """The endpoint for messages."""
        return self.endpoint or "the S3 endpoint of this environment"

    def options(self) -> dict[str, Any]:
        """The arguments of the file system."""
        given = {"endpoint_url": self.endpoint, "key": self.key, "secret": self.secret, "token": self.token}
        config = {
            "connect_timeout": _CONNECT_SECONDS,
            "read_timeout": _READ_SECONDS,
            "signature_version": "s3v4",  # also for presigned URLs, where the client would use an older version
            "retries": {"mode": "standard", "total_max_attempts": _ATTEMPTS},
            "max_pool_connections": 64,
        }
        return {
            **{name: value for name, value in given.items() if value},
            "config_kwargs": config,
            "default_block_size": _BLOCK,
            "use_listings_cache": False,  # other processes write too
        }


def is_s3(address: str) -> bool:
    """Whether an address is an S3 address."""
    return address.startswith(("s3://", "s3a://"))


def check_address(address: str) -> None:
    """Raise `AddressError` for an address with a password, as in ``ftp://user:password@host``, or for a web address
    with a token: logs show addresses.
    """
    scheme, _, rest = address.partition("://")
    user, _, host = rest.partition("/")[0].rpartition("@")
    if ":" in user or (user and scheme.lower() in ("http", "https")):
        raise AddressError(
            f"Wanted an address without a password: logs and manifests show addresses. Found: one for {host}. "
            "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what the storage's package reads."
        )


def is_foreign(error: BaseException) -> bool:
    """Whether the client library defines an error's class, which callers do not know."""
    return type(error).__module__.partition(".")[0] in ("botocore", "aiobotocore", "aiohttp", "fsspec")


def is_down(error: BaseException) -> bool:
    """Whether the endpoint did not answer."""
    return any("Connect" in kind.__name__ or "Timeout" in kind.__name__ for kind in type(error).__mro__)


def code(error: BaseException) -> str | None:
    """The endpoint's code for an error, such as ``NoSuchBucket``."""
    for one in (error, error.__cause__, error.__context__):
        response = getattr(one, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", "")) or None
    return None


def refusal(error: BaseException, *, address: str, bucket: str, access: S3Access) -> StorageError:
    """Make a one-line error for users that names the address and the endpoint."""
    wanted = f"Wanted {address} at {access.place}."
    found = code(error)
    if found == "NoSuchBucket":
        return NoBucketError(f"{wanted} Found: no bucket {bucket!r} there.")
    if found in _REFUSED:
        return RefusedError(
            f"{wanted} Found: the keys are rejected ({found}). Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    if found == "AccessDenied":
        return RefusedError(f"{wanted} Found: the keys lack the permission (AccessDenied).")
    if type(error).__name__ in _NO_KEYS:
        return RefusedError(f"{wanted} Found: no keys. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.")
    if is_down(error):
        return StorageError(f"{wanted} Found: no answer. Is it up, and is its address right (AWS_ENDPOINT_URL)?")
    words = " ".join(str(getattr(error, "strerror", None) or error).split()) or type(error).__name__
    return StorageError(f"{wanted} Found: {words}")
