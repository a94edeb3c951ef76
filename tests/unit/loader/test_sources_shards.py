"""Shards as a source: what all sources do, with pieces of shards; and shards that have changed."""

import json
import pickle
import shutil
import tempfile
import threading
from collections import Counter
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

import loader
from formats.shards.folder import manifest_of, publish
from formats.shards.layout import ShardWriter, index_name
from formats.stores.storage import Storage
from loader import OptionError, ShardError, SplitError, StateError
from loader.prefetch.stats import Meter
from loader.shards import RemoteDataset, make_client, open_shards
from loader.shards.piece_cache import FOLDER, PieceCache, PieceLocation
from loader.shards.pieces import PieceReader, locations_of
from loader.shards.shard_schedule import ShardSchedule
from loader.shards.shard_set import Shards
from loader.sources import usual_mix
from tests.support.shard_folders import first_shard, samples_in, upload
from tests.support.waiting import until

COUNT = 103


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shards")
    upload(make_client(root), "b", "x", count=COUNT, workers=1)
    return root / "b" / "x"


@pytest.fixture(scope="module")
def shards(root: Path) -> Shards:
    return open_shards(str(root))


@pytest.fixture
def copied(root: Path, tmp_path: Path) -> Path:
    shutil.copytree(root, tmp_path / "copy")
    return tmp_path / "copy"


def make(shards: Shards, **options: Any) -> loader.ShardSource:
    return loader.ShardSource(shards, **{"batch_size": 8, "mix": 20, "streams": 6, **options})


def ids(source: loader.Source, epoch: int = 0) -> list[list[bytes]]:
    return [list(map(bytes, batch.ids)) for batch in source.epoch(epoch)]


def test_each_image_comes_once_with_its_label_in_an_order_per_epoch_and_seed(root: Path, shards: Shards) -> None:
    written = [(one["png"], int(one["cls"])) for one in samples_in(root).values()]
    assert len(set(written)) == COUNT
    with make(shards) as source:
        for epoch in (0, 1):
            batches = list(source.epoch(epoch))
            assert [batch.step for batch in batches] == list(range(len(source)))
            assert Counter(chain.from_iterable(batch.positions.tolist() for batch in batches)) == Counter(range(COUNT))
            for batch in batches:
                read = list(zip(map(bytes, batch.images), batch.labels.tolist(), strict=True))
                assert read == [written[position] for position in batch.positions]
                assert len(batch) == len(batch.images) == len(batch.labels) == len(batch.ids)
        assert source.stats().images == 2 * COUNT
    assert ids(make(shards), 0) != ids(make(shards), 1)
    assert ids(make(shards), 0) != ids(make(shards, seed=1), 0)


def test_ranks_have_different_images_and_equally_many_batches(shards: Shards) -> None:
    sources = [make(shards, rank=rank, world_size=3, last_batch_policy="FILL") for rank in range(3)]
    found = [ids(source) for source in sources]
    assert {len(batches) for batches in found} == {5}
    assert len(set(chain.from_iterable(chain.from_iterable(found)))) == COUNT
    plain = [ids(make(shards, rank=rank, world_size=3)) for rank in range(3)]
    assert Counter(chain.from_iterable(chain.from_iterable(plain))).most_common(1)[0][1] == 1


@pytest.mark.parametrize("steps", [0, 1, 5, 13])
def test_a_state_resumes_at_the_next_batch(shards: Shards, steps: int) -> None:
    wanted = ids(make(shards)) + ids(make(shards), 1)
    source = make(shards)
    batches = source.epoch(0)
    for _ in range(steps):
        next(batches)
    state = json.loads(json.dumps(source.state_dict()))
    again = pickle.loads(pickle.dumps(make(shards)))
    again.load_state_dict(state)
    first = again.first_epoch
    rest = ids(again, 0) if first == 0 else []
    assert rest + ids(again, 1) == wanted[steps:]


def test_the_rest_of_an_epoch_resumes_on_another_number_of_ranks(shards: Shards) -> None:
    source = make(shards)
    batches = source.epoch(0)
    before = [bytes(one) for batch in islice(batches, 4) for one in batch.ids]
    state = source.state_dict()
    after = []
    for rank in range(2):
        other = make(shards, rank=rank, world_size=2, batch_size=5, streams=4)
        other.load_state_dict(state)
        after += list(chain.from_iterable(ids(other)))
    assert Counter(before + after) == Counter(chain.from_iterable(ids(make(shards))))


