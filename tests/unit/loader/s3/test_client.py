"""Requests to buckets: errors of the store become errors of the loader."""

from formats.errors import RefusedError, StorageError
from loader import AccessError, UnreachableError
from loader.s3.client import told


def test_errors_are_translated_by_class_and_not_by_message() -> None:
    assert type(told(RefusedError("Found: 404"))) is AccessError
    assert type(told(StorageError("Wanted s3://refuses/no keys. Found: no bucket"))) is UnreachableError
