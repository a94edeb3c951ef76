"""Requests to buckets: errors of the store become errors of the loader."""

import pytest

from formats.errors import RefusedError, StorageError
from loader import AccessError, OptionError, UnreachableError
from loader.s3.client import make_client, told


def test_errors_are_translated_by_class_and_not_by_message() -> None:
    assert type(told(RefusedError("Found: 404"))) is AccessError
    assert type(told(StorageError("Wanted s3://refuses/no keys. Found: no bucket"))) is UnreachableError


@pytest.mark.parametrize("url", [
    "http://me:canary@127.0.0.1:9", "https://canary@store", "HTTPS://canary@store", "https:/me:canary@store",
    "https://store/?token=canary",
])  # fmt: skip
def test_an_endpoint_with_a_password_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(OptionError, match=r"without a password|no host, or a query") as raised:
        make_client(url)
    assert "canary" not in str(raised.value)


def test_the_repr_of_a_client_has_no_keys() -> None:
    assert repr(make_client("http://h:1", "canary", "canary", session_token="canary")) == "Client(url='http://h:1')"
