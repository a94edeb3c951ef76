"""Image ids: the same dataset, split folder and path give the same id on every machine and in every run."""

import hashlib
import re
import uuid
from collections.abc import Callable

# The namespace of all image ids. Never change it: that would change every id ever written.
NAMESPACE = uuid.UUID("8f0b7c1e-52d5-5b1c-9a56-3d6d1f1c2a40")

# Test vectors: (dataset, or_split, path, id).
VECTORS: tuple[tuple[str, bytes, bytes, str], ...] = (
    ("digits", b"train", b"7/0001.png", "7c743c2e-685c-55f2-9f8b-e10df2a8a6a6"),
    ("digits", b"", b"7/0001.png", "27f9d9bd-4ee7-595c-956e-17807d70b5a8"),
    ("imagenette", b"val", b"n01440764/sub dir/caf\xc3\xa9.JPEG", "56e049f6-0501-560e-a720-164f8258f18c"),
    ("imagenette", b"val", b"n01440764/caf\xe9\n.JPEG", "fd01a0f8-271f-53a4-a1dd-7f7adaa39221"),
)

_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")


def image_id(dataset: str, or_split: bytes, path: bytes) -> uuid.UUID:
    """The id of one image: the UUIDv5 (RFC 9562, SHA-1) of ``dataset NUL or_split NUL path``. ``or_split`` is the raw
    bytes of the split folder's name, empty without split folders; ``path`` is those of the path relative to
    ``DIR/SPLIT``, with ``/`` between its parts, not normalised.
    """
    return uuid.UUID(bytes=image_ids(dataset, or_split)(path))


def ids_of_path(dataset: str, path: bytes) -> list[uuid.UUID]:
    """The ids that an image can have, from its path in reports, which begins with the split folder. That folder may
    have several parts, so there is an id for each part at which it could end. The last id is that without a folder.
    """
    cuts = [place for place, byte in enumerate(path) if byte == ord("/")]
    return [image_id(dataset, *pair) for pair in (*((path[:cut], path[cut + 1 :]) for cut in cuts), (b"", path))]


def is_id_of(image: bytes, /, *, dataset: str, or_split: str, path: str) -> bool:
    """Whether an id matches a dataset, a split folder and a path as in the text columns."""
    # An escape (\xff) is a byte that is not UTF-8, or part of the name.
    readings = [(name, _ESCAPE.sub(_byte, name)) for name in (or_split.encode(), path.encode())]
    return any(image == image_id(dataset, split, name).bytes for split in readings[0] for name in readings[1])


def _byte(escape: re.Match[bytes]) -> bytes:
    return bytes([int(escape[1], 16)])


def image_ids(dataset: str, or_split: bytes) -> Callable[[bytes], bytes]:
    """Make `image_id` for many images of one split: a function from the raw bytes of a path to the 16 big-endian bytes
    of its id.
    """
    begun = hashlib.sha1(NAMESPACE.bytes + b"\0".join((dataset.encode(), or_split, b"")), usedforsecurity=False)

    def number(path: bytes) -> bytes:
        hashed = begun.copy()
        hashed.update(path)
        digest = bytearray(hashed.digest()[:16])
        digest[6] = digest[6] & 0x0F | 0x50  # version 5
        digest[8] = digest[8] & 0x3F | 0x80  # and variant, as the RFC lays them out
        return bytes(digest)

    return number
