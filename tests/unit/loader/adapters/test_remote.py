"""Shards as an iterable dataset: decoding and tuples, an order per pass, ranks, exact states."""

import json
import sys
from collections import Counter
from itertools import chain, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from loader import OptionError, SplitError, StateError
from loader.shards import Client, make_client
from tests.support.pictures import SHADES
from tests.support.shard_folders import CLASSES, upload

COUNT = 90


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Client:
    """A local folder with a bucket `remote` that contains shards."""
    client = make_client(tmp_path_factory.mktemp("remote"))
    upload(client, "remote", "x", count=COUNT, workers=1)
    return client


def remote(*args: Any, **options: Any) -> Any:
    """A dataset, imported late because it imports torch."""
    from loader.shards import RemoteDataset

    return RemoteDataset(*args, **options)


def keys(dataset: Any) -> list[str]:
    return [sample["__key__"] for sample in dataset]


def test_samples_are_dictionaries_of_bytes_in_a_new_order_each_pass(client: Client) -> None:
    dataset = remote(client, "remote", "x")
    first = list(dataset)
    assert len(first) == len(dataset) == COUNT
    for sample in first:
        assert list(sample) == ["__key__", "__url__", "png", "cls", "json"]
        assert json.loads(sample["json"])["label"] == int(sample["cls"])
        assert sample["__url__"].endswith(".tar")
    assert dataset.classes == [f"class {label}" for label in range(CLASSES)]
    second = keys(dataset)
    assert sorted(second) == sorted(sample["__key__"] for sample in first)
    assert second != [sample["__key__"] for sample in first]
    dataset.set_epoch(1)
    assert keys(dataset) == second
    in_order = remote(client, "remote", "x", shuffle=False, streams=1)
    assert keys(in_order) == sorted(second)


def test_pictures_and_labels_are_delivered_without_batching(client: Client) -> None:
    for image, label in remote(client, "remote", "x").decode("pil").to_tuple("jpg;png", "cls"):
        assert isinstance(image, Image.Image)
        assert image.getpixel((4, 4)) == (SHADES * label,) * 3


def test_pipeline_functions_work_as_in_webdataset(client: Client) -> None:
    named = remote(client, "remote", "x").decode("rgb8").rename(image="png", label="cls")
    wide = named.map_dict(label=lambda label: label + 100).map(lambda sample: (sample["image"].shape, sample["label"]))
    assert {shape for shape, _ in wide} == {(48, 48, 3)}
    assert {label for _, label in wide} == set(range(100, 100 + CLASSES))
    batches = named.to_tuple("image", "label").batched(40).map(lambda batch: len(batch[0]))
    assert list(batches) == [40, 40, 10]
    own = named.to_tuple("label").batched(40, collation_fn=sum_of)
    assert sum(own) == sum(number % CLASSES for number in range(COUNT))
    assert len(own) == 3


def test_batches_can_be_whole_lists_or_taken_apart_again(client: Client) -> None:
    named = remote(client, "remote", "x").map(lambda sample: sample["__key__"])
    whole = named.map(lambda key: (key,)).batched(40, partial=False)
    assert (len(whole), [len(batch) for (batch,) in whole]) == (2, [40, 40])
    assert [type(batch) for batch in named.listed(40)] == [list] * 3
    assert list(named.batched(40, None)) == list(named.listed(40))
    assert [len(batch) for batch in named.listed(40, partial=False)] == [40, 40]
    apart = whole.unbatched()
    assert (len(apart), [key for (key,) in apart]) == (COUNT, list(named))
    with pytest.raises(OptionError, match=r"directly after batched\(\)\. Found: single samples"):
        named.unbatched()
    with pytest.raises(OptionError, match=r"Found: functions of batches\. Apply functions to samples"):
        named.batched(2).map(len).unlisted()
    keyed = remote(client, "remote", "x").rename_keys(["label", "cls"]).xdecode(label=lambda file: int(file.read()))
    assert {label for (label,) in keyed.extract_keys("label")} == set(range(CLASSES))


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_repeat_different_samples_and_count_them(client: Client, world: int) -> None:
    ranks = [remote(client, "remote", "x", rank=rank, world_size=world).listed(32) for rank in range(world)]
    found = [[sample["__key__"] for batch in dataset for sample in batch] for dataset in ranks]
    counts = Counter(chain.from_iterable(found))
    assert (len(counts), max(counts.values())) == (COUNT, 2)
    assert sum(dataset.repeats for dataset in ranks) == counts.total() - COUNT == -COUNT % (32 * world)
    alone = remote(client, "remote", "x", rank=0, world_size=world, last_batch_policy="PARTIAL")
    assert alone.repeats == 0


