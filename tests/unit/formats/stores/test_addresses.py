"""Invalid addresses, and stores that are not supported."""

from pathlib import Path

import fsspec
import pytest

from formats.errors import AddressError, StorageError
from formats.stores.addresses import check_store
from formats.stores.storage import Storage


@pytest.mark.parametrize(
    "address",
    [
        *("s3://bucket", "s3://bucket/a:b", "s3a://bucket/x", "hdfs://host:9000/x", "hdfs:///x", "file:///tmp", "x"),
        *("/data/a:b", "C:data", "memory://place", "gs.x", "DIR/x-{0000..0146}.tar", "keyspace.table", ""),
    ],
)
def test_addresses_that_may_be_right_pass(address: str) -> None:
    check_store(address)


@pytest.mark.parametrize(
    ("address", "guess"),
    [
        ("s3:/bucket/x", "s3://bucket/x"), ("s3:bucket", "s3://bucket"), ("s3:///bucket/x", "s3://bucket/x"),
        ("S3://bucket", "s3://bucket"), ("s3a:/bucket", "s3a://bucket"), ("hdfs:/host/x", "hdfs://host/x"),
        ("file:/tmp/x", "file:///tmp/x"),
    ],
)  # fmt: skip
def test_a_typo_is_refused_with_the_likely_address(address: str, guess: str) -> None:
    with pytest.raises(AddressError, match=rf"Found: {address}\. Did you mean {guess}\?"):
        check_store(address)


@pytest.mark.parametrize("address", ["http://host/x", "https://host/x", "http:/host"])
def test_a_web_server_is_refused(address: str) -> None:
    with pytest.raises(AddressError, match=r"Wanted a local path, s3://bucket/prefix .* Web servers are not supported"):
        check_store(address)


def test_an_address_on_s3_needs_a_bucket() -> None:
    with pytest.raises(AddressError, match="no bucket"):
        check_store("s3://")


def test_a_local_path_that_looks_like_a_typo_passes_if_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "s3:").mkdir()
    monkeypatch.chdir(tmp_path)
    check_store("s3:")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("gs://bucket/x", "gs:// needs gcsfs, which is not installed, and has not been tried."),
        ("gs:/x", "gs:// needs gcsfs, which is not installed, and has not been tried."),
        ("abfs://a/b", "abfs:// needs adlfs, which is not installed, and has not been tried."),
        ("abfss:/x", "abfss:// is not supported."),
        ("foo://x", "foo:// is not supported."),
        ("dbfs:/x", "dbfs:// is not supported. Use the path under which it is mounted, such as /dbfs or /Volumes."),
    ],
)
def test_a_store_that_no_package_opens_is_refused_with_those_that_are_supported(address: str, reason: str) -> None:
    for check in (check_store, Storage):
        with pytest.raises(AddressError) as error:
            check(address)
        assert str(error.value).endswith(f"hdfs://host/path. Found: {address}. {reason}")


def test_a_store_that_is_not_supported_needs_two_slashes_even_if_a_package_opens_it() -> None:
    check_store("ftp://host/x")
    with pytest.raises(AddressError, match=r"Found: ftp:/host/x\. Did you mean ftp://host/x\?"):
        check_store("ftp:/host/x")


def test_hdfs_without_hadoop_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("Unable to load libjvm\nand many more lines")

    monkeypatch.setattr(fsspec.core, "url_to_fs", fail)
    with pytest.raises(StorageError, match=r"Found: none that works\. Set HADOOP_HOME and CLASSPATH\.$"):
        Storage("hdfs://host/x")
