"""Access to files by local path or by any address that fsspec supports.

The tests run with local folders and ``s3://bucket/prefix``. ``hdfs://`` uses the same code through Arrow's HDFS client,
which needs a Hadoop installation, ``HADOOP_HOME`` and ``CLASSPATH``; we have not run it. That client cannot sync a file
to the disk: HDFS's settings decide what survives a power cut of all replicas.
"""

import os
import secrets
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO, Any, NoReturn

import fsspec
import fsspec.asyn
from fsspec.implementations.local import LocalFileSystem

from formats.durability import sync_files, sync_folders, whole_file
from formats.errors import AddressError, FormatsError, NoBucketError, StorageError
from formats.retries import Retries
from formats.stores.addresses import check_store, not_supported
from formats.stores.http import Requests
from formats.stores.s3 import CHECK_SECONDS, S3Access, check_address, code, is_down, is_foreign, is_s3, refusal
from formats.stores.s3_pages import list_page
from formats.stores.uploads import Upload

SIGNED_SECONDS = 3600
_HOME_REGIONS = (None, "us-east-1", "aws-global")  # the regions of buckets that are created without a location
_TOGETHER = 1000  # the most objects that one request can delete
_MOST_REPLACED = 100
_SETTLE_SECONDS = 0.3
_CHANGED = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_NO_CONDITIONS = ("NotImplemented", "501")  # the answer of stores without conditional writes
_RETRIES = 2  # of whole requests; connections are retried below them

# A forked process shares its parent's epoll instance: if it freed the parent's connections, the parent would get no
# more events for them. So it keeps them unused and opens its own.
_opened: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()
_parents: list[Any] = []
os.register_at_fork(after_in_child=lambda: _parents.extend(_opened.values()))


