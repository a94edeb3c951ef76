"""Archives, label arrays and masks, as bytes."""

import io
import tarfile
from collections.abc import Mapping, Sequence

from PIL import Image

from tests.support.encoding import encoded


def tar(
    files: Mapping[str, bytes] | Sequence[tuple[str, bytes]],
    *,
    mode: str = "w",
    format: int = tarfile.GNU_FORMAT,
    kinds: Mapping[str, bytes] | None = None,
) -> bytes:
    """A tar of these files, in this order; ``mode`` is tarfile's. Names may contain surrogates for undecodable bytes.

    ``kinds`` are types of members that are not files.
    """
    pairs = files.items() if isinstance(files, Mapping) else files
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=format, errors="surrogateescape") as archive:  # type: ignore[call-overload]
        for name, data in pairs:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for name, kind in (kinds or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    return buffer.getvalue()


def tar_of(*files: tuple[str, bytes], format: int = tarfile.GNU_FORMAT) -> bytes:
    """A tar of these files, several of which may have the same name."""
    return tar(files, format=format)


def mask(value: int, *, size: tuple[int, int] = (16, 12)) -> bytes:
    """A mask with one value."""
    return encoded(Image.new("L", size, value))
