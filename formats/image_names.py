"""Which files of a tree are images, by their names: one rule for ingest, shards, class folders and buckets.

A file is left out, and counted, if it or a folder that it is in is hidden: the name begins with a dot (``._a.jpg`` of
macOS, ``.ipynb_checkpoints``) or is ``__MACOSX``. So is an object whose name ends with a slash, which only marks a
folder. Where files are not opened to see what they are, their names must have an extension of an image.
"""

# File extensions of images, in lower case without the dot, and their formats.
EXTENSIONS = {
    **dict.fromkeys((b"jpg", b"jpeg", b"jpe", b"jfif", b"mpo"), "JPEG"),
    **dict.fromkeys((b"tif", b"tiff"), "TIFF"),
    **dict.fromkeys((b"bmp", b"dib"), "BMP"),
    **dict.fromkeys((b"jp2", b"j2k", b"jpf", b"jpx", b"j2c", b"jpc"), "JPEG2000"),
    **dict.fromkeys((b"pnm", b"ppm", b"pgm", b"pbm"), "PNM"),
    **{b"png": "PNG", b"apng": "PNG", b"webp": "WEBP", b"gif": "GIF"},
}

OPTIONS_RECORD = ".ingest.json"  # A file of ours beside images, which is never listed
HIDDEN = "hidden: a name begins with a dot, or is __MACOSX"
MARKER = "not a file: it marks a folder"
OTHER = "not the name of an image"
OUTSIDE = "outside a class folder"


def is_hidden(name: bytes) -> bool:
    """Whether a file or a folder belongs to a file system or a tool."""
    return name.startswith(b".") or name == b"__MACOSX"


def left_out(path: bytes, *, by_extension: bool) -> str | None:
    """Why a file of a tree cannot be an image by its path; None if it may be one. With ``by_extension``, it must have
    an extension of an image.
    """
    if any(map(is_hidden, path.split(b"/"))):
        return HIDDEN
    if path.endswith(b"/"):
        return MARKER
    if not by_extension:
        return None
    _, dot, extension = path.rpartition(b".")
    return None if dot and extension.lower() in EXTENSIONS else OTHER
