"""Images of datasets (of PIL, encoded, arrays or tensors) as the files of shards."""

import io
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loader.errors import ShardError

# The formats that images can be encoded as: Pillow's names by extension.
FORMATS = {"jpg": "JPEG", "png": "PNG", "webp": "WEBP"}

_KEPT = {
    "jpg": ("RGB", "L"),
    "png": ("RGB", "L", "1", "P", "LA", "RGBA", "I;16"),
    "webp": ("RGB", "RGBA"),
}
_EXTENSIONS = {
    "JPEG": "jpg", "MPO": "jpg", "PNG": "png", "WEBP": "webp", "BMP": "bmp", "TIFF": "tif", "GIF": "gif",
}  # fmt: skip
_CHANNELS = (1, 3, 4)
_FLOATS = ("torch.float16", "torch.float32", "torch.float64")


def picture_of(image: Any, number: int) -> Any:
    """The image of a dataset's item: an image of PIL, or the bytes of an encoded one. Raises `ShardError` for
    anything but the kinds that `_refused` lists.
    """
    if hasattr(image, "convert") and hasattr(image, "save"):
        return image
    if isinstance(image, (bytes, bytearray, memoryview)):
        return bytes(image)
    torch: Any = sys.modules.get("torch")  # imported already, if image is a tensor
    if torch is not None and isinstance(image, torch.Tensor):
        return _of_array(_array_of(image, number))
    if isinstance(image, np.ndarray):
        is_picture = image.ndim == 2 or (image.ndim == 3 and image.shape[2] in _CHANNELS)
        if image.dtype != np.uint8 or not is_picture or not image.size:
            raise _refused(number, f"an array of {image.dtype} of shape {image.shape}")
        return _of_array(image)
    raise _refused(number, type(image).__name__)


def encoded(picture: Any, number: int, *, image_format: str, quality: int) -> tuple[str, bytes]:
    """The extension and the bytes of an image from `picture_of`; bytes stay as they are. Raises `ShardError`."""
    if isinstance(picture, bytes):
        return _extension_of(picture, number), picture
    file = io.BytesIO()
    options = {} if image_format == "png" else {"quality": quality}
    try:
        _stored(picture, number, image_format).save(file, FORMATS[image_format], **options)
    except ShardError:
        raise
    except Exception as error:  # Pillow raises many kinds for what it cannot encode
        raise ShardError(f"Wanted to encode item {number} of the dataset. Found: {one_line(error)}") from error
    return image_format, file.getvalue()


def _stored(picture: Any, number: int, image_format: str) -> Any:
    """The image of PIL that is stored: upright, of a mode that the format has. Raises `ShardError`, `PictureError`."""
    from formats.pictures.decoding import eight_bits, orientation_of
    from formats.pictures.turning import turned

    picture.load()
    orientation = orientation_of(picture)
    is_deep = picture.mode.startswith("I;16")
    # A deep TIFF may have another range than PNG.
    if picture.mode not in _KEPT[image_format] or (is_deep and picture.format == "TIFF"):
        has_alpha = picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info
        if (has_alpha or is_deep) and image_format != "png":
            raise ShardError(
                f"Wanted item {number} of the dataset as an image that {image_format} can store. Found: "
                f"mode {picture.mode}{' with transparency' if has_alpha else ''}. Use image_format='png', or "
                "convert it in the dataset."
            )
        picture = eight_bits(picture, mode="RGBA" if has_alpha else "RGB")
    return turned(picture, orientation)


def one_line(error: BaseException) -> str:
    """Another library's error, for the end of a message."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _array_of(tensor: Any, number: int) -> NDArray[np.uint8]:
    """A tensor as uint8 of shape (height, width) or (height, width, channels)."""
    shape, dtype = tuple(tensor.shape), str(tensor.dtype)
    if len(shape) == 4:
        raise _refused(number, f"a batch, a tensor of shape {shape}", "Give the dataset, not its DataLoader. ")
    is_picture = len(shape) == 2 or (len(shape) == 3 and shape[0] in _CHANNELS)
    if not is_picture or 0 in shape or dtype not in ("torch.uint8", *_FLOATS):
        raise _refused(number, f"a tensor of {dtype} of shape {shape}")
    values = tensor.detach().cpu().numpy()
    if dtype != "torch.uint8":
        least, most = float(values.min()), float(values.max())
        if not (least >= 0 and most <= 1):  # nor NaN
            raise _refused(
                number,
                f"a tensor of {dtype} from {least:g} to {most:g}",
                "Remove Normalize from the transform, and divide values up to 255 by 255. ",
            )
        values = np.rint(values.astype(np.float64) * 255).astype(np.uint8)
    return np.ascontiguousarray(values if values.ndim == 2 else values.transpose(1, 2, 0))


def _of_array(array: NDArray[np.uint8]) -> Any:
    from PIL import Image

    return Image.fromarray(np.ascontiguousarray(array[:, :, 0] if array.shape[2:] == (1,) else array))


def _extension_of(data: bytes, number: int) -> str:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as picture:
            return _EXTENSIONS[str(picture.format)]
    except KeyError as error:
        raise _refused(number, f"the bytes of another format, {error}") from None
    except Exception as error:  # Pillow raises many kinds for a damaged file
        raise _refused(number, f"{len(data):,} bytes that are not an image ({type(error).__name__})") from None


def _refused(number: int, found: str, advice: str = "") -> ShardError:
    return ShardError(
        f"Wanted an image in item {number} of the dataset. Found: {found}. {advice}Accepted are images of PIL, the "
        "bytes of an image file, arrays of uint8 (height, width, channels), and tensors (channels, height, width) of "
        "uint8 or of floats from 0 to 1, with 1, 3 or 4 channels."
    )
