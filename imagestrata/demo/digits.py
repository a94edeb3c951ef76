"""The demo's pictures: the 1,797 handwritten digits that scikit-learn ships, written out as a tree of files."""

import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits

SIDE = 64
SPLITS = ("train", "val")


def write(folder: Path) -> Path:
    """Write ``folder/{train,val}/DIGIT/NUMBER.png``, each fifth picture to val, each tenth as JPEG; returns the folder.

    Written aside and renamed, so that a tree that is there is whole; then nothing is done.
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
    aside.rename(folder)
    return folder


def picture(pixels: NDArray[np.float64]) -> Image.Image:
    """8 x 8 pixels of 0 to 16 as dark ink on white paper, 64 x 64 in RGB."""
    paper = Image.fromarray((255 - pixels * (255 / 16)).astype(np.uint8))
    return paper.resize((SIDE, SIDE), Image.Resampling.BICUBIC).convert("RGB")
