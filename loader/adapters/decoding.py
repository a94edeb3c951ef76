"""Decoding of shard members by their extensions, without running code from a member.

webdataset's own defaults unpickle ``.pyd``, ``.pkl`` and ``.pth`` members, even those that a pipeline does not select.
Here only the types below are decoded; members of other types stay bytes.
"""

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from webdataset import autodecode, filters

from formats.pictures import Orientation
from formats.shards.sample_metadata import integer_in
from loader.adapters.pictures import check_orientation, decoded_picture
from loader.errors import DecodeError, OptionError, require

_JPEG_2000 = {"jp2", "j2k", "jpc", "jpf", "jpx", "j2c"}
_PICTURES = {"jpg", "jpeg", "jpe", "jfif", "png", "apng", "bmp", "dib", "gif", "webp", "tif", "tiff", *_JPEG_2000}
_PICTURES |= {"pbm", "pgm", "ppm", "pnm"}
_MOST_SHOWN = 200

Handler = Callable[[str, bytes], Any]


class Decoding:
    """A stage that decodes all files of each sample: first with the given handlers, then with `decoded`. A handler is a
    function of ``.extension`` and bytes that returns None for files that it does not decode, or one of webdataset's
    names of image types. ``pre`` and ``post`` replace the handlers before and after; ``only``, ``partial`` and
    ``handler`` work as in webdataset. Images are turned upright by EXIF, unless ``orientation`` is "stored". Raises
    `OptionError` for a name that is not an image type.
    """

    def __init__(
        self,
        *handlers: str | Handler,
        handler: Callable[[Exception], bool] = filters.reraise_exception,
        pre: Sequence[Handler] | None = None,
        post: Sequence[Handler] | None = None,
        orientation: Orientation = "upright",
        **options: Any,
    ) -> None:
        check_orientation(orientation)
        chain = [_Pictures(one, orientation) if isinstance(one, str) else one for one in handlers]
        last = [decoded] if post is None else list(post)
        self._decoder = autodecode.Decoder(chain, pre=list(pre or []), post=last, **options)
        self._handler = handler

    def __call__(self, samples: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for sample in samples:
            try:
                made = self._decoder(sample)
            except autodecode.DecodingError as error:
                if self._handler(_named(error)):
                    continue
                return
            yield made


def decoded(extension: str, data: bytes) -> Any:
    """A file's value by its last extension: number, text, JSON or array; None for other types."""
    match extension.rpartition(".")[2].lower():
        case "cls" | "cls2" | "index" | "inx" | "id":
            return integer_in(data)
        case "txt" | "text" | "transcript":
            return data.decode("utf-8")
        case "json" | "jsn":
            return json.loads(data)
        case "npy":
            return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
        case _:
            return None


# webdataset's defaults for ``xdecode``, without the pickles.
SAFE_STREAM_DECODERS = [("*.bin", filters.decode_bin), ("*.txt", filters.decode_text)]


class _Pictures:
    """A decoder of images as webdataset's types of images, whose pixels are those of `formats.pictures.decoding`."""

    def __init__(self, kind: str, orientation: Orientation) -> None:
        if kind not in autodecode.imagespecs:
            raise OptionError(f"Wanted an image type: {', '.join(autodecode.imagespecs)}. Found: {kind!r}")
        self._library, self._type, self._mode = autodecode.imagespecs[kind]
        self._orientation = orientation

    def __call__(self, extension: str, data: bytes) -> Any:
        if extension.rpartition(".")[2].lower() not in _PICTURES:
            return None
        picture = decoded_picture(data, self._orientation, mode=self._mode.upper())
        if isinstance(picture, Exception):
            raise picture
        if self._library == "pil":
            return picture
        pixels = np.array(picture)
        if self._type == "float":
            pixels = pixels.astype(np.float32) / 255
        if self._library == "numpy":
            return pixels
        torch = require("torch", extra="train", purpose="tensors of images")
        return torch.from_numpy(pixels if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def _named(error: autodecode.DecodingError) -> DecodeError:
    """The error that names the file, sample and shard; webdataset's own has no message."""
    cause = error.__cause__
    reason = " ".join(str(cause).split())[:_MOST_SHOWN] or type(cause).__name__
    found = DecodeError(f"Cannot decode {error.k!r} of sample {error.key} in {error.url}. Found: {reason}")
    found.__cause__ = cause
    return found
