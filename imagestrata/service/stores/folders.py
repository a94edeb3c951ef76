"""Datasets in a local folder.

    ROOT/datasets/NAME/versions/3/   version.json  data  files.sqlite (of a folder)
         datasets/NAME/next          the next version number, if a version was deleted
         datasets/NAME/description   its description
         incoming/ID/                bodies that are arriving, and unfinished uploads
         finished/ID                 the results of the latest uploads
         trash/ID/                   what is being deleted
         tokens.json  lock

A version is prepared in ``incoming`` and becomes visible by one rename. A deletion is one rename, too. When a server
starts, it removes what a killed server left in ``incoming`` and ``trash``. A restored version shares the files of the
older one by hard links.
"""

import errno
import os
import secrets
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

from formats.durability import sync, sync_folders
from imagestrata.service.errors import ConflictError, NotThereError, UnreadableError, no_dataset
from imagestrata.service.stores.bodies import full_disk_errors
from imagestrata.service.stores.staging import DATA, INDEX, UPLOAD, Staging
from imagestrata.service.stores.store import Blob, Store
from schemas.datasets import VERSION_NAME, DatasetVersion, is_name

_NUMBER = "{:020}"
_DESCRIPTION = "description"


class FolderStore(Store):
    """The datasets of one server, which locks the folder. Raises `ConflictError` if another server has the lock."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).resolve()
        self._datasets, self._trash = self.root / "datasets", self.root / "trash"
        for folder in (self._datasets, self._trash):
            folder.mkdir(parents=True, exist_ok=True)
        sync_folders(str(self._datasets), str(self._trash))
        super().__init__(Staging(self.root))
        self._clear("")
        self._count()

    def names(self) -> list[str]:
        with os.scandir(self._datasets) as entries:  # other files and folders are ignored
            return sorted(one.name for one in entries if is_name(one.name) and os.path.isdir(f"{one.path}/versions"))

    def create(self, name: str) -> None:
        with full_disk_errors():
            made = self.staging.new()
            try:
                (made / "versions").mkdir()
                (made / "next").write_text(_NUMBER.format(1), encoding="ascii")
                sync(made / "next")
                sync(made)
                os.rename(made, self._datasets / name)  # replaces an empty folder, too
            except OSError as error:
                shutil.rmtree(made, ignore_errors=True)
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    raise ConflictError(f"Wanted a new dataset {name!r}. Found: it exists already") from None
                raise
        sync(self._datasets)

    def numbers(self, name: str) -> list[int]:
        try:
            return sorted(int(found) for found in os.listdir(self._datasets / name / "versions") if found.isdecimal())
        except FileNotFoundError:
            raise no_dataset(name) from None

    def blob(self, name: str, version: DatasetVersion) -> Blob:
        try:  # once open, it stays readable if it is deleted
            file = os.open(self._folder(name, version.number) / DATA, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise NotThereError(f"Wanted version {version.number} of {name!r}. Found: it was deleted") from None
        return Blob(
            size=os.fstat(file).st_size,
            read=lambda start, length: os.pread(file, length, start),
            close=partial(os.close, file),
        )

    def index(self, name: str, version: DatasetVersion) -> Path:
        path = self._folder(name, version.number) / INDEX
        if not path.exists():
            raise NotThereError(f"Wanted version {version.number} of {name!r}. Found: it was deleted")
        return path

    def description(self, name: str) -> str:
        self._check(name)
        try:
            return (self._datasets / name / _DESCRIPTION).read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def describe(self, name: str, text: str) -> None:
        path = self._datasets / name / _DESCRIPTION
        made = self.staging.new()
        try:
            with self._lock, full_disk_errors():
                self._check(name)
                (made / DATA).write_text(text, encoding="utf-8")
                sync(made / DATA)
                os.replace(made / DATA, path)
                sync(path.parent)
        except FileNotFoundError:
            raise no_dataset(name) from None
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def _check(self, name: str) -> None:
        if not (self._datasets / name / "versions").is_dir():
            raise no_dataset(name)

    def _location(self, name: str, version: DatasetVersion) -> str:
        try:
            return str(os.stat(self._folder(name, version.number) / DATA).st_ino)
        except FileNotFoundError:  # another thread removed it
            return f"version {version.number}"

    def _share(self, name: str, version: DatasetVersion, staged: Path) -> None:
        source = self._folder(name, version.number)
        try:
            for file in (DATA, INDEX) if version.kind == "folder" else (DATA,):
                try:
                    os.link(source / file, staged / file)
                except OSError as error:
                    if isinstance(error, FileNotFoundError):
                        raise
                    self.room.take(staged, (source / file).stat().st_size)  # a file system without hard links
                    with full_disk_errors():
                        shutil.copyfile(source / file, staged / file)
        except FileNotFoundError:
            raise NotThereError(f"Wanted version {version.number} of {name!r}. Found: it was deleted") from None

    def _folder(self, name: str, number: int) -> Path:
        return self._datasets / name / "versions" / str(number)

    def _read(self, name: str, number: int) -> DatasetVersion | None:
        path = self._folder(name, number) / VERSION_NAME
        try:
            return DatasetVersion.from_json(path.read_text(encoding="utf-8"), place=str(path))
        except FileNotFoundError:
            if path.parent.is_dir():  # a version is deleted as a whole folder
                raise
            return None

    def _prepare(self, name: str, staged: Path, version: DatasetVersion) -> None:
        for file in (DATA, INDEX):
            with suppress(FileNotFoundError):
                sync(staged / file)

    def _show(self, name: str, staged: Path, version: DatasetVersion) -> None:
        path = staged / VERSION_NAME
        path.write_text(version.to_json(), encoding="utf-8")
        sync(path)
        sync(staged)
        os.rename(staged, self._folder(name, version.number))
        (self._folder(name, version.number) / UPLOAD).unlink(missing_ok=True)  # it is no longer an upload
        sync(self._datasets / name / "versions")

    def _settle(self, name: str, version: DatasetVersion) -> None:
        """Do nothing: an abandoned body is still staged, and its owner removes it."""

    def _hide(self, name: str, number: int | None, following: int) -> None:
        source = self._datasets / name
        if number is not None:
            # Overwrites a file of the same length: a deletion must work on a full disk.
            with full_disk_errors(), open(os.open(source / "next", os.O_WRONLY | os.O_CREAT, 0o666), "wb") as file:
                file.write(_NUMBER.format(following).encode())
                file.flush()
                os.fsync(file.fileno())
            source = self._folder(name, number)
        os.rename(source, self._trash / secrets.token_hex(16))
        sync(source.parent)

    def _clear(self, name: str) -> None:
        for trash in self._trash.iterdir():
            shutil.rmtree(trash, ignore_errors=True)

    def _following(self, name: str) -> int:
        path = self._datasets / name / "next"
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return 1
        if not text.strip().isdecimal():  # a version number is never used twice
            raise UnreadableError(
                f"Wanted the number of the next version of {name!r} in {path}. Found: {text[:40]!r}. Write "
                "a number there that is greater than all version numbers so far"
            )
        return int(text)
