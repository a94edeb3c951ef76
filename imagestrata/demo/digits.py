"""The pictures of the demo: the 1,797 handwritten digits of scikit-learn, written as a tree of files."""

import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits

from imagestrata.demo import SPLITS

SIDE = 64


def write(folder: Path) -> Path:
    """Write ``folder/{train,val}/DIGIT/NUMBER.png`` unless the folder exists, and return it. Every fifth picture goes
    to val, every tenth is a JPEG.
    """
    if folder.is_dir():
        return folder
    aside = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    digits = load_digits()
    for number, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        place = aside / SPLITS[number % 5 == 4] / str(label)
        place.mkdir(parents=True, exist_ok=True)
        drawn = picture(pixels)
        if number % 10 == 3:
            drawn.save(place / f"{number:04d}.jpg", quality=92)
        else:
            drawn.save(place / f"{number:04d}.png")
    aside.rename(folder)  # so a tree that exists is complete
    return folder


def picture(pixels: NDArray[np.float64]) -> Image.Image:
    """Draw 8 x 8 pixels of 0 to 16 as dark ink on white, in RGB of 64 x 64 pixels."""
    paper = Image.fromarray((255 - pixels * (255 / 16)).astype(np.uint8))
    return paper.resize((SIDE, SIDE), Image.Resampling.BICUBIC).convert("RGB")
