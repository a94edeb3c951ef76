"""Class folders in a bucket: options that are refused before any request, and which files are images."""

import os
from pathlib import Path
from typing import Any

import pytest

import loader
from formats.image_names import HIDDEN, MARKER, OTHER, OUTSIDE, left_out
from loader.shards import make_client
from tests.support.pictures import picture


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"client": "http://127.0.0.1"}, r"a client from loader\.shards\.make_client\. Found: 'http://127\.0\.0\.1'"),
        ({"class_names": "numbers"}, r"class_names as one of \('name', 'number'\)\. Found: 'numbers'"),
        ({"transform": 5}, r"transform as a function\. Found: 5"),
        ({"bucket": "s3://pictures"}, r"only the name of a bucket.*Found: 's3://pictures'"),
        ({"bucket": ""}, r"a bucket and a folder in it by their names\. Found: ''"),
        ({"reads": 0}, r"reads as a whole number from 1 to 64\. Found: 0"),
        ({"timeout": -1}, r"timeout in seconds, above 0\. Found: -1"),
        ({"bucket_name": "pictures"}, r"either bucket_name or bucket, .*\. Found: 'pictures' and 'pictures'"),
        ({"bucket": None}, r"Found: None and None"),
        ({"on_undecodable": "ignore"}, r"on_undecodable as one of \('raise', 'skip'\)\. Found: 'ignore'"),
        ({"class_level": "train"}, r"class_level as one of \('top',\)\. Found: 'train'"),
        ({"refresh": "yes"}, r"refresh as True or False\. Found: 'yes'"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(loader.OptionError, match=message):
        loader.S3ImageFolder(**{"bucket": "pictures", **options})


def test_buckets_and_folders_have_the_same_images_and_count_the_other_files(tmp_path: Path) -> None:
    images = ["cat/1.png", "cat/deep/er.v2/2.JPEG", "dog/3.jp2", "dog/x.png.webp"]
    others = {
        "cat/.hidden.png": HIDDEN,
        "cat/.ipynb_checkpoints/1-checkpoint.png": HIDDEN,
        "dog/__MACOSX/._3.png": HIDDEN,
        ".git/x.png": HIDDEN,
        "cat/notes.txt": OTHER,
        "dog/png": OTHER,
        "loose.png": OUTSIDE,
    }
    root = tmp_path / "bucket" / "train"
    for name in [*images, *others]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(picture(1))
    folder = loader.open_folder(root)
    assert sorted(map(os.fsdecode, folder.paths)) == images
    assert dict(folder.skipped) == {HIDDEN: 4, OTHER: 2, OUTSIDE: 1}
    (root / "marked").mkdir()  # as an object "marked/" of a bucket
    for _ in range(2):  # the second time from the cache
        bucket = loader.S3ImageFolder("bucket", "train", client=make_client(tmp_path), cache=tmp_path / "cache")
        assert ([name for name, _ in bucket.samples], bucket.classes) == (
            [f"train/{one}" for one in images],
            ["cat", "dog"],
        )
        whole = {name: why for name, why in others.items() if not name.startswith(".git")}
        wanted = whole | {".git/": HIDDEN, "marked/": MARKER}
        assert {one.url.partition("train/")[2]: (one.index, one.reason) for one in bucket.skipped} == {
            name: (-1, why) for name, why in wanted.items()
        }
    # An ingest opens files to see what they are.
    accepted = [name for name in [*images, *others] if left_out(name.encode(), by_extension=False) is None]
    assert accepted == [*images, "cat/notes.txt", "dog/png", "loose.png"]
