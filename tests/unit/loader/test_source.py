"""Sources over rows in memory: each id once, in order, with its own bytes; states, skipping, statistics, closing."""

import itertools
import json
import re
import threading
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import loader
from loader.order.history import without_past
from loader.order.schedule import Schedule
from loader.prefetch.stats import Stats
from tests.support.row_sources import RowSource
from tests.support.split_folders import image_ids, packed, write_split_folder
from tests.support.waiting import until

COUNT = 103
IDS = image_ids(COUNT)
LABELS = [number % 7 for number in range(COUNT)]
BYTES = {one: bytes([number]) * (20 + number) for number, one in enumerate(IDS)}
MISSING = uuid.UUID(int=1)


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> list[loader.Split]:
    rows = [(IDS, LABELS), ([*IDS[:20], MISSING], LABELS[:21])]
    folder = write_split_folder(tmp_path_factory.mktemp("split"), rows, data_table="memory.data")
    cache = tmp_path_factory.mktemp("cache")
    return [loader.open_split(folder, index=index, cache=cache) for index in range(len(rows))]


class Sources:
    """Makes sources of the splits, and closes them."""

    def __init__(self, splits: list[loader.Split]) -> None:
        self._splits = splits
        self._made: list[RowSource] = []

    def __call__(self, index: int = 0, **options: object) -> RowSource:
        self._made.append(RowSource(self._splits[index], rows=BYTES, **({"batch_size": 8} | options)))
        return self._made[-1]

    def close(self) -> None:
        for source in self._made:
            source.close()


@pytest.fixture
def sources(splits: list[loader.Split]) -> Iterator[Sources]:
    made = Sources(splits)
    yield made
    made.close()


def ids_of(batches: Iterator[loader.Batch]) -> list[uuid.UUID]:
    return [uuid.UUID(bytes=row.tobytes()) for batch in batches for row in batch.ids]


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_ranks_together_read_each_id_exactly_once_an_epoch(sources: Sources, world_size: int) -> None:
    ranks = [sources(rank=rank, world_size=world_size) for rank in range(world_size)]
    for epoch in range(2):
        found = [ids_of(source.epoch(epoch)) for source in ranks]
        assert sorted(itertools.chain(*found)) == sorted(IDS)
        assert [len(one) for one in found] == [source.samples for source in ranks]


def test_epochs_differ_and_the_same_seed_repeats(sources: Sources) -> None:
    source, again, other = sources(), sources(memory_budget=1), sources(seed=1)
    assert ids_of(source.epoch(0)) == ids_of(again.epoch(0)) == ids_of(source.epoch(0))
    assert ids_of(source.epoch(1)) == ids_of(again.epoch(1))
    orders = [ids_of(source.epoch(0)), ids_of(source.epoch(1)), ids_of(other.epoch(0)), IDS]
    assert len({tuple(one) for one in orders}) == 4


def test_without_shuffle_every_epoch_has_the_order_of_the_split(sources: Sources) -> None:
    source = sources(shuffle=False)
    assert ids_of(source.epoch(0)) == ids_of(source.epoch(5)) == IDS


