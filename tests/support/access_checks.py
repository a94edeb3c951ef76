"""A split of a few small rows, and an epoch of it that ends or fails quickly: for tests of access."""

import socket
import time
import uuid
from pathlib import Path

import pytest

import loader
from loader.cassandra import clients
from tests.support.certificates import Authority, Certificate
from tests.support.split_folders import image_ids, write_split_folder

IDS = image_ids(20)
BYTES = {one: bytes([number]) * 50 for number, one in enumerate(IDS)}
SECRET, PASSPHRASE = "hardly-guessed-7", "open-sesame-5"
REVERSE = socket.getnameinfo(("127.0.0.1", 0), 0)[0]  # usually localhost
NAME = "127.1"  # a host name for the driver; unlike localhost, it is 127.0.0.1 only, on every machine
NAMES = f"127.0.0.1 localhost {NAME} {REVERSE}"


@pytest.fixture(params=["acsylla", "cassandra-driver"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with both clients."""
    monkeypatch.setattr(clients, "default_client", lambda **_: request.param)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates") / "authority")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates") / "stranger")


def split_of(table: str, folder: Path) -> loader.Split:
    """Open a split of the rows."""
    written = write_split_folder(folder / "split", [(IDS, [0] * 20)], data_table=table)
    return loader.open_split(written, cache=folder / "cache")


def read(split: loader.Split, **options: object) -> dict[uuid.UUID, bytes]:
    """Read one epoch. Errors must come quickly."""
    start = time.monotonic()
    try:
        with loader.CassandraSource(split, batch_size=8, **options) as source:  # type: ignore[arg-type]
            return {
                uuid.UUID(bytes=row.tobytes()): image
                for batch in source.epoch(0)
                for row, image in zip(batch.ids, batch.images, strict=True)
            }
    finally:
        assert time.monotonic() - start < 30


def encryption_of(authority: Authority, server: Certificate) -> dict[str, object]:
    """Settings of a node that requires TLS and client certificates of an authority."""
    pem = {
        "private_key": server.key.read_text(encoding="ascii") + server.certificate.read_text(encoding="ascii"),
        "trusted_certificates": authority.ca.read_text(encoding="ascii"),
    }
    factory = {"class_name": "org.apache.cassandra.security.PEMBasedSslContextFactory", "parameters": pem}
    encryption = {"enabled": True, "optional": False, "require_client_auth": True, "ssl_context_factory": factory}
    return {"client_encryption_options": encryption}
