"""The client of a dataset service: list, create, push and pull."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imagestrata.hub.bar import Progress, bars
from imagestrata.hub.errors import OptionError
from imagestrata.hub.http import Connection, Service
from imagestrata.hub.local_copy import LocalCopy, disk_errors
from imagestrata.hub.names import listed
from imagestrata.hub.pull import pull
from imagestrata.hub.push import push
from imagestrata.hub.tar import FileSource, FolderSource, Source
from schemas.datasets import check_name
from schemas.errors import SchemaError

StrPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A version of a dataset: the newest one at a service, or the one that was pulled.

    An empty dataset has only a name.

    Attributes:
        name: The name of the dataset.
        version: The number of the version.
        kind: "file" or "folder".
        bytes: The size of the file, or of the folder as a tar.
        files: The number of files.
        images: The number of images, if the service knows it.
        num_classes: The number of classes, if the service knows it: of a tree of images, that of innermost folders.
        created: The time of publication, ISO 8601 in UTC.
        sha256: The SHA-256 of the file, or of the folder as a tar, in hexadecimal digits.
        problem: Why the newest version cannot be read, if it cannot.
    """

    name: str
    version: int | None = None
    kind: str | None = None
    bytes: int = 0
    files: int = 0
    images: int | None = None
    num_classes: int | None = None
    created: str | None = None
    sha256: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedDataset:
    """The result of a push.

    Attributes:
        name: The name of the dataset.
        version: The number of the version.
        kind: "file" or "folder".
        bytes: The size of the file, or of the folder as a tar.
        files: The number of files.
        sha256: The SHA-256 of the file, or of the folder as a tar, in hexadecimal digits.
        is_new: False if the newest version had the same bytes; then nothing was published.
        is_created: Whether the push created the dataset.
        images: The number of images, if the service knows it.
        num_classes: The number of classes, if the service knows it: of a tree of images, that of innermost folders.
    """

    name: str
    version: int
    kind: str
    bytes: int
    files: int
    sha256: str
    is_new: bool
    is_created: bool = False
    images: int | None = None
    num_classes: int | None = None