@pytest.mark.parametrize(("batch_size", "policy", "counts"), [
    (8, "PARTIAL", [52, 51]), (8, "DROP", [48, 48]), (200, "PARTIAL", [52, 51]), (200, "DROP", [0, 0]),
    (8, "FILL", [56, 56]), (200, "FILL", [200, 200]),
])  # fmt: skip
def test_last_batch_policies_deliver_the_promised_counts(
    sources: Sources, batch_size: int, policy: str, counts: list[int]
) -> None:
    pair = [sources(batch_size=batch_size, last_batch_policy=policy, rank=rank, world_size=2) for rank in (0, 1)]
    found = [ids_of(source.epoch(0)) for source in pair]
    assert sorted(map(len, found)) == sorted(counts)
    assert len({*found[0], *found[1]}) == min(sum(counts), COUNT)
    assert [len(one) for one in found] == [source.samples for source in pair]
    assert [len(source) for source in pair] == [-(-len(one) // batch_size) for one in found]


def test_fill_repeats_different_samples_which_are_counted(sources: Sources) -> None:
    ranks = [sources(batch_size=16, last_batch_policy="FILL", rank=rank, world_size=2) for rank in (0, 1)]
    assert [source.repeats for source in ranks] == [13, 12]
    found = [list(source.epoch(0)) for source in ranks]
    for source, batches in zip(ranks, found, strict=True):
        assert [(len(batch), batch.repeats) for batch in batches] == [(16, 0)] * 3 + [(16, source.repeats)]
        last = batches[-1]
        assert last.images == [BYTES[IDS[position]] for position in last.positions]
        assert last.labels.tolist() == [LABELS[position] for position in last.positions]
    counts = Counter(ids_of(itertools.chain(*found)))
    assert (len(counts), counts.total(), max(counts.values())) == (COUNT, 128, 2)
    for source, batches in zip(ranks, found, strict=True):
        source.load_state_dict(source.state_dict(epoch=0, steps=2))
        assert ids_of(source.epoch(0)) == ids_of(iter(batches[2:]))


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 2), (2, 1), (1, 4)])
def test_an_interrupted_epoch_resumes_at_the_next_sample(sources: Sources, before: int, after: int) -> None:
    """In the order of steps and ranks, the reads before and after are the undisturbed epoch."""

    def turns(ranks: list[RowSource], epoch: int) -> Iterator[tuple[loader.Batch, ...]]:
        for batches in itertools.zip_longest(*(source.epoch(epoch) for source in ranks)):
            yield tuple(batch for batch in batches if batch is not None)

    undisturbed = ids_of(sources().epoch(1))
    first = [sources(rank=rank, world_size=before) for rank in range(before)]
    found: list[uuid.UUID] = []
    for together in itertools.islice(turns(first, 1), 3):
        found += ids_of(iter(together))
    states = [json.loads(json.dumps(source.state_dict())) for source in first]
    assert all(state == states[0] for state in states)
    assert loader.merge_states(states) == states[0]
    second = [sources(rank=rank, world_size=after) for rank in range(after)]
    for source in second:
        source.load_state_dict(states[0])
        given = without_past(states[0]) | {"global_batch_size": 8 * after}
        assert (source.first_epoch, without_past(source.state_dict())) == (1, given)
    for together in turns(second, 1):
        found += ids_of(iter(together))
    assert found == undisturbed
    assert {source.state_dict()["epoch"] for source in second} == {2}
    assert sorted(itertools.chain(*(ids_of(source.epoch(2)) for source in second))) == sorted(IDS)


def test_an_epoch_can_begin_at_any_step(sources: Sources) -> None:
    source = sources()
    whole = ids_of(source.epoch(3))
    source.load_state_dict(source.state_dict(epoch=3, steps=5))
    assert ids_of(source.epoch(3)) == whole[40:]


def test_a_state_is_that_of_one_pass(sources: Sources) -> None:
    """Passes that were closed do not count, whenever they were read; two that are open have no common position."""
    source = sources()
    one, state = source.epoch(0), source.state_dict()
    next(one)
    at = state | {"epoch": 0, "start": 8}
    next(source.epoch(2)), list(source.epoch(5))  # a look at another batch, and a whole pass
    assert without_past(source.state_dict()) == at
    other = source.epoch(1)
    assert without_past(source.state_dict()) == at
    next(other)
    for pass_ in (one, other):
        with pytest.raises(loader.OptionError, match=r"position of one pass\. Found: 2 passes that have begun"):
            source.state_dict()
        next(pass_)
    one.close()
    assert without_past(source.state_dict()) == state | {"epoch": 1, "start": 16}
    next(source.epoch(2))
    source.note(1, 3)  # of the pass that is open, also after another one
    assert without_past(source.state_dict()) == state | {"epoch": 1, "start": 24}
    source.note(1, 2)
    other.close()
    assert without_past(source.state_dict()) == state | {"epoch": 1, "start": 16}
    list(source.epoch(3))
    assert without_past(source.state_dict()) == state | {"epoch": 4}


