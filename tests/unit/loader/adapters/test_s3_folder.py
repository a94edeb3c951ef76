"""Class folders in a bucket: options that are refused before any request."""

from typing import Any

import pytest

import loader


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
