"""ONNX models as feature functions: a file, and how images become its input.

A model takes RGB images as one tensor, (N, 3, height, width) or (N, height, width, 3), of float32, float16 or uint8,
for any N or for 1, and returns one tensor: a number or a vector for each image. An image is resized until it covers the
model's size, and its center is cut out:

========  =======================================================================================================
imagenet  as torchvision's models are evaluated: bilinear, 8/7 of the size before the cut (256 for 224), values from
          0 to 1, less the mean of ImageNet's channels, over their deviation
clip      as CLIP's models: bicubic, no margin, CLIP's mean and deviation
0-1       bilinear, no margin, values from 0 to 1
none      bilinear, no margin, values from 0 to 255
========  =======================================================================================================
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from pyspark import SparkFiles
from pyspark.sql import SparkSession

from etl.errors import FunctionError, one_line
from etl.features.computing.functions import Function, ValueMismatchError
from etl.features.computing.pictures import DECODER, Picture
from schemas.feature_sources import Onnx, Preprocess

Pixels = npt.NDArray[Any]

_DTYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(uint8)": np.uint8}
_RANK = 4


@dataclass(frozen=True, slots=True)
class _Steps:
    mean: tuple[float, float, float] | None
    deviation: tuple[float, float, float] | None
    resample: Image.Resampling = Image.Resampling.BILINEAR
    margin: float = 1.0


_STEPS = {
    "imagenet": _Steps((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), margin=256 / 224),
    "clip": _Steps(
        (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711), resample=Image.Resampling.BICUBIC
    ),
    "0-1": _Steps((0, 0, 0), (1, 1, 1)),
    "none": _Steps(None, None),
}


def digest_of_model(file: str) -> str:
    """The SHA-256 of a model's bytes and of the decoder's version, in hexadecimal. Raises `FunctionError`."""
    try:
        with open(file, "rb") as stream:
            digest = hashlib.file_digest(stream, "sha256")
            digest.update(DECODER.encode())
            return digest.hexdigest()
    except OSError as error:
        raise FunctionError(
            f"Wanted the ONNX model {file}. Found: {error.strerror or one_line(error)}. If the file is elsewhere now, "
            "write NAME=onnx:FILE."
        ) from None


def send(spark: SparkSession, file: str, *, digest: str) -> str:
    """Send a model, of this `digest_of_model`, to all executors, under a name that `sent` finds; returns the copy on
    the driver. Raises `FunctionError` if the file cannot be read or has changed.
    """
    folder = Path(SparkFiles.getRootDirectory()) / "models"
    folder.mkdir(exist_ok=True)
    copy = folder / _name(digest)
    if not copy.exists():
        descriptor, attempt = tempfile.mkstemp(dir=folder)
        os.close(descriptor)
        try:
            shutil.copyfile(file, attempt)
        except OSError as error:
            raise FunctionError(f"Wanted the ONNX model {file}. Found: {one_line(error)}") from None
        if digest_of_model(attempt) != digest:
            raise FunctionError(f"Wanted {file} to stay as it is during the run. Found: it has changed.")
        os.replace(attempt, copy)
    spark.sparkContext.addFile(str(copy))
    return str(copy)


def sent(digest: str) -> str:
    """The path of a model that `send` sent, on an executor."""
    return SparkFiles.get(_name(digest))


def _name(digest: str) -> str:
    return f"{digest}.onnx"


def load_model(path: str, *, source: Onnx, digest: str) -> Function:
    """Load a model, which must have this `digest_of_model`, as a function that takes lists of images. Messages name the
    file of ``source``. Raises `FunctionError` if onnxruntime is not installed, or the file is no such model.
    """
    if find_spec("onnxruntime") is None:
        raise FunctionError(
            "Wanted the package onnxruntime, on the driver and on every executor. Found: it is not installed. "
            "Run: pip install 'imagestrata[onnx]'"
        )
    if digest_of_model(path) != digest:
        raise FunctionError("another model than on the driver")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # Spark runs a task on each core
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions have no common class
        reason = one_line(error).replace(path, source.file)
        remedy = ""
        if "external data" in reason.lower() or "file_size" in reason or "external" in reason.lower():
            remedy = ". Save the model with its weights in one file: torch.onnx.export(..., external_data=False)"
        raise FunctionError(f"Wanted an ONNX model. Found: {reason[:300]}{remedy}") from None
    return Function(_caller(session, source.preprocess), takes="picture", takes_lists=True)


def _caller(session: Any, preprocess: Preprocess) -> Callable[[Sequence[Picture]], list[Any]]:
    """What computes the values of a list of images. Raises `FunctionError` for a model of another shape."""
    inputs, outputs = session.get_inputs(), session.get_outputs()
    if len(inputs) != 1 or len(outputs) != 1:
        found = f"the inputs {', '.join(one.name for one in inputs)}, the outputs {', '.join(o.name for o in outputs)}"
        raise FunctionError(f"Wanted a model with one input and one output. Found: {found}")
    (given,) = inputs
    shape, dtype = list(given.shape), _DTYPES.get(given.type)
    axis = next((axis for axis in (1, 3) if len(shape) == _RANK and shape[axis] == 3), None)
    if axis is None or dtype is None:
        raise FunctionError(
            "Wanted a model that takes (N, 3, height, width) or (N, height, width, 3) of float, float16 or uint8. "
            f"Found: {given.name} of shape ({', '.join(map(str, shape))}), {given.type}"
        )
    if isinstance(shape[0], int) and shape[0] != 1:
        raise FunctionError(f"Wanted a model for any number of images, or for one. Found: one for {shape[0]}")
    if dtype is np.uint8 and preprocess.kind != "none":
        raise FunctionError(f"Wanted --onnx-preprocess none for a model of uint8. Found: {preprocess}")
    size = _size(shape[2:] if axis == 1 else shape[1:3], preprocess)
    steps = _STEPS[preprocess.kind]
    is_one = shape[0] == 1

    def call(pictures: Sequence[Picture]) -> list[Any]:
        tensors = [_tensor(picture.rgb, size=size, steps=steps, dtype=dtype) for picture in pictures]
        if axis == 1:
            tensors = [tensor.transpose(2, 0, 1) for tensor in tensors]
        stacks = [tensor[np.newaxis] for tensor in tensors] if is_one else [np.stack(tensors)]
        answers = [session.run(None, {given.name: np.ascontiguousarray(stack)})[0] for stack in stacks]
        return [_value(row) for stack, answer in zip(stacks, answers, strict=True) for row in _rows(answer, len(stack))]

    return call


def _size(shape: Sequence[Any], preprocess: Preprocess) -> tuple[int, int]:
    """The height and width of a model's input. ``shape`` has names for what the model leaves open."""
    if preprocess.size is None:
        if not all(isinstance(one, int) for one in shape):
            raise FunctionError(
                f"Wanted a size for a model that takes images of any size. Found: --onnx-preprocess {preprocess}. "
                f"Use the size that it was trained with, for example {preprocess}@224"
            )
        return shape[0], shape[1]
    if any(isinstance(own, int) and own != wanted for own, wanted in zip(shape, preprocess.size, strict=True)):
        raise FunctionError(f"Wanted the size of the model, {shape[0]}x{shape[1]}. Found: {preprocess}")
    return preprocess.size