def test_out_of_order_two_readings_of_an_epoch_have_no_common_position(sources: Sources) -> None:
    source = sources(in_order=False)
    one, other = source.epoch(0), source.epoch(0)
    next(one), next(other)
    with pytest.raises(loader.OptionError, match=r"one reading of epoch 0, .* Found: several at once"):
        source.state_dict(epoch=0, steps=1)
    one.close(), other.close()
    found = ids_of(itertools.islice(source.epoch(0), 2))
    source.load_state_dict(source.state_dict(epoch=0, steps=2))
    assert sorted(found + ids_of(source.epoch(0))) == sorted(IDS)


def test_a_state_of_another_order_or_split_is_refused(sources: Sources) -> None:
    state = sources(seed=1).state_dict()
    source = sources()
    with pytest.raises(loader.StateError, match=r"a state of this order: seed 0\. Found: 1"):
        source.load_state_dict(state)
    with pytest.raises(loader.StateError, match="a state of this split: fingerprint"):
        sources(index=1).load_state_dict(source.state_dict())
    with pytest.raises(loader.OptionError, match=r"epoch and steps, or neither\. Found: one"):
        source.state_dict(epoch=1)
    assert len(ids_of(source.epoch(0))) == COUNT


def test_two_epochs_and_two_sources_run_side_by_side(sources: Sources) -> None:
    one, other = sources(), sources(seed=4)
    passes = [one.epoch(0), one.epoch(1), other.epoch(0)]
    mixed = list(zip(*passes, strict=True))
    for number, (source, epoch) in enumerate([(one, 0), (one, 1), (other, 0)]):
        assert ids_of(iter([batches[number] for batches in mixed])) == ids_of(source.epoch(epoch))
    other.close()
    assert len(ids_of(one.epoch(2))) == COUNT


@pytest.mark.parametrize("world_size", [1, 3])
def test_out_of_order_delivery_gives_each_id_once_with_its_bytes(sources: Sources, world_size: int) -> None:
    ranks = [sources(rank=rank, world_size=world_size, in_order=False) for rank in range(world_size)]
    for epoch in range(2):
        found = [list(source.epoch(epoch)) for source in ranks]
        assert sorted(itertools.chain(*(ids_of(iter(batches)) for batches in found))) == sorted(IDS)
        assert [[batch.step for batch in batches] for batches in found] == [list(range(len(one))) for one in ranks]
        for batch in itertools.chain(*found):
            assert batch.images == [BYTES[IDS[position]] for position in batch.positions]
            assert batch.labels.tolist() == [LABELS[position] for position in batch.positions]
            assert np.array_equal(batch.ids, packed([IDS[position] for position in batch.positions]))


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 2), (2, 1), (1, 4)])
def test_an_interrupted_out_of_order_epoch_misses_and_repeats_nothing(
    sources: Sources, before: int, after: int
) -> None:
    first = [sources(rank=rank, world_size=before, in_order=False) for rank in range(before)]
    found: list[uuid.UUID] = []
    for source in first:
        found += ids_of(itertools.islice(source.epoch(1), 3))
    state = loader.merge_states([json.loads(json.dumps(source.state_dict())) for source in first])
    if before > 1:
        with pytest.raises(loader.StateError, match="merge_states"):
            sources().load_state_dict(first[0].state_dict())
    for rank in range(after):
        second = sources(rank=rank, world_size=after, in_order=rank % 2 == 0)
        second.load_state_dict(state)
        found += ids_of(second.epoch(1))
        assert second.state_dict()["epoch"] == 2
    assert sorted(found) == sorted(IDS)