def test_a_source_reads_ahead_within_its_budget(shards: Shards) -> None:
    pieces = locations_of(shards)
    budget = 4 * max(place.bytes for place in pieces)
    with make(shards, memory_budget=budget, streams=1, mix=8) as source:
        most = 0
        for batch in source.epoch(0):
            assert len(batch)
            most = max(most, source.stats().held_bytes)
        assert 0 < most <= budget


def test_pieces_use_buffers_of_one_size(shards: Shards) -> None:
    reader = PieceReader(shards, threads=2, meter=Meter())
    reader.connect()
    try:
        loaded = [
            reader.read(number, room=shards.contents.bytes).result(timeout=30)
            for number in range(len(reader.locations))
        ]
        assert len(loaded) > 2
        taken = [len(piece.buffer) for piece in loaded if isinstance(piece.buffer, np.ndarray)]
        assert taken == [max(place.bytes for place in reader.locations)] * len(loaded)
    finally:
        reader.close()


def test_a_copy_of_a_source_uses_the_same_cache_from_another_folder(
    shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    packed = pickle.dumps(make(shards, cache="kept"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pickle.loads(packed) as source:
        next(source.epoch(0))
    assert [path.name for path in tmp_path.iterdir() if list(path.iterdir())] == ["kept"]


@settings(max_examples=20)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(50, 120))
def test_a_cache_never_exceeds_its_size(sizes: list[int], most: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cache = PieceCache(folder, size=most)
        for number, size in enumerate(sizes):
            data = bytes([number]) * size
            place = PieceLocation("a", 0, size, xxhash.xxh3_128_hexdigest(data), 1, 0)
            cache.keep(place, memoryview(data))
            assert sum(path.stat().st_size for path in (Path(folder) / FOLDER).iterdir()) <= most
            into = bytearray(size)
            assert cache.read(place, memoryview(into))
            assert bytes(into) == data


def test_a_truncated_shard_is_named_with_its_path(copied: Path) -> None:
    shard = first_shard(copied)
    with shard.open("rb+") as file:
        file.truncate(shard.stat().st_size - 700)
    found = rf"samples 0 to \d+ in {shard.name} of .*, [\d,]+ bytes from 0 as in the manifest\. Found: the shard"
    with pytest.raises(ShardError, match=rf"{found} ends 700 bytes earlier\. The shard was truncated or replaced"):
        ids(make(open_shards(str(copied))))


def test_a_swapped_or_changed_shard_is_named(copied: Path) -> None:
    first, second = sorted(copied.glob("*.tar"))[:2]
    data = bytearray(first.read_bytes())
    data[600] ^= 1
    first.write_bytes(data)
    with pytest.raises(ShardError, match=rf"in {first.name} of .*Found: XXH3 [0-9a-f]{{12}} instead of"):
        ids(make(open_shards(str(copied))))
    first.write_bytes(second.read_bytes())
    with pytest.raises(ShardError, match=rf"in {first.name} of .*Found: (XXH3|the shard ends)"):
        ids(make(open_shards(str(copied))))


def test_a_shard_that_is_missing_is_named(copied: Path) -> None:
    shard = first_shard(copied)
    shard.unlink()
    with pytest.raises(ShardError, match=rf"the shard {shard.name} of .*, which the manifest names\. Found: no such"):
        ids(make(open_shards(str(copied))))


def test_verifying_reads_whole_shards_and_names_all_that_differ(copied: Path) -> None:
    opened = open_shards(str(copied))
    opened.verify()
    first, second, third = sorted(copied.glob("*.tar"))[:3]
    first.write_bytes(first.read_bytes()[:-1] + b"x")
    second.write_bytes(b"")
    third.unlink()
    with pytest.raises(ShardError) as told:
        opened.verify()
    assert f"{first.name} of SHA-256 " in str(told.value)
    assert f"{second.name} of 0 bytes instead of" in str(told.value)
    assert f"no {third.name}." in str(told.value)


def test_places_without_shards_are_named(copied: Path, tmp_path: Path) -> None:
    with pytest.raises(SplitError, match=r"a folder of shards at .*Found: no shards\.json there\. Make one with"):
        open_shards(str(tmp_path / "nowhere"))
    manifest = json.loads((copied / "shards.json").read_text())
    for change, message in [
        ({"format": 99}, r"format 1 or older.*Found: format 99.*Upgrade"),
        ({"samples": 5}, r"shards of 5 samples"),
        ({"shards": [{"name": "x"}]}, "damaged"),
    ]:
        (copied / "shards.json").write_text(json.dumps({**manifest, **change}))
        with pytest.raises(SplitError, match=message):
            open_shards(str(copied))
    (copied / "shards.json").write_text("nonsense")
    with pytest.raises(SplitError, match="no JSON object"):
        open_shards(str(copied))


@pytest.mark.parametrize("name", ["", ".", "..", "../a.tar", "a/b.tar", "/a.tar", "a\\b.tar", 5, None, ["a.tar"]])
def test_shard_names_that_escape_the_folder_or_repeat_are_refused(copied: Path, name: Any) -> None:
    manifest = json.loads((copied / "shards.json").read_text())
    first, second, *_ = manifest["shards"]
    for first["name"] in (name, second["name"]):
        (copied / "shards.json").write_text(json.dumps(manifest))
        with pytest.raises(SplitError, match=r"unique shard names without folders in .* Found: |a damaged one"):
            open_shards(str(copied))


def test_files_that_batches_have_no_place_for_are_counted_and_remote_datasets_give_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root, told = tmp_path / "b", b'{"id":"00000000-0000-0000-0000-000000000000"}'
    with Storage(root).create("filler00-000000.tar") as write:
        writer = ShardWriter(write)
        for number in range(4):
            theirs = {"meta": b"of theirs", "x.json": b"{}"} if number else {}
            writer.add(f"{number:09}", {"jpg": b"picture", "cls": b"1", "json": told, **theirs})
        written = writer.end("filler00-000000.tar")
    Storage(root).write_bytes(index_name(written.name), writer.index.encode())
    facts: dict[str, Any] = {"class_names": {}, "counts": {1: 4}, "seed": 0, "source": "", "source_fingerprint": ""}
    publish(Storage(root), manifest_of([written], label_type="int", options={}, **facts), tag="filler00", before=None)
    with loader.ShardSource(open_shards(str(root)), batch_size=2) as source:
        assert sum(len(batch) for batch in source.epoch(0)) == 4
        assert source.not_taken == {"meta": 3, "x.json": 3}
    assert len(caplog.records) == 2
    assert "has a file .meta, which batches leave out" in caplog.text
    samples = list(RemoteDataset(make_client(tmp_path), "b"))
    assert Counter(sample.get("meta") for sample in samples) == {b"of theirs": 3, None: 1}


def test_closing_in_mid_epoch_leaves_no_thread(shards: Shards) -> None:
    before = set(threading.enumerate())
    source = make(shards)
    batches = source.epoch(0)
    next(batches)
    assert set(threading.enumerate()) - before
    source.close()
    with pytest.raises(loader.ClosedError):
        list(batches)
    until(lambda: not any(thread.name == "loader-pieces" for thread in set(threading.enumerate()) - before))


def test_the_shuffle_buffer_size_depends_on_the_sample_size(shards: Shards) -> None:
    whole = loader.ShardSource(shards, batch_size=8).plan
    assert isinstance(whole, ShardSchedule)
    assert whole.mix == 1024
    manifest = replace(shards.contents, bytes=COUNT * 110_000)
    assert usual_mix(replace(shards, manifest=manifest), 12) == 151
    assert usual_mix(replace(shards, manifest=replace(manifest, bytes=COUNT * 50_000_000)), 12) == 8


def test_invalid_options_are_refused(shards: Shards) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"batch_size": 0}, "batch_size of at least 1"),
        ({"mix": 0}, "mix"),
        ({"streams": 0}, "streams"),
        ({"rank": 2, "world_size": 2}, "rank as a whole number from 0 to 1"),
        ({"memory_budget": 0}, "memory_budget"),
        ({"max_in_flight": 0}, "max_in_flight"),
        ({"cache_bytes": -1}, "cache_bytes"),
        ({"last_batch_policy": "SOME"}, "last_batch_policy"),
        ({"shuffle": 1}, "shuffle"),
    ]
    for options, message in cases:
        with pytest.raises(OptionError, match=message):
            make(shards, **options)
    with pytest.raises(OptionError, match=r"shards from loader\.open_shards"):
        loader.ShardSource(loader.open_folder, batch_size=2)  # type: ignore[arg-type]
    with pytest.raises(StateError, match="a state of shards"):
        make(shards).load_state_dict({"format": 1, "epoch": 0})


def test_shards_pickle_as_their_path_and_replaced_ones_are_refused(copied: Path) -> None:
    opened = open_shards(str(copied))
    packed = pickle.dumps(opened)
    assert len(packed) < 1000
    assert pickle.loads(packed).fingerprint == opened.fingerprint
    upload(make_client(copied.parent), copied.name, "", count=20, workers=1, overwrite=True)
    with pytest.raises(SplitError, match="The shards were replaced"):
        pickle.loads(packed)
