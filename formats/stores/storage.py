"""The one place that opens files, by local path or by any address that fsspec knows.

Local folders and ``s3://bucket/prefix`` are what the tests run. ``hdfs://`` goes the same way, through Arrow's HDFS
client (it needs a Hadoop installation, ``HADOOP_HOME`` and ``CLASSPATH``); it has not been run here. That client cannot
ask HDFS to put a file on the disk: HDFS's own settings decide what survives a power cut of all its replicas.
"""

import os
import secrets
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, NoReturn

import fsspec
import fsspec.asyn
from fsspec.implementations.local import LocalFileSystem

from formats.durability import sync_files, sync_folders, whole_file
from formats.errors import AddressError, FormatsError, NoBucketError, StorageError
from formats.stores.addresses import check_store, not_supported
from formats.stores.s3 import CHECK_SECONDS, S3Access, check_address, code, is_down, is_foreign, is_s3, refusal
from formats.stores.s3_pages import list_page
from formats.stores.uploads import Upload

SIGNED_SECONDS = 3600
_HOME_REGIONS = (None, "us-east-1", "aws-global")  # where buckets lie whose place nobody names
_TOGETHER = 1000  # objects that one request may remove
_MOST_REPLACED = 100
_SETTLE_SECONDS = 0.3
_CHANGED = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_RETRIES = 2  # of whole requests, whose connections are tried again below them

# A forked process shares its parent's epoll: were the parent's connections freed there, the parent would never hear
# from them again. So it keeps them, unused; it opens its own.
_opened: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()
_parents: list[Any] = []
os.register_at_fork(after_in_child=lambda: _parents.extend(_opened.values()))