def test_a_missing_image_can_be_skipped_and_is_reported(sources: Sources) -> None:
    source = sources(index=1, on_missing="skip", max_missing=0.05)
    batches = list(source.epoch(0))
    assert sorted(ids_of(iter(batches))) == sorted(IDS[:20])
    (skipped,) = source.skipped
    assert (skipped.id, skipped.position, skipped.epoch) == (MISSING, 20, 0)
    assert "no such row" in skipped.reason
    assert source.stats().skipped == 1
    padded = sources(index=1, on_missing="skip", max_missing=0.05, last_batch_policy="FILL")
    assert [len(batch) for batch in padded.epoch(0)] == [8] * 3


@pytest.mark.parametrize("policy", ["PARTIAL", "FILL", "DROP"])
@pytest.mark.parametrize("in_order", [True, False])
def test_an_epoch_that_misses_too_many_images_fails(
    splits: list[loader.Split], sources: Sources, policy: str, in_order: bool
) -> None:
    gone = set(IDS[10:60:5])  # 10 of 103
    options: dict[str, Any] = {"on_missing": "skip", "last_batch_policy": policy, "in_order": in_order, "batch_size": 8}
    rows = {one: data for one, data in BYTES.items() if one not in gone}
    with RowSource(splits[0], rows=rows, max_missing=0.11, **options) as enough:
        assert {*ids_of(enough.epoch(0))} <= {*rows}
    message = r"at most 0\.01 .* missing in epoch 3 \(max_missing\)\. Found: (\d+) of \d+ so far, .* another data table"
    with (
        RowSource(splits[0], rows=rows, **options) as source,
        pytest.raises(loader.MissingImageError, match=message) as caught,
    ):
        list(source.epoch(3))
    found = re.search(message, str(caught.value))
    assert found is not None
    assert int(found[1]) <= 8  # long before the end
    assert any(str(one) in str(caught.value) for one in gone)
    with RowSource(splits[0], rows={}, **options) as empty, pytest.raises(loader.MissingImageError):
        list(empty.epoch(0))


@pytest.mark.parametrize("in_order", [True, False])
def test_deleted_images_are_skipped_without_counting_as_missing(splits: list[loader.Split], in_order: bool) -> None:
    rows: dict[uuid.UUID, bytes | None] = {one: None if n % 3 else data for n, (one, data) in enumerate(BYTES.items())}
    options: dict[str, Any] = {"on_missing": "skip", "max_missing": 0.0, "in_order": in_order, "batch_size": 2}
    left = sorted(one for one, data in rows.items() if data is not None)
    for policy in ("PARTIAL", "FILL", "DROP"):
        found, steps = [], []
        for rank in range(2):
            more = options | {"rank": rank, "world_size": 2, "last_batch_policy": policy}
            with RowSource(splits[0], rows=rows, **more) as source:
                batches = list(source.epoch(0))
                steps.append(len(batches))
                found += [
                    uuid.UUID(bytes=row.tobytes())
                    for batch in batches
                    for row in batch.ids[: len(batch) - batch.repeats]
                ]
                reasons = {one.reason.partition("Found: ")[2] for one in source.skipped}
                assert reasons == {"it was deleted"}
                assert source.state_dict()["epoch"] == 1
        if policy == "PARTIAL":
            assert sorted(found) == left
        else:
            assert steps == [len(source)] * 2
            assert {*found} <= {*left}
    with RowSource(splits[0], rows=rows, batch_size=2) as source, pytest.raises(loader.DeletedImageError):
        list(source.epoch(0))
    one_missing = {one: data for one, data in rows.items() if one != left[5]}
    with RowSource(splits[0], rows=one_missing, **options) as source, pytest.raises(loader.MissingImageError) as caught:
        list(source.epoch(0))
    assert not isinstance(caught.value, loader.DeletedImageError)
    assert "Found: 1 of" in str(caught.value)
    everything = dict.fromkeys(BYTES)
    with (
        RowSource(splits[0], rows=everything, **options) as source,
        pytest.raises(loader.DeletedImageError, match="all"),
    ):
        list(source.epoch(0))


