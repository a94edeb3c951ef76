"""What reads files of others: good inputs of each, and the call that reads one."""

import json
import pickle
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import loader
from etl.catalog.definitions import read_definitions
from etl.errors import EtlError
from etl.pictures.images import RejectedError, read_header
from etl.pictures.plan import Recode
from etl.pictures.recode import convert
from etl.sources.archives import open_archive
from etl.sources.labels.files import check_rows
from etl.sources.tar_members import NotATarError, members
from formats.pictures.decoding import decode
from formats.pictures.orientation import exif_orientation
from formats.shards.layout import contents_of
from formats.splits.opening import open_split
from formats.stores.storage import Storage
from formats.tar_index import entries
from imagestrata.training_jobs.job import read_job
from loader.adapters.merging import merge_states
from loader.order.state import State
from loader.shards.shard_stream import inflate
from schemas import TableName
from schemas.errors import ImagestrataError
from schemas.feature_sources import parse_source
from schemas.tables import check_column, check_keyspace
from tests.support.archives import tar_of
from tests.support.picture_kinds import kinds
from tests.support.shard_folders import upload
from tests.support.split_dictionaries import theirs
from tests.support.split_folders import image_ids, write_split_folder
from tests.support.training_jobs import GOOD

_MOST_INFLATED = 1 << 24


@dataclass(frozen=True, slots=True)
class Target:
    """Something that reads inputs: ``read`` takes one and may raise these errors."""

    seeds: Callable[[], Sequence[bytes]]
    read: Callable[[bytes], Any]
    errors: tuple[type[Exception], ...] = (ImagestrataError,)


