"""How to reach the buckets of shards and image folders."""

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from formats import RefusedError, StorageError
from formats.errors import AddressError, NoBucketError
from formats.stores.s3 import S3Access, check_address
from loader.errors import AccessError, OptionError, UnreachableError

if TYPE_CHECKING:
    from formats.stores.storage import Storage

_HOST = re.compile(r"[\w.-]+:[0-9]+(/.*)?")


@dataclass(frozen=True, slots=True)
class Client:
    """An endpoint and its keys, or a local folder whose folders are the buckets. `make_client` makes it.

    It holds no connection. Its pickle has the keys, its repr has none.

    Attributes:
        url: The endpoint, or the folder; None: as the environment says.
        access_key: The access key.
        secret_key: The secret key.
        session_token: The session token of temporary keys.
    """

    url: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)

    @property
    def is_local(self) -> bool:
        """Whether buckets are folders of this machine."""
        return self.url is not None and urlsplit(self.url).scheme in ("", "file")

    def address(self, bucket: str, folder: str = "") -> str:
        """The address of a folder in a bucket.

        Args:
            bucket: The name of the bucket.
            folder: The folder in it.

        Returns:
            ``s3://bucket/folder``, or a path.

        Raises:
            OptionError: The names are not possible.
        """
        is_named = isinstance(bucket, str) and bucket.strip("/") and isinstance(folder, str) and "://" not in bucket
        if not is_named or {".", ".."} & {*bucket.split("/"), *folder.split("/")}:
            raise OptionError(f"Wanted a bucket and a folder in it by their names. Found: {bucket!r}, {folder!r}")
        parts = "/".join(filter(None, (bucket.strip("/"), folder.strip("/"))))
        if not self.is_local:
            return f"s3://{parts}"
        return os.path.join(os.path.abspath(str(self.url).removeprefix("file://")), parts)

    def storage(self, bucket: str, folder: str = "", *, create: bool | None = None) -> "Storage":
        """Open a folder in a bucket.

        Args:
            bucket: The name of the bucket.
            folder: The folder in it.
            create: Whether a missing bucket is made. If False, the error says how.

        Returns:
            The folder.

        Raises:
            AccessError: The endpoint refuses access, or the bucket is missing.
            UnreachableError: The endpoint does not answer.
        """
        from formats.stores.storage import Storage

        try:
            storage = Storage(self.address(bucket, folder), None if self.is_local else self._access())
            if create:
                storage.make_bucket()
            storage.check()
        except NoBucketError as error:
            remedy = " Create it, or use create_bucket=True." if create is False else ""
            raise AccessError(f"{error}{remedy}") from None
        except StorageError as error:
            raise told(error) from None
        return storage

    def _access(self) -> "S3Access":
        """The given keys, or else those of the environment; never one of each."""
        found = S3Access.from_environment()
        endpoint = self.url or found.endpoint
        if self.access_key or self.secret_key:
            return S3Access(endpoint, self.access_key, self.secret_key, self.session_token)
        return S3Access(endpoint, found.key, found.secret, found.token)


def make_client(
    url: str | os.PathLike[str] | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
    *,
    session_token: str | None = None,
) -> Client:
    """The connection settings of an S3 endpoint. This sends no request.

    What you leave out comes from the environment: ``AWS_ENDPOINT_URL``, ``AWS_ACCESS_KEY_ID``,
    ``AWS_SECRET_ACCESS_KEY``, profiles and roles. Without an endpoint, it is Amazon's.

    Args:
        url: ``http://host:port`` or ``https://host``; or the path of a local folder, whose folders are then the
            buckets.
        access_key: The access key. Give both keys, or neither.
        secret_key: The secret key.
        session_token: The session token of temporary keys.

    Returns:
        The settings.

    Raises:
        OptionError: The URL is of another kind or has a password, or one key is given without the other.
    """
    text = None if url is None else os.path.expanduser(os.fspath(url))
    parts = urlsplit(text or "")
    try:  # first: other messages show the URL
        check_address(text or "")
    except AddressError as error:
        raise OptionError(str(error)) from None
    if parts.scheme in ("http", "https") and (not parts.netloc or parts.query or parts.fragment):
        raise OptionError("Wanted the URL of an S3 endpoint, as http://host:port. Found: no host, or a query")
    if text is not None and (not text or _HOST.fullmatch(text)):
        raise OptionError(f"Wanted the URL of an S3 endpoint, as http://host:port, or a folder's path. Found: {text!r}")
    if text is not None and parts.scheme in ("", "file") and access_key is not None:
        raise OptionError(f"Wanted the URL of an S3 endpoint with keys, as http://host:port. Found: {text!r}")
    if text is not None and parts.scheme not in ("", "file", "http", "https"):
        raise OptionError(f"Wanted the URL of an S3 endpoint, or a folder's path. Found: {text!r}")
    if (access_key is None) != (secret_key is None):
        raise OptionError("Wanted access_key and secret_key, or neither. Found: one of them")
    return Client(text, access_key, secret_key, session_token)


def told(error: Exception) -> AccessError | UnreachableError:
    """A storage's error as an error of this package."""
    return (AccessError if isinstance(error, RefusedError) else UnreachableError)(str(error))
