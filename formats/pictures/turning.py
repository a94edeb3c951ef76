"""Turning of pictures by their EXIF orientation. Apart from its parser, which needs no Pillow."""

from PIL import Image

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def turned(image: Image.Image, orientation: int) -> Image.Image:
    """Apply an EXIF orientation, 1 to 8, to an image; 1 leaves it as it is."""
    turn = _TURNS.get(orientation)
    return image if turn is None else image.transpose(turn)
