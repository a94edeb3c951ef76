"""Dataset services for tests, and tars for them."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from devstack.dataset_server import Answer, DatasetServer

__all__ = ["FILE", "ROOT", "TAR", "Answer", "Server", "tar_of"]

ROOT = Path(__file__).parent.parent
TAR = "application/x-tar"
FILE = "application/octet-stream"


class Server(DatasetServer):
    """One that files are put to in a word."""

    def put(self, name: str, body: bytes, *, kind: str = FILE, filename: str = "", **headers: str) -> Answer:
        """Upload; header names with ``_`` for ``-``."""
        told = {"Content-Type": kind, **{key.replace("_", "-"): value for key, value in headers.items()}}
        if filename:
            told["Content-Disposition"] = f'attachment; filename="{filename}"'
        return self.ask("PUT", f"/datasets/{name}", body, told)


def tar_of(files: Mapping[str, bytes], *, kinds: Mapping[str, bytes] | None = None) -> bytes:
    """A tar of files by their names; ``kinds`` are types of members that are none."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for name, kind in (kinds or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
    return made.getvalue()
