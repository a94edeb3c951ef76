"""Messages about the endpoint and keys of an S3 storage that cannot be reached."""

import os
import socket
from collections.abc import Callable

import pytest

from etl.sources.plan import SourcePlan
from formats.errors import StorageError
from formats.stores.s3 import CHECK_SECONDS, S3Access
from formats.stores.storage import Storage
from imagestrata.devstack.servers import ports


@pytest.mark.parametrize("ask", [Storage.check, lambda storage: list(storage.entries())])
def test_an_endpoint_that_is_down_is_named(ask: Callable[[Storage], object]) -> None:
    endpoint = f"http://127.0.0.1:{ports.free(['127.0.0.1'], 1)[0]}"
    with pytest.raises(StorageError, match=rf"{endpoint}\. Found: no answer\. .* address right \(AWS_ENDPOINT_URL\)"):
        ask(Storage("s3://storage/x", S3Access(endpoint, "key", "secret")))


def test_an_endpoint_that_never_answers_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CHECK_SECONDS < 15
    monkeypatch.setattr("formats.stores.storage.CHECK_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        endpoint = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        with pytest.raises(StorageError, match="no answer"):
            Storage("s3://storage", S3Access(endpoint, "key", "secret")).check()


def test_invalid_endpoints_and_missing_keys_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    with pytest.raises(StorageError, match=r"Found: no keys\. Set AWS_ACCESS_KEY_ID"):
        Storage("s3://storage", S3Access("http://127.0.0.1:9")).check()
    with pytest.raises(StorageError, match="Invalid endpoint: nonsense"):
        Storage("s3://storage", S3Access("nonsense", "a", "b")).check()
    with pytest.raises(StorageError, match="no bucket"):
        Storage("s3://")


@pytest.mark.parametrize("address", ["ftp://me:canary@host/x", "s3://KEY:canary@bucket/x", "hdfs://a:b:canary@h:1/"])
def test_addresses_with_passwords_are_refused_without_showing_them(address: str) -> None:
    with pytest.raises(StorageError, match="without a password") as raised:
        Storage(address)
    assert "canary" not in str(raised.value)
    with pytest.raises(ValueError, match="without a password") as refused:
        SourcePlan(address=address)
    assert "canary" not in str(refused.value)
    for endpoint in ("http://me:canary@127.0.0.1:9", "https://canary@127.0.0.1:9"):
        with pytest.raises(StorageError, match="without a password"):
            S3Access(endpoint)