class Datasets:
    """The datasets of a service. Safe for threads. A pickle of it contains the token.

    All methods raise `AccessError` if the service refuses the token, `UnreachableError` if it does not respond for
    ``patience`` seconds, and `DatasetError` for its other errors.

    Args:
        url: The address of the service, such as ``http://host:8080``.
        token: The token; by default the environment variable IMAGESTRATA_TOKEN.
        patience: How many seconds to wait for a service that does not respond.
    """

    def __init__(self, url: str, token: str | None = None, *, patience: float = 30.0) -> None:
        self._service = Service.at(url, token, patience)

    def __repr__(self) -> str:
        return f"Datasets({self._service.url!r})"

    def list(self) -> list[Dataset]:
        """List all datasets by name, each with its newest version."""
        with Connection(self._service) as connection:
            return [_dataset({**one, **(one["newest"] or {})}) for one in listed(connection)]

    def create(self, name: str, *, exist_ok: bool = False) -> None:
        """Create an empty dataset.

        Args:
            name: The name of the dataset.
            exist_ok: Do nothing if the dataset exists.

        Raises:
            DatasetError: The dataset exists, and ``exist_ok`` is not set.
        """
        with Connection(self._service) as connection:
            connection.ask("POST", "/datasets", body={"name": _name(name)}, fine=(201, 409) if exist_ok else (201,))

    def push(
        self, path: StrPath, name: str | None = None, *, create: bool | None = None, progress: bool = True
    ) -> PushedDataset:
        """Publish a folder or a file as the newest version of a dataset. It becomes visible when it is complete.

        A folder is sent as a tar that is never written to disk. Equal files give equal bytes, so that a second push
        publishes nothing. Times, owners and permissions of files are not stored. Links are followed inside the folder
        only. A push continues after a lost connection; after an interruption, the next call with the same path and name
        continues it.

        Args:
            path: The folder or file.
            name: The name of the dataset; by default the name of the folder or file.
            create: Whether to create a dataset that does not exist. By default it is created, unless its name looks
                like a misspelt name of another dataset.
            progress: Show a bar on a terminal.

        Returns:
            The published version.

        Raises:
            DatasetError: The file is empty, the folder has no files, a file changes during the push, or the path is
                neither a file nor a folder.
        """
        path = Path(os.path.abspath(path))
        name = _name(path.name if name is None else name)
        source: Source = FolderSource(path) if path.is_dir() else FileSource(path)
        with Connection(self._service) as connection, bars(progress) as show:
            found = push(connection, source, name=name, path=path, create=create, show=show)
        return PushedDataset(**{key: found[key] for key in PushedDataset.__slots__ if key in found})

    def restore(self, name: str, version: int) -> Dataset:
        """Make an older version the newest again, under a new number and without an upload.

        Nothing changes if the newest version has the same bytes.

        Args:
            name: The name of the dataset.
            version: The older version.

        Returns:
            The newest version.

        Raises:
            DatasetError: There is no such version.
        """
        path = f"/datasets/{_name(name)}/restore?version={_version(version)}"
        with Connection(self._service) as connection:
            return _dataset(connection.ask("POST", path, keys=("version",)).json)

    def pull(
        self,
        name: str,
        to: StrPath = "/datasets",
        version: int | None = None,
        *,
        keep: bool = False,
        progress: bool | Progress = True,
    ) -> Path:
        """Download a dataset to ``to/name``.

        The files of a folder are placed as they were pushed, a file as ``to/name/FILENAME``. ``to/name`` is a link to
        the folder of a version: a newer version replaces an older one in one step, and then the older files are
        removed. Even if the pull is killed, ``to/name`` is always one complete version. The next call continues an
        interrupted pull. While a folder is unpacked, its tar takes space, too. Processes that pull the same dataset to
        the same folder wait for each other.

        Args:
            name: The name of the dataset.
            to: The folder in which ``name`` is placed.
            version: The version; by default the newest.
            keep: Do nothing, without asking the service, if any version is there already.
            progress: Show bars on a terminal. A function is called with ("download", bytes done, all bytes), then
                ("unpack", files done, all files).

        Returns:
            The path ``to/name``.

        Raises:
            DatasetError: There is no such version, the bytes have another SHA-256, the disk is full, or ``to/name``
                exists and no pull has made it.
            OptionError: Both ``keep`` and ``version`` are given.
        """
        _name(name)
        if version is not None:
            _version(version)
        if keep and version is not None:
            raise OptionError(f"Wanted keep or a version. Found: both, version {version}")
        folder = Path(os.path.abspath(to))
        with Connection(self._service) as connection, bars(progress) as show:
            pull(connection, name, folder, version, show, keep=keep)
        return folder / name

    def pulled(self, name: str, to: StrPath = "/datasets") -> Dataset | None:
        """Describe the pulled version at ``to/name``, without asking the service.

        Args:
            name: The name of the dataset.
            to: The folder in which ``name`` was placed.

        Returns:
            The version, or None if none was pulled.
        """
        folder = Path(os.path.abspath(to))
        with disk_errors(folder, 0):
            found = LocalCopy(folder, _name(name)).now()
        return None if found is None else _dataset(found)


def connect(url: str, token: str | None = None, *, patience: float = 30.0) -> Datasets:
    """Return the datasets of a service. No request is sent yet.

    TLS certificates are checked against $AWS_CA_BUNDLE or $REQUESTS_CA_BUNDLE, if one is set.

    Args:
        url: The address of the service, such as ``http://host:8080``.
        token: The token; by default the environment variable IMAGESTRATA_TOKEN.
        patience: How many seconds to wait for a service that does not respond.

    Returns:
        The datasets.

    Raises:
        OptionError: An argument is invalid.
    """
    return Datasets(url, token, patience=patience)


def _dataset(found: Mapping[str, Any]) -> Dataset:
    return Dataset(**{key: found[key] for key in Dataset.__slots__ if key in found})


def _name(name: object) -> str:
    try:
        return check_name(name)
    except SchemaError as error:
        raise OptionError(str(error)) from None


def _version(number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise OptionError(f"Wanted a version number of 1 or more. Found: {number!r}")
    return number
