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

from formats.shards.sample_metadata import integer_in
from loader.adapters.pictures import FORMATS
from loader.errors import DecodeError, OptionError

_JPEG_2000 = {"jp2", "j2k", "jpc", "jpf", "jpx", "j2c"}
_PICTURES = {"jpg", "jpeg", "jpe", "jfif", "png", "apng", "bmp", "dib", "gif", "webp", "tif", "tiff", *_JPEG_2000}
_PICTURES |= {"pbm", "pgm", "ppm", "pnm"}
_MOST_SHOWN = 200

Handler = Callable[[str, bytes], Any]


class Decoding:
    """A stage that decodes all files of each sample: first with the given handlers, then with `decoded`.

    A handler is a function of ``.extension`` and bytes that returns None for files that it does not decode, or one of
    webdataset's names of image types. ``pre`` and ``post`` replace the handlers before and after; ``only``, ``partial``
    and ``handler`` work as in webdataset. Raises `OptionError` for a name that is not an image type.
    """

    def __init__(
        self,
        *handlers: str | Handler,
        handler: Callable[[Exception], bool] = filters.reraise_exception,
        pre: Sequence[Handler] | None = None,
        post: Sequence[Handler] | None = None,
        **options: Any,
    ) -> None:
        chain = [_Pictures(one) if isinstance(one, str) else one for one in handlers]
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


SAFE_STREAM_DECODERS = [("*.bin", filters.decode_bin), ("*.txt", filters.decode_text)]
"""webdataset's defaults for ``xdecode``, without the pickles."""


class _Pictures:
    """webdataset's decoder of images, for raster formats only: for others Pillow may start a program."""

    def __init__(self, kind: str) -> None:
        if kind not in autodecode.imagespecs:
            raise OptionError(f"Wanted an image type: {', '.join(autodecode.imagespecs)}. Found: {kind!r}")
        self._decode = autodecode.imagehandler(kind, _PICTURES)

    def __call__(self, extension: str, data: bytes) -> Any:
        if extension.rpartition(".")[2].lower() not in _PICTURES:
            return None
        import PIL.Image

        try:
            PIL.Image.open(io.BytesIO(data), formats=FORMATS).close()
        except PIL.UnidentifiedImageError:
            raise ValueError(f"no picture of these formats: {', '.join(FORMATS)}") from None
        return self._decode(extension, data)


def _named(error: autodecode.DecodingError) -> DecodeError:
    """The error that names the file, sample and shard; webdataset's own has no message."""
    cause = error.__cause__
    reason = " ".join(str(cause).split())[:_MOST_SHOWN] or type(cause).__name__
    found = DecodeError(f"Cannot decode {error.k!r} of sample {error.key} in {error.url}. Found: {reason}")
    found.__cause__ = cause
    return found
