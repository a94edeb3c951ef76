"""Addresses of folders and objects: which stores are supported, and what typos look like."""

import os
import re

from formats.errors import AddressError

SUPPORTED = "a local path, s3://bucket/prefix or hdfs://host/path"  # the stores that are supported, for messages

_SCHEME = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9+.-]*):(?P<slashes>/*)(?P<rest>.*)", re.DOTALL)
_KNOWN = {"s3": (2,), "s3a": (2,), "hdfs": (2, 3), "file": (2, 3)}  # supported schemes, and how many slashes may follow
_OTHERS = ("abfs", "abfss", "az", "dbfs", "ftp", "gcs", "gs", "http", "https", "oss", "sftp", "wasb", "wasbs")
_WEB = ("http", "https")


def check_store(address: str) -> None:
    """Raise `AddressError` for an address that no store has: a typo such as ``s3:/bucket``, an S3 address without a
    bucket, a web server, or a store for which no package of fsspec is installed. No request is sent.
    """
    parts = _SCHEME.match(address)
    if parts is None or os.path.exists(address):
        return
    scheme, slashes, rest = parts["name"].lower(), parts["slashes"], parts["rest"]
    if "://" not in address[: parts.start("rest")] and scheme not in (*_KNOWN, *_OTHERS):
        return  # a local path with a colon in it
    wanted = f"Wanted {SUPPORTED}. Found: {address}"
    if scheme in _WEB:
        raise AddressError(
            f"{wanted}. Web servers are not supported. For an S3 server, use s3://bucket/prefix and set "
            "AWS_ENDPOINT_URL to its address."
        )
    if scheme not in _KNOWN:
        if reason := _not_opened(scheme):
            raise AddressError(f"{wanted}. {reason}")
        if len(slashes) < 2:
            raise AddressError(f"{wanted}. Did you mean {scheme}://{rest}?")
        return
    is_right = len(slashes) in _KNOWN[scheme] and parts["name"] == scheme
    if not is_right and rest:
        guess = f"{scheme}:///{rest}" if scheme == "file" else f"{scheme}://{rest}"
        raise AddressError(f"{wanted}. Did you mean {guess}?")
    if scheme in ("s3", "s3a") and not rest:
        raise AddressError(f"{wanted}, which has no bucket")


def not_supported(address: str) -> str:
    """The message for an address that a package refuses."""
    return f"Wanted {SUPPORTED}. Found: {address}. {address.partition('://')[0]}:// is not supported."


def _not_opened(scheme: str) -> str:
    """Why no installed package opens the addresses of this scheme; empty if one does."""
    if scheme == "dbfs":  # fsspec's class needs the address of a workspace and a token
        return "dbfs:// is not supported. Use the path under which it is mounted, such as /dbfs or /Volumes."
    from fsspec import get_filesystem_class  # imports the package of the scheme: only for such addresses

    try:
        get_filesystem_class(scheme)
    except ImportError as error:
        package = getattr(error.__cause__, "name", None)
        return f"{scheme}:// needs {package or 'a package'}, which is not installed, and has not been tried."
    except ValueError:
        return f"{scheme}:// is not supported."
    return ""