def _tensor(image: Image.Image, *, size: tuple[int, int], steps: _Steps, dtype: Any) -> Pixels:
    """The pixels as a model takes them: (height, width, 3)."""
    (height, width), (old_width, old_height) = size, image.size
    tall, wide = round(height * steps.margin), round(width * steps.margin)
    if tall * old_width >= wide * old_height:  # the width that follows covers the size
        wide = int(tall * old_width / old_height)
    else:
        tall = int(wide * old_height / old_width)
    resized = image.resize((max(wide, width), max(tall, height)), steps.resample)
    left, top = (round((own - cut) / 2) for own, cut in zip(resized.size, (width, height), strict=True))
    pixels = np.asarray(resized.crop((left, top, left + width, top + height)))
    if steps.mean is None:
        return pixels.astype(dtype)
    mean, deviation = (np.array(one, np.float32) for one in (steps.mean, steps.deviation))
    return ((pixels.astype(np.float32) / 255 - mean) / deviation).astype(dtype)


def _rows(answer: Any, count: int) -> Pixels:
    found = np.asarray(answer)
    if not found.ndim or len(found) != count:
        raise ValueMismatchError(f"Wanted an output for each of {count} images. Found: one of shape {found.shape}")
    return found


def _value(row: Pixels) -> Any:
    """A number or a vector. Axes of length 1 are left out."""
    found = np.squeeze(row)
    if found.ndim > 1:
        raise ValueMismatchError(f"Wanted a number or a vector for each image. Found: an output of shape {row.shape}")
    return found[()] if found.ndim == 0 else found
