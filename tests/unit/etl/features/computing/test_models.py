"""ONNX models as feature functions: what they get of an image, and which models are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

from etl.errors import FunctionError
from etl.features.computing.functions import Function
from etl.features.computing.models import digest_of_model, load_model
from etl.features.computing.pictures import Picture
from schemas.feature_sources import Onnx, Preprocess
from tests.support import onnx_models
from tests.support.encoding import encoded

SIZES = ((40, 30), (30, 40), (9, 64), (16, 16), (300, 201))


def pictures(*sizes: tuple[int, int]) -> list[Picture]:
    rng = np.random.default_rng(7)
    return [Picture(encoded(rng.integers(0, 256, (height, width, 3), np.uint8))) for width, height in sizes]


def load(path: Path, preprocess: str = "imagenet") -> Function:
    return load_model(
        str(path), source=Onnx(Preprocess.parse(preprocess), str(path)), digest=digest_of_model(str(path))
    )


@pytest.mark.parametrize("height", [16, 14])
def test_pixels_are_those_of_torchvision(tmp_path: Path, height: int) -> None:
    from torchvision.transforms import v2  # takes seconds, which every process of a run would spend

    model = onnx_models.input_itself(tmp_path / "m.onnx", ["N", 3, height, height])
    scaled = [v2.PILToTensor(), v2.ToDtype(dtype=torch.float32, scale=True)]
    margin = v2.Resize(round(height * 256 / 224), v2.InterpolationMode.BILINEAR)
    normal = v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    references = {
        "imagenet": v2.Compose([margin, v2.CenterCrop(height), *scaled, normal]),
        "0-1": v2.Compose([v2.Resize(height), v2.CenterCrop(height), *scaled]),
        "none": v2.Compose([v2.Resize(height), v2.CenterCrop(height), *scaled, lambda one: one * 255]),
        "clip": v2.Compose(
            [
                v2.Resize(height, v2.InterpolationMode.BICUBIC),
                v2.CenterCrop(height),
                *scaled,
                v2.Normalize((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
            ]
        ),
    }
    given = pictures(*SIZES)
    for preprocess, reference in references.items():
        values = load(model, preprocess).values(given)
        for picture, value in zip(given, values, strict=True):
            np.testing.assert_allclose(value, reference(picture.rgb).numpy().ravel(), rtol=1e-5, atol=1e-5)


def test_layouts_types_and_sizes_of_a_model(tmp_path: Path) -> None:
    given = pictures((40, 30), (8, 8))
    first = load(onnx_models.input_itself(tmp_path / "a.onnx", ["N", 3, 6, 10]), "none").values(given)
    last = load(onnx_models.input_itself(tmp_path / "b.onnx", ["N", 6, 10, 3]), "none").values(given)
    whole = onnx_models.input_itself(tmp_path / "c.onnx", ["N", 6, 10, 3], kind=TensorProto.UINT8)
    half = onnx_models.input_itself(tmp_path / "d.onnx", ["N", 6, 10, 3], kind=TensorProto.FLOAT16)
    open_ = onnx_models.input_itself(tmp_path / "e.onnx", ["N", "h", "w", 3])
    for values in (
        last,
        *(load(one, "none").values(given) for one in (whole, half)),
        load(open_, "none@6x10").values(given),
    ):
        for one, other in zip(first, values, strict=True):
            np.testing.assert_array_equal(one.reshape(3, 6, 10).transpose(1, 2, 0).ravel(), other)


def test_values_are_numbers_or_vectors_for_any_number_of_images(tmp_path: Path) -> None:
    given = pictures((8, 8), (8, 8), (8, 8))
    wanted = [np.asarray(picture.rgb, np.float64).mean((0, 1)) / 255 for picture in given]
    for batch in ("N", 1):  # a model for one image is called for each
        model = load(onnx_models.channel_means(tmp_path / f"{batch}.onnx", batch=batch), "0-1")
        np.testing.assert_allclose(model.values(given), wanted, rtol=1e-5)
    number = load(onnx_models.mean(tmp_path / "mean.onnx"), "0-1").values(given)
    assert [one.shape for one in number] == [()] * 3
    np.testing.assert_allclose(number, np.mean(wanted, axis=1), rtol=1e-5)


def test_other_models_are_refused(tmp_path: Path) -> None:
    def identity(path: Path, shape: list[Any], **options: Any) -> Path:
        return onnx_models.save(path, shape, [helper.make_node("Identity", ["x"], ["y"])], **options)

    text = tmp_path / "text.onnx"
    text.write_text("no model")
    two = [helper.make_node("Identity", ["x"], [name]) for name in ("y", "z")]
    cases = (
        (text, "imagenet", r"Wanted an ONNX model\. Found: .*INVALID_PROTOBUF"),
        (identity(tmp_path / "a.onnx", ["N", 1, 8, 8]), "none", r"Found: x of shape \(N, 1, 8, 8\), tensor\(float\)"),
        (identity(tmp_path / "b.onnx", ["N", 192]), "none", r"Found: x of shape \(N, 192\)"),
        (identity(tmp_path / "c.onnx", [4, 3, 8, 8]), "none", r"or for one\. Found: one for 4"),
        (identity(tmp_path / "d.onnx", ["N", 3, "h", "w"]), "imagenet", r"Use the size .* imagenet@224"),
        (identity(tmp_path / "e.onnx", ["N", 3, 8, 8]), "0-1@9", r"Wanted the size of the model, 8x8\. Found: 0-1@9x9"),
        (onnx_models.input_itself(tmp_path / "f.onnx", ["N", 3, 8, 8], kind=TensorProto.UINT8), "imagenet",
         r"Wanted --onnx-preprocess none for a model of uint8\. Found: imagenet"),
        (onnx_models.save(tmp_path / "g.onnx", ["N", 3, 8, 8], two, outputs=["y", "z"]), "none", "the outputs y, z"),
    )  # fmt: skip
    for path, preprocess, message in cases:
        with pytest.raises(FunctionError, match=message):
            load(path, preprocess)
    elsewhere = onnx_models.with_weights_elsewhere(tmp_path / "w.onnx")
    alone = elsewhere.rename(tmp_path.joinpath("alone").mkdir() or tmp_path / "alone" / "w.onnx")
    with pytest.raises(FunctionError, match=r"weights in one file: torch\.onnx\.export\(\.\.\., external_data=False\)"):
        load(alone)
    with pytest.raises(FunctionError, match="another model than on the driver"):
        load_model(str(text), source=Onnx(Preprocess(), str(text)), digest="0" * 64)
    with pytest.raises(FunctionError, match=r"Wanted the ONNX model .*no\.onnx\. Found: No such file"):
        digest_of_model(str(tmp_path / "no.onnx"))


def test_maps_of_values_are_no_values(tmp_path: Path) -> None:
    whole = onnx_models.save(tmp_path / "m.onnx", ["N", 3, 8, 8], [helper.make_node("Identity", ["x"], ["y"])])
    with pytest.raises(Exception, match=r"Wanted a number or a vector for each image\. Found: an output of shape"):
        load(whole).values(pictures((8, 8)))


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etl.features.computing.models.find_spec", lambda name: None)
    with pytest.raises(FunctionError, match=r"Wanted the package onnxruntime.*pip install 'imagestrata\[onnx\]'"):
        load_model("m.onnx", source=Onnx(Preprocess(), "m.onnx"), digest="0" * 64)
