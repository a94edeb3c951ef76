"""Tokens in a folder and in a bucket: no concurrent change is lost."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from formats.stores.s3 import S3Access
from formats.stores.storage import Storage
from imagestrata.devstack.servers.s3 import S3
from imagestrata.service.tokens import Tokens
from schemas.errors import SchemaError

_PROCESSES, _EACH = 6, 4


def create_some(address: str, access: S3Access, process: int) -> list[str]:
    """Create tokens and revoke every other one; return the rest."""
    tokens = Tokens(Storage(address, access))
    kept = []
    for number in range(_EACH):
        text = tokens.create(f"{process}.{number}", "read")
        if number % 2:
            tokens.revoke(f"{process}.{number}")
        else:
            kept.append(text)
    return kept


@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_changes_of_many_processes_at_once_all_last(kind: str, tmp_path: Path, s3: S3, keyspace: str) -> None:
    access = S3Access(s3.endpoint, s3.access_key, s3.secret_key)
    address = str(tmp_path / "root")
    if kind == "bucket":
        s3.make_bucket(keyspace)
        address = f"s3://{keyspace}/all"
    with ProcessPoolExecutor(_PROCESSES, mp_context=get_context("spawn")) as pool:
        done = [pool.submit(create_some, address, access, process) for process in range(_PROCESSES)]
        texts = [text for one in done for text in one.result(120)]
    tokens = Tokens(Storage(address, access))
    found = [Tokens.find_in(tokens.all(), text) for text in texts]
    assert sorted(one.name for one in found if one) == sorted(
        f"{process}.{number}" for process in range(_PROCESSES) for number in range(0, _EACH, 2)
    )
    assert len(tokens.all()) == len(texts)
    with pytest.raises(SchemaError, match="which another token has"):
        tokens.create("0.0", "read")