def test_a_slice_counts_what_it_repeats_itself(client: Client) -> None:
    ranks = [remote(client, "remote", "x", rank=rank, world_size=2) for rank in (0, 1)]  # 45 samples each
    for stop in (0, 30, 44, 45, 47, 60, 63, 64, 100):
        fresh, repeated = min(stop, 45), max(0, min(stop, 64) - 45)
        parts = [whole.listed(32).slice(2) if stop == 64 else whole.slice(stop).listed(32) for whole in ranks]
        found = [[sample["__key__"] for batch in part for sample in batch] for part in parts]
        assert [(len(keys), part.repeats) for keys, part in zip(found, parts, strict=True)] == [
            (fresh + repeated, repeated)
        ] * 2
        assert all(len(set(keys[:fresh])) == fresh for keys in found)
    short = ranks[0].slice(50).listed(32, partial=False)
    assert (len(list(short)), short.repeats) == (1, 0)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_slice_ends_each_pass_early_on_all_workers(client: Client, workers: int) -> None:
    from torch.utils.data import DataLoader

    named = remote(client, "remote", "x", rank=1, world_size=2).map(lambda sample: sample["__key__"])
    whole = list(named.listed(8))
    for stop in (0, 1, 4, 100):
        some = named.listed(8).slice(stop)
        assert len(some) == min(stop, len(whole))
        loader = DataLoader(some, batch_size=None, num_workers=workers)
        assert list(loader) == whole[:stop]
        assert len(second := list(loader)) == len(some)
        assert not stop or second != whole[:stop]
    for partial, sizes in [(True, [8, 8, 4]), (False, [8, 8])]:
        some = named.slice(20).listed(8, partial=partial)
        assert [len(batch) for batch in DataLoader(some, batch_size=None, num_workers=workers)] == sizes
        assert len(some) == len(sizes)


def test_a_slice_goes_on_from_a_state(client: Client) -> None:
    def make() -> Any:
        return remote(client, "remote", "x").map(lambda sample: sample["__key__"]).listed(8).slice(5)

    one, again = make(), make()
    wanted = list(make())
    taken = list(islice(iter(one), 3))
    again.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert taken + list(again) == wanted
    assert list(again) == list(one) != wanted
    with pytest.raises(OptionError, match=r"slice\(stop\)\. Found: 2 arguments"):
        make().slice(2, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda one: one.shuffle(1000),
            r"Found: shuffle\(1000\)\. Each pass has a new order .* leave it out\. .*seed=",
        ),
        (lambda one: one.select(bool), r"Found: select\(\)\. Ranks would .*jobs/split\.py --where"),
        (lambda one: one.rsample(0.1), r"Found: rsample\(\)\. .*--per-class"),
        (lambda one: one.with_epoch(1000), r"Found: with_epoch\(\)\. Each pass is one epoch.*slice\(n\)"),
        (lambda one: one.repeat(2), r"Found: repeat\(\)\. .*for epoch in range"),
        (lambda one: one.with_length(2), r"Found: with_length\(\)\. len\(dataset\) is exact"),
        (lambda one: one.mcached(), r"Found: mcached\(\)\. .*cache=FOLDER"),
        (lambda one: one.compose(list), r"Found: compose\(\)\. Use map"),
    ],
)
def test_functions_that_change_the_samples_of_a_pass_say_what_to_write(client: Client, call: Any, message: str) -> None:
    dataset = remote(client, "remote", "x")
    with pytest.raises(OptionError, match=message):
        call(dataset)
    assert dataset.shuffle(0) is dataset


def sum_of(samples: list[Any]) -> int:
    return sum(int(label) for (label,) in samples)


def test_ranks_have_different_samples_and_as_many_batches(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for rank in range(4):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "4")
        ours = remote(client, "remote", "x").map(lambda sample: sample["__key__"]).batched(5, collation_fn=list)
        found.append(list(ours))
    assert {len(batches) for batches in found} == {5}
    count = Counter(key for batches in found for batch in batches for key in batch)
    assert len(count) == COUNT
    assert count.total() == 100
    given = remote(client, "remote", "x", rank=3, world_size=4).map(lambda sample: sample["__key__"])
    assert list(given.batched(5, collation_fn=list)) == found[3]
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(OptionError, match=r"RANK and WORLD_SIZE .* Found: RANK=first, WORLD_SIZE=4\."):
        remote(client, "remote", "x")


