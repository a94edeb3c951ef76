"""The client of a dataset service: list, create, push and pull."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imagestrata.hub.bar import Progress, bars
from imagestrata.hub.errors import OptionError
from imagestrata.hub.http import Connection, Service
from imagestrata.hub.local_copy import LocalCopy, disk_told
from imagestrata.hub.names import listed
from imagestrata.hub.pull import pull
from imagestrata.hub.push import push
from imagestrata.hub.tar import FileSource, FolderSource, Source
from schemas.datasets import check_name
from schemas.errors import SchemaError

StrPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A dataset's version: the newest one of a service, or the one that is here.

    ``kind`` is "file" or "folder"; ``bytes`` and ``sha256`` are those of the file, or of the folder as one tar.
    ``images`` and ``num_classes`` count what the service knows to be in it. An empty dataset has only a name.
    ``problem`` says why the newest version cannot be read.
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
    """The version that a push made, or, unless it ``is_new``, the one that had the same bytes before.

    ``is_created``: the push made the dataset, too.
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
    """The datasets of a service, as `connect` opens them. Safe for threads; it pickles with its token.

    All methods raise `AccessError` where the service refuses the token, `UnreachableError` where it does not answer
    for as long as ``patience`` says, and `DatasetError` for all else that it tells.
    """

    def __init__(self, url: str, token: str | None = None, *, patience: float = 30.0) -> None:
        """As `connect`."""
        self._service = Service.at(url, token, patience)

    def __repr__(self) -> str:
        return f"Datasets({self._service.url!r})"

    def list(self) -> list[Dataset]:
        """All datasets, by name, each with its newest version."""
        with Connection(self._service) as connection:
            return [_dataset({**one, **(one["newest"] or {})}) for one in listed(connection)]

    def create(self, name: str, *, exist_ok: bool = False) -> None:
        """Make an empty dataset. Raises `DatasetError` if it is there, unless ``exist_ok``."""
        with Connection(self._service) as connection:
            connection.ask("POST", "/datasets", body={"name": _name(name)}, fine=(201, 409) if exist_ok else (201,))

    def push(
        self, path: StrPath, name: str | None = None, *, create: bool | None = None, progress: bool = True
    ) -> PushedDataset:
        """Publish a folder or a file as the newest version of a dataset (default: called as the path is).

        A folder goes as one tar, which is never made here: the same files give the same bytes, so that pushing them
        twice makes one version. Times, owners and rights of files are not among them; links are followed inside the
        folder alone. A push that breaks off goes on by itself, and when it was interrupted or killed, with the next
        call for the same path and name. The version shows when all of it is there. A dataset that does not exist is
        made; ``create=False`` refuses that, and unless ``create=True``, a new name that looks like a dataset's is
        refused, as it may be misspelt. Raises `DatasetError` for an empty file or a folder without files, for a file
        that changes meanwhile, and for what is neither file nor folder.
        """
        path = Path(os.path.abspath(path))
        name = _name(path.name if name is None else name)
        source: Source = FolderSource(path) if path.is_dir() else FileSource(path)
        with Connection(self._service) as connection, bars(progress) as tells:
            tell = tells("push", source.length)
            found = push(connection, source, name=name, path=path, create=create, tell=tell)
        return PushedDataset(name=name, **{key: found[key] for key in PushedDataset.__slots__ if key in found})

    def restore(self, name: str, version: int) -> Dataset:
        """Make an older version the newest one again, under a new number, without an upload; it is returned.

        Nothing happens if the newest version has the same bytes. Raises `DatasetError` if there is no such version.
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
        """Have a dataset, its newest version unless another is named, at ``to/name``, which is returned.

        A folder's files lie there as they were pushed, a file as ``to/name/FILENAME``. What is there already is not
        brought again; another version takes its place in one step, and the files of the one before go: ``to/name`` is
        a link to the version's own folder. At any moment, also if it is killed, all of one version is there. What broke
        off goes on with the next call. While a folder is unpacked its tar lies beside it. Processes that pull the same
        dataset to the same folder wait for each other. With ``keep``, a version that is there already stays, whichever
        it is, and the service is not asked. ``progress`` shows bars on a terminal; a function gets ("download", bytes
        done, all bytes), then ("unpack", files done, all files). Raises `DatasetError` also for a full disk, for bytes
        with another SHA-256, and for something else at ``to/name``.
        """
        _name(name)
        if version is not None:
            _version(version)
        if keep and version is not None:
            raise OptionError(f"Wanted keep or a version. Found: both, version {version}")
        folder = Path(os.path.abspath(to))
        with Connection(self._service) as connection, bars(progress) as tells:
            pull(connection, name, folder, version, tells, keep=keep)
        return folder / name

    def pulled(self, name: str, to: StrPath = "/datasets") -> Dataset | None:
        """What was pulled to ``to/name``, without asking the service; None if nothing was."""
        folder = Path(os.path.abspath(to))
        with disk_told(folder, 0):
            found = LocalCopy(folder, _name(name)).now()
        return None if found is None else _dataset(found)


def connect(url: str, token: str | None = None, *, patience: float = 30.0) -> Datasets:
    """The datasets of the service at ``url``, such as ``http://host:8080``; nothing is asked of it yet.

    ``token`` is by default the environment's IMAGESTRATA_TOKEN. ``patience`` is how many seconds a service may be away
    before a call is given up. Certificates are checked against $AWS_CA_BUNDLE or $REQUESTS_CA_BUNDLE, where they are
    set. Raises `OptionError`.
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
        raise OptionError(f"Wanted the number of a version, from 1. Found: {number!r}")
    return number