@contextmanager
def _file(data: bytes, name: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        yield path


@cache
def _split_files() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        rows = image_ids(9), [number % 3 for number in range(9)]
        root = write_split_folder(Path(folder), [rows], files=1, checksums=[range(9)])
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def _in_split(kind: str) -> list[bytes]:
    return [data for name, data in _split_files().items() if name.endswith(kind)]


def _read_split(data: bytes, *, kind: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, usual in _split_files().items():
            path = Path(folder, "split", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data if name.endswith(kind) else usual)
        split = loader.open_split(Path(folder, "split"), cache=Path(folder, "cache"))
        repr(split)
        if kind == ".parquet":  # what is accepted is what was written
            assert [uuid.UUID(bytes=one.tobytes()) for one in split.ids] == image_ids(9)
            assert split.labels is not None
            assert split.labels.tolist() == [number % 3 for number in range(9)]
            assert split.checksums is not None
            assert split.checksums.tolist() == list(range(9))


def _dictionaries() -> list[bytes]:
    return [pickle.dumps(theirs(), protocol) for protocol in range(3, 6)]


def _read_dictionary(data: bytes) -> None:
    with _file(data, "splits.pckl") as path:
        opened = open_split(path)
        for index in range(min(3, len(opened.manifest.splits))):
            len(opened.rows(index))


def _states() -> list[bytes]:
    state = {
        "format": 1, "fingerprint": "5" * 64, "seed": 0, "shuffle": True, "epoch": 2, "global_batch_size": 8,
        "rows": 100, "start": 24, "pending": [3, 7], "share": None,
    }  # fmt: skip
    share = {"rank": 0, "world_size": 1, "batch_size": 8, "end": 9, "late": [2]}
    return [json.dumps(one).encode() for one in (state, {**state, "share": share}, {**state, "checksums": "c" * 64})]


def _read_state(data: bytes) -> None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return
    state = State.from_dict(found)
    assert State.from_dict(state.to_dict()) == state
    state.left(np.arange(min(3, len(state.left))))
    merge_states([found])


@cache
def _shard_folder() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        upload(loader.shards.Client(url=folder), "bucket", "digits", count=6)
        return {path.name: path.read_bytes() for path in Path(folder, "bucket", "digits").iterdir() if path.is_file()}


def _read_shards(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, usual in _shard_folder().items():
            Path(folder, name).write_bytes(data if name == "shards.json" else usual)
        shards = loader.shards.open_shards(folder)
        with loader.ShardSource(shards, batch_size=2, rank=0, world_size=1, timeout=0.1) as source:
            sum(map(len, source.epoch(0)))


def _read_piece(data: bytes) -> None:
    found = contents_of(memoryview(data))
    for number in range(len(found)):
        assert found.size(number) == sum(map(len, found.files(number, memoryview(data)).values()))


def _zstd() -> list[bytes]:
    return [bytes(pa.compress(data, "zstd")) for data in (b"", b"text " * 50, bytes(100_000))]


def _inflate(data: bytes) -> None:
    held = 0

    def reserve(size: int) -> None:
        nonlocal held
        held += size
        if held > _MOST_INFLATED:
            raise ValueError("too much")

    inflate(data, reserve)


def _pictures() -> list[bytes]:
    return [kind.data for kind in kinds() if len(kind.data) < 20_000]


def _read_picture(data: bytes) -> None:
    for check in ("header", "full"):
        try:
            header = read_header(data, check=check)  # type: ignore[arg-type]
        except RejectedError:
            continue
        assert header.format
    decode(data).tobytes()


def _convert(data: bytes) -> None:
    convert(data, Recode(size=24, format="JPEG"))


def _exifs() -> list[bytes]:
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "a text"
    return [exif.tobytes()]


def _tars() -> list[bytes]:
    import tarfile

    files = [("train/a/1.png", b"x" * 700), ("train/b/" + "n" * 120 + ".png", b"y"), ("train/\u00e9/2.png", b"")]
    return [tar_of(*files, format=one) for one in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT)[:2]]


def _read_tar(data: bytes) -> None:
    with _file(data, "a.tar") as path:
        with open_archive(str(path).encode(), Storage) as archive:
            found = list(members(archive))
        assert all(one.size >= 0 for one in found)
        with open(path, "rb") as file:
            list(entries(file))


def _label_files() -> list[bytes]:
    rows = 'path,label\na/1.png,cat\n"b, 2.png","a ""dog"""\n\u00e9.png,7\n'
    return [rows.encode(), b"\xef\xbb\xbf" + rows.encode(), rows.replace("\n", "\r\n").encode()]


def _read_labels(data: bytes) -> None:
    with _file(data, "labels.csv") as path, open(path, "rb") as file:
        check_rows(file, str(path))


def _definitions() -> list[bytes]:
    return [
        b'[[feature_view]]\nname = "red"\nsource = "python:tests.support.feature_functions:redness"\n'
        b'fields = { red = "double" }\nowner = "vision@example.org"\n'
        b'[[feature_service]]\nname = "basic"\nfeatures = ["sharpness", "phash"]\n'
        b'[[dataset]]\nname = "digits"\ndescription = "Digits."\ntags = {team = "vision"}\n',
    ]


def _read_definitions(data: bytes) -> None:
    with _file(data, "a.toml") as path:
        read_definitions(str(path))


def _jobs() -> list[bytes]:
    return [GOOD.encode()]


def _read_job(data: bytes) -> None:
    with _file(data, "job.yaml") as path:
        read_job(path)


def _names() -> list[bytes]:
    return [b"digits.data", b"ks_1.Metadata9", b"label"]


def _read_name(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    for check in (TableName.parse, check_keyspace, check_column):
        try:
            found = check(text)
        except ImagestrataError:
            continue
        name = str(found)
        assert name.replace(".", "").replace("_", "").isalnum()
        assert name.isascii()


def _sources() -> list[bytes]:
    return [b"builtin:phash", b"tests.module:function", b"onnx:model.onnx", b"sql:int(a / 2)", b"labels:labels.csv"]


def _read_source(data: bytes) -> None:
    parse_source(data.decode("utf-8", "surrogateescape"))


TARGETS = {
    "split dictionary": Target(_dictionaries, _read_dictionary),
    "split manifest": Target(lambda: _in_split("manifest.json"), lambda data: _read_split(data, kind="manifest.json")),
    "split file": Target(lambda: _in_split(".parquet"), lambda data: _read_split(data, kind=".parquet")),
    "loader state": Target(_states, _read_state),
    "shard manifest": Target(lambda: [_shard_folder()["shards.json"]], _read_shards),
    "shard piece": Target(
        lambda: [data for name, data in _shard_folder().items() if name.endswith(".tar")], _read_piece, (ValueError,)
    ),
    "zstd": Target(_zstd, _inflate, (ValueError, OSError)),
    "picture": Target(_pictures, _read_picture),
    "picture to convert": Target(_pictures, _convert, (RejectedError,)),
    "exif": Target(_exifs, exif_orientation, ()),
    "tar": Target(_tars, _read_tar, (EtlError, ImagestrataError, NotATarError)),
    "label file": Target(_label_files, _read_labels),
    "definitions": Target(_definitions, _read_definitions),
    "training job": Target(_jobs, _read_job),
    "identifier": Target(_names, _read_name),
    "feature source": Target(_sources, _read_source),
}