class Storage:
    """A folder, local or remote. Paths below it are relative and have ``/`` between their parts.

    Without ``s3``, an S3 storage is reached as the environment says. Nothing is asked of a storage before it is used;
    then one that does not answer, that has no such bucket or refuses us raises `StorageError`, an OSError, which names
    address and endpoint. Raises it at once for addresses that no installed package knows.
    """

    def __init__(self, address: str | os.PathLike[str], s3: S3Access | None = None) -> None:
        text = os.fspath(address)
        check_address(text)
        check_store(text)
        self._access = (s3 or S3Access.from_environment()) if is_s3(text) else None
        try:
            self.filesystem, self.root = fsspec.core.url_to_fs(
                text if "://" in text else os.path.abspath(text), **(self._access.options() if self._access else {})
            )
        except ImportError as error:
            if self._access is None:
                raise AddressError(not_supported(text)) from None
            mend = "Install it: pip install 'imagestrata[s3]'"
            raise StorageError(f"Wanted a package that opens {text}. Found: {error}. {mend}.") from None
        except (ValueError, OSError):
            if text.startswith("hdfs://"):
                raise StorageError(
                    f"Wanted a Hadoop client to open {text}. Found: none that works. Set HADOOP_HOME and CLASSPATH."
                ) from None
            raise AddressError(not_supported(text)) from None
        if self._access is not None:
            self.filesystem.retries = _RETRIES
            _opened[id(self.filesystem)] = self.filesystem
        self.is_local = isinstance(self.filesystem, LocalFileSystem)
        self.is_s3 = self._access is not None
        self.address = self.root if self.is_local else text.rstrip("/")
        """The folder as messages and Spark name it."""
        if self._access is not None and not self.root:
            raise StorageError(f"Wanted an address with a bucket, s3://bucket/prefix. Found: {text}")

    def __repr__(self) -> str:
        return f"Storage({self.address!r})"

    def __getstate__(self) -> NoReturn:
        raise TypeError("Wanted the address of a storage in a closure. Found: the storage itself, with its keys.")

    def path(self, name: str = "") -> str:
        """The full path, without the address's scheme."""
        return f"{self.root}/{name}" if name else self.root

    def url(self, name: str = "") -> str:
        """The address of a file or folder as Spark takes it, with a scheme where it is local, too."""
        place = f"{self.address}/{name}" if name else self.address
        return f"file://{place}" if self.is_local else place

    def check(self) -> None:
        """Ask an S3 storage whether it is there and lets us in; within 15 seconds, and nothing for others."""
        if self._access is None:
            return
        bucket, prefix = self._prefix("")
        try:
            fsspec.asyn.sync(
                self.filesystem.loop,
                self.filesystem._call_s3,
                "list_objects_v2",
                timeout=CHECK_SECONDS,
                Bucket=bucket,
                Prefix=prefix,
                MaxKeys=1,
            )
        except Exception as error:
            raise refusal(error, address=self.address, bucket=bucket, access=self._access) from None

    def make_bucket(self) -> None:
        """Make the bucket of an S3 storage, unless it is there; nothing for others. Raises `StorageError`."""
        if self._access is None:
            return
        try:
            self.check()
            return
        except NoBucketError:
            pass
        bucket, _ = self._prefix("")
        region = self.filesystem.s3.meta.region_name
        where = {"CreateBucketConfiguration": {"LocationConstraint": region}}
        try:
            self.filesystem.call_s3("create_bucket", Bucket=bucket, **({} if region in _HOME_REGIONS else where))
        except Exception as error:
            if code(error) not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):  # another was quicker
                raise refusal(error, address=self.address, bucket=bucket, access=self._access) from None

    def exists(self, name: str = "") -> bool:
        """Whether a file or folder is there."""
        with self._told():
            return bool(self.filesystem.exists(self.path(name)))

    def is_folder(self, name: str = "") -> bool:
        """Whether a folder is there."""
        with self._told():
            return bool(self.filesystem.isdir(self.path(name)))

    def size(self, name: str) -> int:
        """The length of a file in bytes. Raises FileNotFoundError, OSError."""
        with self._told():
            return int(self.filesystem.info(self.path(name))["size"])

    def make_folder(self, name: str) -> None:
        """Make a folder and those above it; nothing happens where it is, and on S3, which has none. Raises OSError."""
        if self._access is None:
            self.filesystem.makedirs(self.path(name), exist_ok=True)

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file for reading bytes. Raises FileNotFoundError, OSError."""
        with self._told():
            file = self.filesystem.open(self.path(name), "rb")
        with file, self._told(foreign_only=True):
            yield file

    def read_bytes(self, name: str) -> bytes:
        """A whole file. Raises FileNotFoundError, OSError."""
        # In one request: without this, an S3 file system first asks how long it is.
        options = {} if self._access is None else {"max_concurrency": 1}
        with self._told():
            return bytes(self.filesystem.cat_file(self.path(name), **options))

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """So many bytes of a file from there; fewer where it ends. Raises FileNotFoundError, OSError."""
        if length <= 0:
            return b""
        try:
            with self._told():
                return bytes(self.filesystem.cat_file(self.path(name), start=start, end=start + length))
        except OSError as error:
            if code(error) == "InvalidRange":  # it begins behind the end
                return b""
            raise

    def read_text(self, name: str) -> str:
        """A whole UTF-8 file. Raises FileNotFoundError."""
        return self.read_bytes(name).decode("utf-8")

    def write_bytes(self, name: str, data: bytes, *, durable: bool = False) -> None:
        """Write a file so that readers see the old one or the new one, whole; the folders above it are made.

        With ``durable`` it survives a power cut.
        """
        self._write(name, data, durable=durable)

    def publish_text(self, name: str, text: str) -> None:
        """Write a durable UTF-8 file as `write_bytes` does. What it names must be durable before: `settle`."""
        self._write(name, text.encode("utf-8"), durable=True)

    def settle(self, names: Iterable[str]) -> None:
        """Make files, and the names in their folders, survive a power cut; does nothing for remote storages.

        Files that another machine wrote to a shared file system must have been put on the disk there. Raises OSError.
        """
        if self.is_local:
            sync_files(map(self.path, names))
            sync_folders(self.root)

    @contextmanager
    def create(self, name: str) -> Iterator[Callable[..., None]]:
        """Write a file piece by piece, each of one or several ``bytes``: ``write(b"head", b"body")``.

        It appears, whole and durable, at the end of the block, and not at all after an error. On S3 each piece is
        a part of an upload, of which all but the last have 5 MiB or more; the next piece is made while one is sent.
        Raises OSError, `StorageError`.
        """
        if self.is_local:
            with whole_file(self.path(name), durable=True) as file:
                yield lambda *parts: file.writelines(parts)
        elif self._access is None:
            aside = f"{name}.{secrets.token_hex(8)}"
            try:
                with self.filesystem.open(self.path(aside), "wb") as file:
                    yield lambda *parts: file.writelines(parts)
                self.move(aside, name)
            except BaseException:
                self.remove(aside)
                raise
        else:
            with Upload(self, name) as upload:
                yield upload.write

    def signed(self, name: str, *, method: str = "get_object", seconds: int = SIGNED_SECONDS, **more: str | int) -> str:
        """An address under which whoever has it may read an object of an S3 storage; or other methods.

        A request must begin within so many seconds; it may take longer.
        """
        with self._told():
            return str(self.filesystem.url(self.path(name), expires=seconds, client_method=method, **more))

    def replace_text(self, name: str, change: Callable[[str | None], str]) -> None:
        """Replace a UTF-8 file of an S3 storage by what ``change`` makes of it, None if there is none.

        ``change`` is called until it has nothing to change, because others may replace the file at the same time. Some
        stores check a condition and then write, so the file is looked at again a moment later. Raises OSError.
        """
        key = self.key(name)
        for _ in range(_MOST_REPLACED):
            before: str | None = None
            condition = {"IfNoneMatch": "*"}
            with suppress(FileNotFoundError):
                tag = str(self.ask("head_object", Key=key)["ETag"])
                before, condition = self.read_text(name), {"IfMatch": tag}
            after = change(before)
            if after == before:
                return
            try:
                self.ask("put_object", Key=key, Body=after.encode("utf-8"), **condition)
            except OSError as error:
                if code(error) not in _CHANGED:
                    raise
            else:
                time.sleep(_SETTLE_SECONDS)
        raise StorageError(f"Wanted to change {self.address}/{name}. Found: others change it all the time.")

    def ask(self, method: str, **named: Any) -> dict[str, Any]:
        """A request to an S3 storage by its name in the API, about this bucket; raises what `open` raises."""
        bucket, _ = self._prefix("")
        with self._told():
            return dict(self.filesystem.call_s3(method, Bucket=bucket, **named))

    def key(self, name: str = "") -> str:
        """The key of an object of an S3 storage."""
        _, key, _ = self.filesystem.split_path(self.path(name))
        return str(key)

    def _write(self, name: str, data: bytes, *, durable: bool) -> None:
        path = self.path(name)
        folder, _, _ = path.rpartition("/")
        if not self.is_local:  # an object appears when its upload is complete
            if self._access is None:
                self.filesystem.makedirs(folder, exist_ok=True)
            with self._told():
                self.filesystem.pipe_file(path, data)
            return
        with whole_file(path, durable=durable) as file:
            file.write(data)

    def names(self, folder: str = "") -> list[str]:
        """The names directly below a folder, sorted; empty where there is no such folder."""
        try:
            return sorted(name for name, _, _ in self.entries(folder))
        except FileNotFoundError:
            return []

    def files(self, folder: str) -> list[str]:
        """All files at any depth below a folder, relative to it, sorted."""
        return sorted(name for name, _ in self.walk(folder))

    def entries(self, folder: str = "") -> Iterator[tuple[str, int, bool]]:
        """What lies directly below a folder, in no order: (name, size in bytes, whether it is a folder).

        On S3 it comes page by page, and a folder that is not there is empty. Raises FileNotFoundError, OSError.
        """
        if self._access is not None:
            yield from self._objects(folder, Delimiter="/")
            return
        for found in self.filesystem.ls(self.path(folder), detail=True):
            name = str(found["name"]).rstrip("/").rpartition("/")[2]
            yield name, int(found["size"] or 0), found["type"] == "directory"

    def walk(self, folder: str = "") -> Iterator[tuple[str, int]]:
        """Every file at any depth below a folder: (name relative to it, size in bytes); in no order.

        On S3 it comes page by page. A folder that is not there is empty.
        """
        if self._access is not None:
            yield from ((name, size) for name, size, _ in self._objects(folder))
            return
        if not self.filesystem.exists(self.path(folder)):
            return
        pending = [""]
        while pending:
            above = pending.pop()
            for name, size, is_folder in self.entries("/".join(filter(None, (folder, above)))):
                path = f"{above}/{name}" if above else name
                if is_folder:
                    pending.append(path)
                else:
                    yield path, size

    def _objects(self, folder: str, **delimiter: str) -> Iterator[tuple[str, int, bool]]:
        """Pages of a listing; marks of empty folders, objects whose names end with a slash, are left out."""
        bucket, prefix = self._prefix(folder)
        page: dict[str, str] = {}
        while True:
            with self._told():
                found: dict[str, Any] = fsspec.asyn.sync(
                    self.filesystem.loop, list_page, self.filesystem, Bucket=bucket, Prefix=prefix, **delimiter, **page
                )
            for one in found.get("CommonPrefixes", ()):
                yield one["Prefix"][len(prefix) : -1], 0, True
            for one in found.get("Contents", ()):
                if not one["Key"].endswith("/"):
                    yield one["Key"][len(prefix) :], int(one["Size"]), False
            if not found.get("IsTruncated"):
                return
            page = {"ContinuationToken": found["NextContinuationToken"]}

    def _prefix(self, folder: str) -> tuple[str, str]:
        bucket, prefix, _ = self.filesystem.split_path(self.path(folder))
        return bucket, f"{prefix}/" if prefix else ""

    def move(self, source: str, target: str) -> None:
        """Move one file within this storage; the folders of the target are made."""
        with self._told():
            if self._access is None:
                self.filesystem.makedirs(self.path(target).rpartition("/")[0], exist_ok=True)
            self.filesystem.mv(self.path(source), self.path(target))

    def remove(self, name: str) -> None:
        """Remove a file or a whole folder; nothing happens where there is none."""
        if self.exists(name):
            with self._told():
                self.filesystem.rm(self.path(name), recursive=True)

    def remove_files(self, names: Collection[str]) -> None:
        """Remove many files, together where the storage can; nothing happens for those that are not there."""
        if self._access is None:
            for name in names:
                self.remove(name)
            return
        keys = [{"Key": self.key(name)} for name in names]
        for start in range(0, len(keys), _TOGETHER):
            self.ask("delete_objects", Delete={"Objects": keys[start : start + _TOGETHER], "Quiet": True})

    def abandon(self, start: str) -> int:
        """Give up all uploads whose names begin so and that are not completed, also those under way; how many.

        Their parts take room on S3, where no listing shows them. Raises OSError, `StorageError`.
        """
        gone: set[tuple[str, str]] = set()
        is_more = self.is_s3
        while is_more:  # the first page each time: some stores refuse their own marks of where the next one begins
            page = self.ask("list_multipart_uploads", Prefix=self.key(start))
            begun = {(str(one["Key"]), str(one["UploadId"])) for one in page.get("Uploads", ())} - gone
            for key, upload in begun:
                with suppress(FileNotFoundError):  # it ended in between
                    self.ask("abort_multipart_upload", Key=key, UploadId=upload)
            gone |= begun
            is_more = bool(begun and page.get("IsTruncated"))
        return len(gone)

    @contextmanager
    def _told(self, *, foreign_only: bool = False) -> Iterator[None]:
        """Turn what an S3 client raises into the errors that our callers know."""
        try:
            yield
        except FormatsError:
            raise
        except Exception as error:
            if self._access is None or (foreign_only and not is_foreign(error)):
                raise
            if not is_down(error) and code(error) != "InvalidRange":
                self.check()  # it knows wrong keys from one object that we may not see
            if not is_foreign(error):
                raise
            bucket, _ = self._prefix("")
            raise refusal(error, address=self.address, bucket=bucket, access=self._access) from None
