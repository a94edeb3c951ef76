"""How to reach the buckets that shards and image folders lie in."""

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from loader.errors import AccessError, OptionError, UnreachableError

if TYPE_CHECKING:
    from formats.stores.s3 import S3Access
    from formats.stores.storage import Storage

_HOST = re.compile(r"[\w.-]+:[0-9]+(/.*)?")


@dataclass(frozen=True, slots=True)
class Client:
    """An endpoint and the keys to it, or a local folder whose folders are the buckets; `make_client` makes it.

    It holds no connection, pickles with its keys, and shows none of them in its repr.
    """

    url: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)

    @property
    def is_local(self) -> bool:
        """Whether buckets are folders of this machine."""
        return self.url is not None and urlsplit(self.url).scheme in ("", "file")

    def address(self, bucket: str, folder: str = "") -> str:
        """The address of a folder in a bucket. Raises `OptionError` for names that cannot be."""
        is_named = isinstance(bucket, str) and bucket.strip("/") and isinstance(folder, str) and "://" not in bucket
        if not is_named or {".", ".."} & {*bucket.split("/"), *folder.split("/")}:
            raise OptionError(f"Wanted a bucket and a folder in it by their names. Found: {bucket!r}, {folder!r}")
        parts = "/".join(filter(None, (bucket.strip("/"), folder.strip("/"))))
        if not self.is_local:
            return f"s3://{parts}"
        return os.path.join(os.path.abspath(str(self.url).removeprefix("file://")), parts)

    def storage(self, bucket: str, folder: str = "", *, create: bool | None = None) -> "Storage":
        """A folder in a bucket, opened.

        A bucket that is missing is made with ``create``; with False the error names this remedy. Raises `AccessError`,
        `UnreachableError` if the endpoint does not let us in.
        """
        from formats import StorageError
        from formats.errors import NoBucketError
        from formats.stores.storage import Storage

        try:
            storage = Storage(self.address(bucket, folder), None if self.is_local else self._access())
            if create:
                storage.make_bucket()
            storage.check()
        except NoBucketError as error:
            remedy = " Make it, or say create_bucket=True." if create is False else ""
            raise AccessError(f"{error}{remedy}") from None
        except StorageError as error:
            raise told(error) from None
        return storage

    def _access(self) -> "S3Access":
        """What was given, else what the environment says; keys come from one of them only."""
        from formats.stores.s3 import S3Access

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
    """The connection settings of an S3 endpoint, ``http://host:port`` or ``https://host``; nothing is asked of it yet.

    What is None is for the environment to say (``AWS_ENDPOINT_URL``, ``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``,
    profiles, roles); without an endpoint it is Amazon's. The path of a local folder instead of a URL makes its folders
    the buckets. Raises `OptionError` for a URL of another kind, and for one key without the other.
    """
    text = None if url is None else os.path.expanduser(os.fspath(url))
    if text is not None and (not text or _HOST.fullmatch(text)):
        raise OptionError(f"Wanted the URL of an S3 endpoint, as http://host:port, or a folder's path. Found: {text!r}")
    if text is not None and urlsplit(text).scheme in ("", "file") and access_key is not None:
        raise OptionError(f"Wanted the URL of an S3 endpoint with keys, as http://host:port. Found: {text!r}")
    if text is not None and urlsplit(text).scheme not in ("", "file", "http", "https"):
        raise OptionError(f"Wanted the URL of an S3 endpoint, or a folder's path. Found: {text!r}")
    if (access_key is None) != (secret_key is None):
        raise OptionError("Wanted access_key and secret_key, or neither. Found: one of them")
    return Client(text, access_key, secret_key, session_token)


def told(error: Exception) -> AccessError | UnreachableError:
    """A storage's error as this package's own."""
    from formats import RefusedError

    return (AccessError if isinstance(error, RefusedError) else UnreachableError)(str(error))