def test_ranks_and_workers_fail_together_when_all_images_are_missing(splits: list[loader.Split]) -> None:
    for rank in range(3):
        source = RowSource(splits[0], rows={}, on_missing="skip", rank=rank, world_size=3, batch_size=2)
        with source, pytest.raises(loader.MissingImageError, match="max_missing"):
            list(source.batches(0, offset=rank, every=4))
        one_gone = {one: data for number, (one, data) in enumerate(BYTES.items()) if number != 50}
        source = RowSource(splits[0], rows=one_gone, on_missing="skip", rank=rank, world_size=3, batch_size=2)
        with source:
            list(source.epoch(0))  # 1 of 103 in all, on any rank


def test_the_next_epoch_is_read_while_the_last_batches_are_taken(sources: Sources) -> None:
    source = sources()
    first = list(source.epoch(0))
    streams = source._ahead.kept
    assert streams is not None
    until(lambda: source.stats().held_bytes >= sum(map(len, BYTES.values())))
    assert len(ids_of(source.epoch(1))) == COUNT
    assert source._ahead.kept is not None
    assert source._ahead.kept[2] is streams[2]  # the same stream continued
    assert ids_of(source.epoch(0)) == ids_of(iter(first))
    assert source._ahead.kept is None  # the epochs are not in order, so the source reads nothing ahead


def test_closing_drops_what_was_read_ahead(sources: Sources) -> None:
    source = sources()
    list(source.epoch(0))
    assert source._ahead.kept is not None
    source.close()
    assert source._ahead.kept is None
    with pytest.raises(loader.ClosedError):
        next(source.epoch(1))


def test_an_unreferenced_source_closes_itself(splits: list[loader.Split]) -> None:
    before = set(threading.enumerate())
    source = RowSource(splits[0], rows=BYTES, batch_size=4)
    next(source.epoch(0))
    (thread,) = [one for one in set(threading.enumerate()) - before if one.name == "loader-prefetch"]
    del source
    thread.join(60)
    assert not thread.is_alive()


def test_a_wrong_number_of_samples_is_always_reported(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Schedule.steps
    monkeypatch.setattr(Schedule, "steps", lambda *given, **more: itertools.islice(whole(*given, **more), 3))
    with pytest.raises(loader.DeliveryError, match=r"Wanted 103 samples in epoch 0 on rank 0\. Found: 24"):
        list(sources().epoch(0))


def test_stats_count_what_was_delivered(sources: Sources) -> None:
    source = sources()
    assert source.stats() == Stats()
    batches = list(source.epoch(0))
    found = source.stats()
    assert (found.images, found.bytes) == (COUNT, sum(len(image) for batch in batches for image in batch.images))
    assert found.images_per_second > 0
    assert found.p99 >= found.p50 > 0
    assert found.connections == 1
    source.close()
    assert source.stats().connections == 0
    assert source.stats().in_flight == source.stats().held_bytes == 0


def test_metrics_are_served_until_the_source_is_closed(sources: Sources) -> None:
    source = sources()
    source.connect()
    port = source.serve_metrics(port=0)
    with pytest.raises(
        loader.OptionError, match=rf"metrics at 127\.0\.0\.1 port {port}\. Found: Address already in use"
    ):
        source.serve_metrics(port=port)
    assert len(list(source.epoch(0))) == 13
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    place = '{rank="0",split="0",table="memory.data"}'
    assert f"imagestrata_loader_images_total{place} {COUNT}.0" in text
    assert f"imagestrata_loader_skipped_samples_total{place} 0.0" in text
    assert f"imagestrata_loader_bytes_total{place} {float(source.stats().bytes)}" in text
    assert "# TYPE imagestrata_loader_stalled_seconds_total counter" in text
    source.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)
    with pytest.raises(loader.ClosedError):
        source.serve_metrics(port=0)
