"""Decoding of shard members: the supported types, none of which runs code."""

import gzip
import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from webdataset import handlers

from loader import DecodeError, OptionError
from loader.shards import make_client
from tests.support.encoding import npy
from tests.support.pictures import picture
from tests.support.shard_folders import shards_of


class _Canary:
    """It makes a folder when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.place),)


def canaries(place: Path) -> dict[str, bytes]:
    """Files that make a folder when they are unpickled, by extension."""
    pickled, saved, array = pickle.dumps(_Canary(place)), io.BytesIO(), io.BytesIO()
    torch.save(_Canary(place), saved)
    np.save(array, np.array([_Canary(place)], dtype=object), allow_pickle=True)
    bodies = dict.fromkeys(("pkl", "pickle", "pyd", "a.b.pkl", "mp", "cbor", "ten"), pickled)
    bodies |= dict.fromkeys(("pkl.gz", "a.pyd.gz"), gzip.compress(pickled))
    return bodies | {"pth": saved.getvalue(), "npz": array.getvalue()}


def decoded(sample: dict[str, Any], *handlers: Any, **options: Any) -> Any:
    from loader.adapters.decoding import Decoding

    (found,) = Decoding(*handlers, **options)([{"__key__": "000000007", "__url__": "s3://b/x.tar", **sample}])
    return {key: value for key, value in found.items() if not key.startswith("__")}


def test_nothing_in_a_shard_is_unpickled_also_if_it_is_not_selected(tmp_path: Path) -> None:
    from loader.shards import RemoteDataset

    files = canaries(tmp_path / "canary")
    shards_of(tmp_path / "x", [{"png": picture(1), "cls": b"1", **files}])
    dataset = RemoteDataset(make_client(tmp_path), "x")
    for use in (dataset.decode("pil"), dataset.decode().batched(1, None), dataset.xdecode(must_decode=False)):
        (found,) = use
        sample = found[0] if isinstance(found, list) else found
        assert {key: sample[key] for key in files} == files
        assert not (tmp_path / "canary").exists()
    assert [label for _, label in dataset.decode("pil").to_tuple("png", "cls")] == [1]
    assert decoded({"PKL": files["pkl"], "Pyd": files["pyd"]}) == {"PKL": files["pkl"], "Pyd": files["pyd"]}
    with pytest.raises(DecodeError, match=r"Cannot decode 'npy' of sample 000000007 in s3://b/x\.tar\. .*allow_pickle"):
        decoded({"npy": files["npz"]})
    assert not (tmp_path / "canary").exists()
    pickle.loads(files["pkl"])
    assert (tmp_path / "canary").exists(), "the canary itself works"


def test_files_are_decoded_by_their_last_extension() -> None:
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    numbers = {"cls": b" 12\n", "index": b"-3", "id": b"+4"}
    found = decoded({**numbers, "txt": "ü".encode(), "a.json": b'{"label": 1}', "NPY": npy(array)})
    assert (found["cls"], found["index"], found["id"], found["txt"], found["a.json"]) == (12, -3, 4, "ü", {"label": 1})
    assert found["NPY"].tolist() == array.tolist()
    image = picture(2)
    assert decoded({"png": image})["png"] == image
    assert isinstance(decoded({"seg.PNG": image}, "pil")["seg.PNG"], Image.Image)
    assert decoded({"png": image}, "rgb8")["png"].dtype == np.uint8


def test_own_handlers_come_first_and_may_replace_the_others() -> None:
    def own(extension: str, data: bytes) -> Any:
        return data[::-1] if extension == ".bin" else None

    assert decoded({"bin": b"abc", "cls": b"3"}, own) == {"bin": b"cba", "cls": 3}
    assert decoded({"bin": b"abc", "cls": b"3"}, post=[own]) == {"bin": b"cba", "cls": b"3"}
    assert decoded({"bin": b"abc", "cls": b"3"}, only=["bin"], pre=[own]) == {"bin": b"cba", "cls": b"3"}
    assert decoded({"bin": 5, "cls": b"3"}, own, partial=True) == {"bin": 5, "cls": 3}
    with pytest.raises(OptionError, match=r"Wanted an image type: l8, .*Found: 'pli'"):
        decoded({}, "pli")


@pytest.mark.parametrize(
    ("extension", "data", "found"),
    [
        ("cls", b"1_0", r"Wanted a whole number\. Found: b'1_0'"),
        ("cls", b"", "Wanted a whole number"),
        ("index", b"0x1", "Wanted a whole number"),
        ("cls", "١".encode(), "Wanted a whole number"),
        ("json", b"{", "Expecting property name"),
        ("json", b"[" * 100_000, "recursion"),
        ("txt", b"\xff", "invalid start byte"),
        ("npy", b"\x93NUMPY\x01", "EOF"),
        ("npy", npy(np.zeros(9))[:-1], "EOF"),
        ("npy", b"PK\x03\x04" + bytes(20), "magic"),
        ("png", b"no picture", "no picture of these formats: JPEG, PNG"),
        ("jpg", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "no picture of these formats: JPEG, PNG"),
    ],
)
def test_a_damaged_file_is_named_with_its_sample_and_shard(extension: str, data: bytes, found: str) -> None:
    where = rf"(?s)Cannot decode '{extension}' of sample 000000007 in s3://b/x\.tar\. Found: .*{found}"
    with pytest.raises(DecodeError, match=where):
        decoded({extension: data}, "pil")
    assert not list(_stage("pil", handler=handlers.ignore_and_stop)([{"__key__": "k", extension: data}]))


def test_stages_go_to_worker_processes() -> None:
    again = pickle.loads(pickle.dumps(_stage("pil")))
    assert list(again([{"json": json.dumps([1]).encode()}])) == [{"json": [1]}]


def _stage(*handlers: Any, **options: Any) -> Any:
    from loader.adapters.decoding import Decoding

    return Decoding(*handlers, **options)