class Storage:
    """A local or remote folder. Paths in it are relative and have ``/`` between their parts. By default the environment
    supplies the keys of an S3 storage. The constructor sends no request; it raises `StorageError` if no installed
    package supports the address. Later, a storage that does not answer, has no such bucket or denies access raises
    `StorageError`, an OSError, which names the address and the endpoint.
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
        """The address of the folder for messages and for Spark."""
        if self._access is not None and not self.root:
            raise StorageError(f"Wanted an address with a bucket, s3://bucket/prefix. Found: {text}")

    def __repr__(self) -> str:
        return f"Storage({self.address!r})"

    def __getstate__(self) -> NoReturn:
        raise TypeError("Cannot serialize a storage, because it has secret keys. Pass its address.")

    def path(self, name: str = "") -> str:
        """The full path, without the scheme of the address."""
        return f"{self.root}/{name}" if name else self.root

    def url(self, name: str = "") -> str:
        """The address of a file or folder for Spark, with a scheme even if it is local."""
        place = f"{self.address}/{name}" if name else self.address
        return f"file://{place}" if self.is_local else place

    def check(self) -> None:
        """Check within 15 seconds that an S3 storage answers and grants access. Does nothing for other storages."""
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
        """Create the bucket of an S3 storage unless it exists. Does nothing elsewhere. Raises `StorageError`."""
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
            if code(error) not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):  # another process was faster
                raise refusal(error, address=self.address, bucket=bucket, access=self._access) from None

    def exists(self, name: str = "") -> bool:
        """Whether a file or folder exists."""
        with self._told():
            return bool(self.filesystem.exists(self.path(name)))

    def is_folder(self) -> bool:
        """Whether the folder exists."""
        with self._told():
            return bool(self.filesystem.isdir(self.path()))

    def size(self, name: str) -> int:
        """The length of a file in bytes. Raises FileNotFoundError, OSError."""
        with self._told():
            return int(self.filesystem.info(self.path(name))["size"])

    def make_folder(self, name: str) -> None:
        """Create a folder and its parents unless they exist. Does nothing on S3. Raises OSError."""
        if self._access is None:
            self.filesystem.makedirs(self.path(name), exist_ok=True)

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file for reading in binary mode. Raises FileNotFoundError, OSError."""
        with self._told():
            file = self.filesystem.open(self.path(name), "rb")
        with file, self._told(foreign_only=True):
            yield file

    def read_bytes(self, name: str) -> bytes:
        """Read a whole file. Raises FileNotFoundError, OSError."""
        # One request: otherwise an S3 file system requests the length first.
        options = {} if self._access is None else {"max_concurrency": 1}
        with self._told():
            return bytes(self.filesystem.cat_file(self.path(name), **options))

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Read ``length`` bytes of a file from ``start``, fewer at its end. Raises FileNotFoundError, OSError."""
        if length <= 0:
            return b""
        try:
            with self._told():
                return bytes(self.filesystem.cat_file(self.path(name), start=start, end=start + length))
        except OSError as error:
            if code(error) == "InvalidRange":  # the range begins after the end
                return b""
            raise

    def read_text(self, name: str) -> str:
        """Read a whole UTF-8 file. Raises FileNotFoundError."""
        return self.read_bytes(name).decode("utf-8")

    def write_bytes(self, name: str, data: bytes, *, durable: bool = False) -> None:
        """Write a file and create its parent folders. Readers see either the complete old file or the complete new one.
        With ``durable``, the file survives a power cut.
        """
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

    def publish_text(self, name: str, text: str, *, files: Collection[str] = ()) -> None:
        """Write a durable UTF-8 file as `write_bytes` does. The ``files`` that it names survive a power cut, too."""
        if files:  # before it: a manifest must never name a file that is not on the disk
            self.settle(files)
        self.write_bytes(name, text.encode("utf-8"), durable=True)

    def settle(self, names: Iterable[str]) -> None:
        """Sync files and their folders to the disk, so that they survive a power cut. Does nothing for remote storages.
        Raises OSError.
        """
        # Files that another machine wrote to a shared file system must be synced on that machine.
        if self.is_local:
            sync_files(map(self.path, names))
            sync_folders(self.root)

    @contextmanager
    def create(self, name: str) -> Iterator[Callable[..., None]]:
        """Write a file piece by piece, each of one or several ``bytes``: ``write(b"head", b"body")``. The file appears
        complete and durable when the block ends, and does not appear after an error. On S3, each piece is one part of a
        multipart upload, so each but the last needs 5 MiB or more. Parts are sent in the background. Raises OSError,
        `StorageError`.
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
            ask, signed = partial(self.ask, Key=self.key(name)), partial(self.signed, name, method="upload_part")
            with Upload(ask, signed, place=f"{self.address}/{name}") as upload:
                yield upload.write

    def signed(self, name: str, *, method: str = "get_object", seconds: int = SIGNED_SECONDS, **more: str | int) -> str:
        """Make a presigned URL: anyone who has it can read an object of an S3 storage, or do what ``method`` names. A
        request must start within ``seconds``; it may take longer.
        """
        with self._told():
            return str(self.filesystem.url(self.path(name), expires=seconds, client_method=method, **more))

    def requests(self, reads: Retries) -> Requests:
        """Make a connection for presigned URLs, for one thread; ``reads`` is the retry policy of its reads."""
        return Requests(reads)

    def replace_text(self, name: str, change: Callable[[str | None], str]) -> None:
        """Replace the text of a UTF-8 file of an S3 storage by what ``change`` returns for it (None: no file), which is
        called until it returns the text unchanged. Raises OSError.
        """
        # Other processes may replace the file concurrently.
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
                time.sleep(_SETTLE_SECONDS)  # some stores check a condition and then write: read it again
        raise StorageError(f"Cannot change {self.address}/{name}: other processes keep changing it.")

    def publish_instead(self, name: str, text: str, *, before: str | None) -> bool:
        """Write a durable UTF-8 file if its text is ``before`` (None: no file); returns whether it was. On S3, no other
        process can write in between; elsewhere, take a lock. Raises OSError.
        """
        condition = {"IfNoneMatch": "*"}
        if self.is_s3 and self.exists(name):
            condition = {"IfMatch": str(self.ask("head_object", Key=self.key(name))["ETag"])}
        now = self.read_text(name) if self.exists(name) else None
        if now != before:
            return False
        if not self.is_s3:
            self.publish_text(name, text)
            return True
        try:
            self.ask("put_object", Key=self.key(name), Body=text.encode("utf-8"), **condition)
        except OSError as error:
            if code(error) in _CHANGED:
                return False
            if code(error) not in _NO_CONDITIONS:
                raise
            self.publish_text(name, text)
        return True

    def ask(self, method: str, **named: Any) -> dict[str, Any]:
        """Send a request about this bucket to an S3 storage, by its name in the API. Raises what `open` raises."""
        bucket, _ = self._prefix("")
        with self._told():
            return dict(self.filesystem.call_s3(method, Bucket=bucket, **named))

    def key(self, name: str = "") -> str:
        """The key of an object of an S3 storage."""
        _, key, _ = self.filesystem.split_path(self.path(name))
        return str(key)

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
        """List the direct contents of a folder in no order: (name, size in bytes, whether it is a folder). On S3 the
        listing is read page by page, and a missing folder is empty. Raises FileNotFoundError, OSError.
        """
        if self._access is not None:
            yield from self._objects(folder, Delimiter="/")
            return
        for found in self.filesystem.ls(self.path(folder), detail=True):
            name = str(found["name"]).rstrip("/").rpartition("/")[2]
            yield name, int(found["size"] or 0), found["type"] == "directory"

    def walk(self, folder: str = "") -> Iterator[tuple[str, int]]:
        """List all files at any depth below a folder in no order: (name relative to it, size in bytes). On S3 the
        listing is read page by page. A missing folder is empty.
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
        """Pages of a listing, without objects whose names end with a slash, which mark empty folders."""
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
        """Move one file within this storage. Creates the folders of the target."""
        with self._told():
            if self._access is None:
                self.filesystem.makedirs(self.path(target).rpartition("/")[0], exist_ok=True)
                self.filesystem.mv(self.path(source), self.path(target))
                return
            self.filesystem.cp_file(self.path(source), self.path(target))  # mv takes names with brackets for patterns
        self.remove_files([source])

    def remove(self, name: str) -> None:
        """Remove a file or a whole folder. Does nothing if there is none."""
        if not self.exists(name):
            return
        if self._access is not None:  # rm takes names with brackets for patterns
            self.remove_files(
                [*filter(None, [name]), *("/".join(filter(None, (name, one))) for one in self.files(name))]
            )
            return
        with self._told():
            self.filesystem.rm(self.path(name), recursive=True)

    def remove_files(self, names: Collection[str]) -> None:
        """Remove many files, with as few requests as the storage allows. Missing files are ignored."""
        if self._access is None:
            for name in names:
                self.remove(name)
            return
        keys = [{"Key": self.key(name)} for name in names]
        for start in range(0, len(keys), _TOGETHER):
            self.ask("delete_objects", Delete={"Objects": keys[start : start + _TOGETHER], "Quiet": True})

    def abandon(self, start: str) -> int:
        """Abort all incomplete uploads whose names begin with ``start``, even active ones; return how many there were.
        Their parts take up space on S3, and no listing of files shows them. Raises OSError, `StorageError`.
        """
        gone: set[tuple[str, str]] = set()
        is_more = self.is_s3
        while is_more:  # the first page each time: some stores reject their own markers of the next page
            page = self.ask("list_multipart_uploads", Prefix=self.key(start))
            begun = {(str(one["Key"]), str(one["UploadId"])) for one in page.get("Uploads", ())} - gone
            for key, upload in begun:
                with suppress(FileNotFoundError):  # another process has completed or aborted it
                    self.ask("abort_multipart_upload", Key=key, UploadId=upload)
            gone |= begun
            is_more = bool(begun and page.get("IsTruncated"))
        return len(gone)

    @contextmanager
    def _told(self, *, foreign_only: bool = False) -> Iterator[None]:
        """Translate the exceptions of the S3 client into those of this package."""
        try:
            yield
        except FormatsError:
            raise
        except Exception as error:
            if self._access is None or (foreign_only and not is_foreign(error)):
                raise
            if not is_down(error) and code(error) != "InvalidRange":
                self.check()  # tells wrong keys from a single forbidden object
            if not is_foreign(error):
                raise
            bucket, _ = self._prefix("")
            raise refusal(error, address=self.address, bucket=bucket, access=self._access) from None
