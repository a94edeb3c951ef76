"""Reading the files of entries, from a real S3 server."""

import pytest

from etl.errors import SourceError
from etl.pictures.images import RejectedError
from etl.sources.reading import Reader
from formats.stores.s3 import S3Access
from formats.stores.storage import Storage
from imagestrata.devstack.servers.s3 import S3


def _reason(reader: Reader, place: bytes, offset: int | None, size: int) -> str:
    with pytest.raises(RejectedError) as caught:
        reader.read(place, offset, size)
    return str(caught.value)


def test_object_faults_become_reasons_and_server_faults_raise_errors(s3: S3, keyspace: str) -> None:
    bucket = keyspace
    s3.make_bucket(bucket)
    right = S3Access(s3.endpoint, s3.access_key, s3.secret_key)
    Storage(f"s3://{bucket}", right).write_bytes("a b/1.png", b"picture")
    place = f"s3://{bucket}/a b/1.png".encode()
    with Reader(storage_at=lambda address: Storage(address, right)) as reader:
        assert reader.read(place, None, 7) == b"picture"
        assert reader.read(place, 3, 4) == b"ture"
        assert _reason(reader, place, 3, 5) == "truncated: 4 of 5 bytes"
        assert _reason(reader, f"s3://{bucket}/no.png".encode(), None, 1).startswith("unreadable: ")
        assert _reason(reader, f"s3://{bucket}/no.tar".encode(), 512, 1).startswith("unreadable: ")
        with pytest.raises(SourceError, match="nobucket"):
            reader.read(f"s3://nobucket{bucket}/1.png".encode(), None, 1)
    wrong = S3Access(s3.endpoint, s3.access_key, "wrong")
    down = S3Access("http://127.0.0.1:9", s3.access_key, s3.secret_key)
    for access, told in [(wrong, s3.endpoint), (down, "http://127.0.0.1:9")]:
        with Reader(storage_at=lambda address: Storage(address, access)) as reader:  # noqa: B023
            with pytest.raises(SourceError) as caught:
                reader.read(place, None, 7)
            assert told in str(caught.value)
            assert "\n" not in str(caught.value)
