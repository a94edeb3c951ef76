"""Dataset services for tests, and tars for them."""

import socket
import tarfile
import threading
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Self

from benchmarks.harness.processes import anonymous_mb
from formats.stores.storage import Storage
from imagestrata.devstack.servers.dataset_server import Answer, DatasetServer
from imagestrata.service.tokens import Scope, Tokens
from tests.support.archives import tar

if TYPE_CHECKING:
    from imagestrata.service.server.connections import Limits

__all__ = ["CHUNK", "FILE", "ROOT", "TAR", "Answer", "Server", "ServerInThread", "anonymous_mb", "tar_of", "token_of"]

ROOT = Path(__file__).resolve().parents[2]
TAR = "application/x-tar"
FILE = "application/octet-stream"
CHUNK = "application/offset+octet-stream"


class Server(DatasetServer):
    """A service with short calls for uploads."""

    def put(self, name: str, body: bytes, *, kind: str = FILE, filename: str = "", **headers: str) -> Answer:
        """Upload; header names with ``_`` for ``-``."""
        told = {"Content-Type": kind, **_named(headers)}
        if filename:
            told["Content-Disposition"] = f'attachment; filename="{filename}"'
        return self.ask("PUT", f"/datasets/{name}", body, told)

    def begin(self, name: str, length: int, **headers: str) -> Answer:
        """Begin a resumable upload; header names with ``_`` for ``-``."""
        told = {"Tus-Resumable": "1.0.0", "Upload-Length": str(length)}
        return self.ask("POST", f"/datasets/{name}/uploads", b"", told | _named(headers))

    def append(self, place: str, offset: int, body: bytes | Iterable[bytes], **headers: str) -> Answer:
        """Send bytes of an upload; header names with ``_`` for ``-``."""
        told = {"Tus-Resumable": "1.0.0", "Upload-Offset": str(offset), "Content-Type": CHUNK}
        return self.ask("PATCH", place, body, told | _named(headers))

    def look(self, place: str, method: str = "HEAD") -> Answer:
        """Ask how much of an upload has arrived, or abort it with DELETE."""
        return self.ask(method, place, None, {"Tus-Resumable": "1.0.0"})


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    return {key.replace("_", "-"): value for key, value in headers.items()}


class ServerInThread(Server):
    """The service in a thread of the test process: it starts quickly, but cannot be killed.

    ``root`` is its folder, or with a ``bucket`` the spool.
    """

    def __init__(
        self,
        root: Path,
        *,
        bucket: Storage | None = None,
        most: int | None = None,
        quota: int | None = None,
        limits: "Limits | None" = None,
    ) -> None:
        super().__init__(root)
        self._limits = limits
        self._bucket, self._most, self._quota = bucket, most, quota
        self._open = ExitStack()

    def __enter__(self) -> Self:
        import uvicorn

        from imagestrata.service.access import Access
        from imagestrata.service.server.app import make_app
        from imagestrata.service.server.connections import limits_of
        from imagestrata.service.server.hosts import Hosts
        from imagestrata.service.server.server import config_of
        from imagestrata.service.stores.buckets import BucketStore
        from imagestrata.service.stores.folders import FolderStore
        from imagestrata.service.uploads.uploads import Uploads

        with ExitStack() as opened:
            made = BucketStore(self._bucket, spool=self.root) if self._bucket else FolderStore(self.root)
            store = opened.enter_context(closing(made))
            access = Access(Tokens(self._bucket or Storage(self.root)), is_open=True)
            uploads = Uploads(store, most=self._most, quota=self._quota)
            app = make_app(store, access=access, hosts=Hosts(["127.0.0.1"]), uploads=uploads)
            listening = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
            self.host, self.port = "127.0.0.1", listening.getsockname()[1]
            self.url = f"http://{self.host}:{self.port}"
            server = uvicorn.Server(config_of(app, self._limits or limits_of(400)))
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
            thread.start()
            opened.callback(thread.join, 60)
            opened.callback(setattr, server, "should_exit", True)
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


def tar_of(files: Mapping[str, bytes], *, kinds: Mapping[str, bytes] | None = None) -> bytes:
    """A tar of files by name; ``kinds`` are types of members that are not files."""
    return tar(files, format=tarfile.PAX_FORMAT, kinds=kinds)


def token_of(root: Path, scope: Scope = "read", *, name: str = "x") -> str:
    """A new token of the service over a folder."""
    return Tokens(Storage(root)).create(name, scope)
