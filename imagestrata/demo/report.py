"""The report of the demo: one augmented batch, the classes of each split, and the rates."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

TILE = 132
_MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
_STD = np.array([0.229, 0.224, 0.225], dtype=np.float32)


@dataclass(frozen=True)
class Tile:
    """A picture of the contact sheet: a data URL and the name of its class."""

    picture: str
    name: str


def tiles(images: NDArray[np.float32], labels: NDArray[np.int64], names: Mapping[int, str]) -> list[Tile]:
    """Turn normalised float32 images of shape ``(b, 3, h, w)`` and their class numbers into pictures with the names of
    their classes.
    """
    shown = np.clip((images.transpose(0, 2, 3, 1) * _STD + _MEAN) * 255, 0, 255).astype(np.uint8)
    return [
        Tile(_data_url(pixels), names.get(label, str(label)))
        for pixels, label in zip(shown, labels.tolist(), strict=True)
    ]


def write(
    path: Path, *, sheet: Sequence[Tile], split_counts: Sequence[Mapping[str, int]], metrics: Mapping[str, Any]
) -> None:
    """Write the report as one file: pictures, the number of images by class name in each split, and values by name."""
    page = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=jinja2.StrictUndefined
    ).get_template("report.html.j2")
    classes = list(dict.fromkeys(name for counts in split_counts for name in counts))
    path.parent.mkdir(parents=True, exist_ok=True)
    text = page.render(
        sheet=sheet,
        tile=TILE,
        classes=classes,
        splits=split_counts,
        totals=[sum(counts.values()) for counts in split_counts],
        most=max((rows for counts in split_counts for rows in counts.values()), default=1),
        metrics=metrics,
    )
    path.write_text(text, encoding="utf-8")


def _data_url(pixels: NDArray[np.uint8]) -> str:
    file = io.BytesIO()
    Image.fromarray(pixels).resize((TILE, TILE), Image.Resampling.LANCZOS).save(file, "JPEG", quality=90)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
