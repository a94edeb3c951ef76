"""Pictures: which pixels an image file has, for training, features, shards and previews alike."""

from typing import Literal, TypeAlias

Orientation: TypeAlias = Literal["upright", "stored"]  # whether the EXIF orientation is applied