@pytest.mark.parametrize("steps", [0, 3, 12])
def test_a_state_resumes_at_the_next_batch(client: Client, steps: int) -> None:
    def make() -> Any:
        return remote(client, "remote", "x", mix=20).map(lambda sample: sample["__key__"]).batched(7, collation_fn=list)

    wanted = list(make())
    one, again = make(), make()
    taken = list(islice(iter(one), steps))
    again.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert taken + list(again) == wanted


def test_a_state_resumes_on_other_ranks_and_each_dataset_keeps_its_own(client: Client) -> None:
    base = remote(client, "remote", "x").map(lambda sample: sample["__key__"])
    one, other = base.batched(8, collation_fn=list), base.map(str)
    before = list(chain.from_iterable(islice(iter(one), 3)))
    assert list(other) == list(base.map(str))
    state = one.state_dict()
    for size, options in [(5, {}), (4, {}), (4, {"mix": 9}), (4, {"streams": 3})]:  # 4: the same batch of all ranks
        after: list[str] = []
        for rank in range(2):
            given: dict[str, Any] = {"rank": rank, "world_size": 2, "last_batch_policy": "PARTIAL", **options}
            ours = remote(client, "remote", "x", **given).map(lambda sample: sample["__key__"])
            batches = ours.batched(size, collation_fn=list)
            batches.load_state_dict(state)
            after += chain.from_iterable(batches)
        assert sorted(before + after) == sorted(f"{number:09}" for number in range(COUNT))
    with pytest.raises(StateError, match="Found: None"):
        one.load_state_dict(None)  # type: ignore[arg-type]


def test_webdataset_itself_reads_the_shards(client: Client) -> None:
    import webdataset

    root = Path(client.address("remote", "x"))
    tars = [str(path) for path in sorted(root.glob("*.tar"))]
    theirs = webdataset.WebDataset(tars, shardshuffle=False).decode("pil").to_tuple("png", "cls", "__key__")
    found = list(theirs)
    assert [key for _, _, key in found] == [f"{number:09}" for number in range(COUNT)]
    assert all(image.getpixel((4, 4)) == (SHADES * label,) * 3 for image, label, _ in found)


def test_invalid_options_and_states_are_refused(client: Client) -> None:
    with pytest.raises(SplitError, match="a folder of shards at"):
        remote(client, "remote", "nowhere")
    with pytest.raises(OptionError, match="a client from loader"):
        remote("http://127.0.0.1", "remote", "x")
    with pytest.raises(OptionError, match="rank and world_size, or neither"):
        remote(client, "remote", "x", rank=1)
    dataset = remote(client, "remote", "x")
    with pytest.raises(OptionError, match="batch_size"):
        dataset.batched(0)
    with pytest.raises(OptionError, match=r"samples to be batched\. Found: batches"):
        dataset.batched(2).batched(2)
    with pytest.raises(StateError):
        dataset.load_state_dict({"format": 1})
    fewer = dataset.decode("pil").map(refuse_some).to_tuple("png")
    with pytest.raises(ZeroDivisionError):
        list(fewer)
    skipping = remote(client, "remote", "x")._with(lambda samples: (one for one in samples if refuse(one)))
    with pytest.raises(OptionError, match=r"functions that return one sample for each\. Found: 0 of 1"):
        list(skipping)


def refuse(sample: Any) -> bool:
    return False


def refuse_some(sample: Any) -> Any:
    return 1 // 0


def test_arrays_are_stacked(client: Client) -> None:
    (images, labels), *_ = remote(client, "remote", "x").decode("rgb").to_tuple("png", "cls").batched(8)
    assert (images.shape, images.dtype, labels.dtype) == ((8, 48, 48, 3), np.float32, np.int64)


def test_a_share_is_refused_in_a_data_loader_that_accelerate_has_prepared(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    accelerate = SimpleNamespace(is_initialized=lambda: True, PartialState=lambda: SimpleNamespace(num_processes=2))
    monkeypatch.setitem(sys.modules, "accelerate.state", accelerate)
    names: dict[str, Any] = {"__name__": "accelerate.data_loader"}
    exec("def begin(dataset): dataset.set_epoch(0)", names)
    dataset = remote(client, "remote", "x", rank=1, world_size=2)
    with pytest.raises(OptionError, match="Found: the share of rank 1 of 2"):
        names["begin"](dataset)
    dataset.set_epoch(0)
