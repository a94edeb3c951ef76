"""The usual graph for classification, in training and in evaluation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loader.adapters.crops import crop_numbers, crop_window
from loader.dali import dali
from loader.order.draws import Draws

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def training_numbers(draws: Draws, *, crop_area: tuple[float, float], mirror: bool) -> dict[str, NDArray[Any]]:
    """The random numbers of `classification` in training."""
    crop, flips = crop_numbers(draws, area=crop_area), draws.flips()
    return {"crop": crop, "flip": flips if mirror else np.zeros_like(flips)}


def classification(
    files: Any,
    labels: Any,
    *rest: Any,
    size: int,
    crop: Any = None,
    flip: Any = 0,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    is_on_gpu: bool = False,
    are_vectors: Sequence[bool] = (),
) -> tuple[Any, ...]:
    """The graph of `ClassificationIterator`: images, labels and features from what the source gives, whose last outputs
    are its features; ``are_vectors`` says of each whether it is a vector. In training, ``crop`` and ``flip`` are
    `training_numbers`.
    """
    fn, types = dali("fn"), dali("types")
    device = "mixed" if is_on_gpu else "cpu"
    if crop is not None:
        images, position = _cropped(files, crop, size=size, device=device), {}
    else:
        # Colours are interpolated as on the CPU. Crops are not: nvJPEG before 13.2 prints a warning for each of them.
        images = fn.decoders.image(files, device=device, output_type=types.RGB, jpeg_fancy_upsampling=is_on_gpu)
        sides, (pos_y, pos_x) = _evaluated(images.shape(), size=size)
        images = fn.resize(images, size=sides, interp_type=types.INTERP_TRIANGULAR)
        position = {"crop_pos_y": pos_y, "crop_pos_x": pos_x}
    images = normalized(images, size=size, mean=mean, std=std, mirror=flip, **position)
    labels = fn.cast(fn.squeeze(labels, axes=[0]), dtype=types.INT64)
    features = zip(rest[len(rest) - len(are_vectors) :], are_vectors, strict=True)
    others = [labels, *(one if is_vector else fn.squeeze(one, axes=[0]) for one, is_vector in features)]
    return images, *(one.gpu() if is_on_gpu else one for one in others)


def training_pixels(
    files: Sequence[NDArray[np.uint8] | None],
    draws: Draws,
    *,
    size: int,
    crop_area: tuple[float, float],
    mirror: bool,
) -> list[NDArray[np.uint8] | None]:
    """What `classification` makes of files in training, on the CPU, before it normalises them: uint8
    ``(size, size, 3)`` each; None for none.
    """
    numbers = training_numbers(draws, crop_area=crop_area, mirror=mirror)
    found: list[NDArray[np.uint8] | None] = [None] * len(files)
    good = [place for place, file in enumerate(files) if file is not None]
    if not good:
        return found
    fn, types = dali("fn"), dali("types")
    pipeline = dali("pipeline").Pipeline(batch_size=len(good), num_threads=1, device_id=None, prefetch_queue_depth=1)
    with pipeline:
        encoded = fn.external_source([[files[place] for place in good]], dtype=types.UINT8, ndim=1)
        crop = fn.external_source([numbers["crop"][good]], dtype=types.INT32, ndim=2)
        flip = fn.external_source([numbers["flip"][good]], dtype=types.INT32, ndim=0)
        pipeline.set_outputs(fn.flip(_cropped(encoded, crop, size=size, device="cpu"), horizontal=flip))
    (pixels,) = pipeline.run()
    for place, one in zip(good, np.array(pixels.as_tensor()), strict=True):
        found[place] = one
    return found


def _cropped(files: Any, crop: Any, *, size: int, device: str) -> Any:
    fn, types = dali("fn"), dali("types")
    images = fn.decoders.image_slice(files, **crop_window(crop), device=device, output_type=types.RGB)
    return fn.resize(images, size=[size, size], interp_type=types.INTERP_TRIANGULAR)


def normalized(
    images: Any,
    *,
    size: int,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    **options: Any,
) -> Any:
    """Images cropped to ``(3, size, size)`` and normalised; ``options`` go to DALI."""
    return dali("fn").crop_mirror_normalize(
        images,
        dtype=dali("types").FLOAT,
        output_layout="CHW",
        crop=[size, size],
        mean=[255 * value for value in mean],
        std=[255 * value for value in std],
        **options,
    )


def _evaluated(shape: Any, *, size: int) -> tuple[Any, tuple[Any, Any]]:
    """The sides that torchvision's Resize gives to images of a shape, and the place of its CenterCrop for DALI."""
    # Resize rounds the longer side down; CenterCrop rounds halves to even numbers.
    fn, types, math = dali("fn"), dali("types"), dali("math")
    shorter = round(size * 256 / 224)
    sides = shape[:2]
    sides = sides * shorter // fn.reductions.min(sides)
    rest = fn.cast(sides, dtype=types.INT64) - size
    half = rest // 2
    start = half + (rest & 1) * (half & 1)
    position = fn.cast(start, dtype=types.FLOAT) / math.max(rest, 1)
    return fn.cast(sides, dtype=types.FLOAT), (position[0], position[1])
