"""Feature functions of users: good ones, and ones that fail on red pictures (`trees.picture` of a seed below 100)."""

import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from etl.features.computing.pictures import Picture


def redness(image: np.ndarray) -> float:
    """The mean of the red channel."""
    return float(image[..., 0].mean())


def moments(images: list[np.ndarray]) -> list[np.ndarray]:
    """Means and deviations of the channels: a vector of six."""
    return [np.concatenate([image.mean((0, 1)), image.std((0, 1))]).astype(np.float32) for image in images]


def about(image: bytes) -> dict[str, int | str]:
    """Values of two types."""
    return {"bytes": len(image), "kind": image[1:4].decode()}


def _first(image: bytes) -> int:
    return Picture(image).rgb.getpixel((0, 0))[0]  # type: ignore[index]


def raises(image: bytes) -> int:
    """Fails on picture 1."""
    if _first(image) == 1:
        raise LookupError("no such thing")
    return _first(image)


def hangs(images: list[bytes]) -> list[int]:
    """Never ends for picture 2."""
    while any(_first(image) == 2 for image in images):
        time.sleep(60)
    return [_first(image) for image in images]


def crashes(image: bytes) -> int:
    """Ends its process for picture 3."""
    if _first(image) == 3:
        os.kill(os.getpid(), signal.SIGSEGV)
    return _first(image)


def reshapes(image: bytes) -> list[float]:
    """Returns three numbers for picture 4, and two for the others."""
    return [1.0] * (3 if _first(image) == 4 else 2)


def vector(image: np.ndarray) -> np.ndarray | None:
    """The pixels as a vector, less a gray of 100: zeros for a picture of that gray. A black picture has no value."""
    return None if not image.any() else (image.astype(np.float32) - 100).ravel()


def unclear(image):  # type: ignore[no-untyped-def]
    return 1


def kinds(image: bytes) -> dict[str, bool | float | bytes]:
    """Values of more types."""
    return {"flag": len(image) % 2 == 0, "ratio": len(image) / 7, "blob": image[:5]}


def forks(image: bytes) -> int:
    """Forks, as some libraries do, and returns in both processes."""
    os.fork()
    return len(image)


def pools(image: bytes) -> int:
    """Uses a pool of processes."""
    with ProcessPoolExecutor(1) as pool:
        return pool.submit(len, image).result()


def texts(image: bytes) -> str:
    """A text for an image of one byte, one that is no text for two, and a long one for more."""
    return "a" if len(image) == 1 else "caf\udce9" if len(image) == 2 else "a" * (1 << 21)


def signature(image: bytes) -> bytes:
    """A part of the file itself."""
    return image[200:232]


def fussy(image: np.ndarray) -> float:
    """Fails on pictures of an odd width."""
    if image.shape[1] % 2:
        raise ValueError("an odd width")
    return float(image.mean())
