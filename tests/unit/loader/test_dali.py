"""The source in DALI, on the CPU: each sample once an epoch, decoded, with its own label."""

import contextlib
import gc
import hashlib
import itertools
import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

import loader
from etl.pictures.images import read_header
from etl.pictures.masks import upright_mask
from etl.pictures.plan import Recode
from loader.order.history import without_past
from tests.support.encoding import encoded
from tests.support.pictures import SHADES, exif, picture, shades, texture
from tests.support.row_sources import RowSource
from tests.support.split_folders import image_ids, write_split_folder
from tests.support.trees import plant

if TYPE_CHECKING:  # DALI takes a second to import, so only tests import it, not their collection
    from nvidia.dali import Pipeline

COUNT = 43
IDS = image_ids(COUNT, first=1000)
LABELS = [number % 10 for number in range(COUNT)]
NO_PICTURE = uuid.UUID(int=3)
TEXTURES = image_ids(40, first=2000)
KINDS = [("PNG", "RGB"), ("JPEG", "RGB"), ("JPEG", "L"), ("PNG", "RGBA"), ("PNG", "L"), ("PNG", "P")]
PLAIN = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> list[loader.Split]:
    rows = [
        (IDS, LABELS),
        ([*IDS[:12], NO_PICTURE], LABELS[:13]),
        (TEXTURES, [0] * len(TEXTURES)),
    ]
    folder = write_split_folder(tmp_path_factory.mktemp("split"), rows)
    cache = tmp_path_factory.mktemp("cache")
    return [loader.open_split(folder, index=index, cache=cache) for index in range(len(rows))]


@pytest.fixture(scope="module")
def rows() -> dict[uuid.UUID, bytes]:
    made = {NO_PICTURE: b"this is no picture"}
    for number, (one, label) in enumerate(zip(IDS, LABELS, strict=True)):
        format, mode = KINDS[number % len(KINDS)]
        made[one] = picture(label, width=60 + number, height=90 - number, format=format, mode=mode)
    return made | {one: texture(number) for number, one in enumerate(TEXTURES)}


@pytest.fixture(params=[{}])
def source(
    request: pytest.FixtureRequest, splits: list[loader.Split], rows: dict[uuid.UUID, bytes]
) -> Iterator[RowSource]:
    """The fixture's parameter has the options of the source and the index of the split."""
    options: dict[str, Any] = {"batch_size": 8} | request.param
    with RowSource(splits[options.pop("index", 0)], rows=rows, **options) as made:
        yield made


def pipeline_of(source: RowSource, *, depth: int = 2, exec_dynamic: bool = False) -> "Pipeline":
    """What the source reads, as a user's own pipeline returns it."""
    from nvidia.dali import Pipeline

    made = Pipeline(batch_size=8, num_threads=2, device_id=None, prefetch_queue_depth=depth, exec_dynamic=exec_dynamic)
    with made:
        made.set_outputs(*source.read())
    return made


def test_a_pipeline_of_ones_own_keeps_no_batches_of_earlier_epochs(source: RowSource) -> None:
    def kept() -> int:
        gc.collect()
        return sum(issubclass(type(one), loader.Batch) for one in gc.get_objects())

    pipeline, before, found = pipeline_of(source), kept(), []
    for _ in range(6):
        with contextlib.suppress(StopIteration):
            while pipeline.run():
                pass
        found.append(kept() - before)
        pipeline.reset()
    assert max(found) < len(source)  # of 36 batches


def labels_of(source: RowSource, epoch: int) -> list[list[int]]:
    return [batch.labels.tolist() for batch in source.epoch(epoch)]


@pytest.mark.parametrize(("depth", "exec_dynamic"), [(1, False), (5, False), (1, True), (2, True), (5, True)])
def test_a_pipeline_gets_each_epoch_whole_and_in_order(source: RowSource, depth: int, exec_dynamic: bool) -> None:
    from nvidia.dali import Pipeline, fn, types

    pipeline = Pipeline(
        batch_size=8, num_threads=2, device_id=None, prefetch_queue_depth=depth, exec_dynamic=exec_dynamic
    )
    with pipeline:
        files, labels = source.read()
        images = fn.resize(fn.decoders.image(files, output_type=types.RGB), size=[16, 16])
        pipeline.set_outputs(images, labels)
    for epoch in range(3):
        found = []
        while True:
            try:
                images, labels = pipeline.run()
            except StopIteration:
                break
            numbers = np.array(labels.as_tensor())
            assert (numbers.dtype, numbers.shape[1:]) == (np.int32, (1,))
            pixels = np.array(images.as_tensor()).transpose(0, 3, 1, 2) / 255
            assert shades(pixels).tolist() == numbers[:, 0].tolist()
            found.append(numbers[:, 0].tolist())
        assert found == labels_of(source, epoch)
        pipeline.reset()


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_the_iterator_gives_decoded_batches_one_epoch_per_pass(source: RowSource, train: bool, output: str) -> None:
    import torch

    batches = loader.ClassificationIterator(source, size=24, train=train, output=output, num_threads=2, **PLAIN)
    assert len(batches) == len(source) == 6
    for epoch in range(2):
        found = []
        for images, labels in batches:
            if output == "torch":
                assert (type(images), images.dtype, labels.dtype) == (torch.Tensor, torch.float32, torch.int64)
                images, labels = images.numpy(), labels.numpy()
            assert (images.dtype, images.shape) == (np.float32, (len(labels), 3, 24, 24))
            assert (labels.dtype, labels.ndim) == (np.int64, 1)
            assert shades(images).tolist() == labels.tolist()
            found.append(labels.tolist())
        assert found == labels_of(source, epoch)
        assert [len(one) for one in found] == [8] * 5 + [3]


def test_kept_batches_are_not_overwritten_by_later_ones(source: RowSource) -> None:
    batches = loader.ClassificationIterator(source, size=8, train=False, output="numpy", **PLAIN)
    kept = list(batches) + list(batches)
    for images, labels in kept:
        assert shades(images).tolist() == labels.tolist()


def test_values_are_normalised_by_channel(source: RowSource) -> None:
    mean, std = (0.1, 0.2, 0.3), (0.5, 1.0, 2.0)
    for images, labels in loader.ClassificationIterator(source, size=8, train=False, mean=mean, std=std):
        value = SHADES * labels / 255
        expected = np.stack([(value - m) / s for m, s in zip(mean, std, strict=True)], axis=1)
        assert np.allclose(images.mean(axis=(2, 3)), expected, atol=0.02)


def test_an_abandoned_pass_is_followed_by_the_next_epoch(source: RowSource) -> None:
    batches = loader.ClassificationIterator(source, size=8, train=True)
    for _, labels in batches:
        assert labels.tolist() == labels_of(source, 0)[0]
        break
    assert [labels.tolist() for _, labels in batches] == labels_of(source, 1)
    assert [labels.tolist() for _, labels in batches] == labels_of(source, 2)


@pytest.mark.parametrize("policy", ["FILL", "PARTIAL", "DROP"])
def test_batches_prefetched_by_dali_do_not_count_as_delivered(
    splits: list[loader.Split], rows: dict[uuid.UUID, bytes], policy: str
) -> None:
    def begin(batch_size: int) -> tuple[RowSource, loader.ClassificationIterator]:
        source = RowSource(splits[0], rows=rows, batch_size=batch_size, last_batch_policy=policy)
        return source, loader.ClassificationIterator(source, size=8, train=True)

    source, batches = begin(8)
    with source:
        undisturbed = [labels_of(source, epoch) for epoch in range(3)]
        list(batches)
        assert batches.state_dict()["epoch"] == 1
        for step, (_, labels) in enumerate(batches, 1):
            assert labels.tolist() == undisturbed[1][step - 1]
            if step == 3:
                break
        state = batches.state_dict()
    assert (state["epoch"], state["start"]) == (1, 24)
    again, rest = begin(8)
    with again:
        again.load_state_dict(state)  # into the source, during an iteration
        assert without_past(rest.state_dict()) == without_past(state)
        assert [labels.tolist() for _, labels in rest] == undisturbed[1][3:]
        assert [labels.tolist() for _, labels in rest] == undisturbed[2]
    smaller, rest = begin(5)
    with smaller:
        rest.load_state_dict(state)
        found = [label for _, labels in rest for label in labels.tolist()]
        wanted = [label for labels in undisturbed[1][3:] for label in labels]
        assert found[:15] == wanted[:15]
        assert len(found) == {"FILL": 20, "PARTIAL": 19, "DROP": 15}[policy]


def undecoded(source: loader.Source) -> loader.GenericIterator:
    """An iterator whose graph decodes nothing."""
    return loader.GenericIterator(source, lambda files, labels: (files, labels), names=["files", "labels"])


def numbers_of(batches: Any, count: int | None = None) -> list[int]:
    return [int(number) for one in itertools.islice(batches, count) for number in one["labels"].ravel()]


@pytest.mark.parametrize("in_order", [True, False])
def test_iterators_over_one_source_have_positions_of_their_own(source: RowSource, in_order: bool) -> None:
    def pair() -> tuple[loader.Source, loader.GenericIterator, loader.GenericIterator]:
        made = source.again(in_order=in_order)
        return made, undecoded(made), undecoded(made)

    both, one, other = pair()
    with both:
        first = iter(one)
        seen, seen_by_other = numbers_of(first, 3), numbers_of(iter(other), 1)
        seen += numbers_of(first, 1)
        states = [json.loads(json.dumps(each.state_dict())) for each in (one, other)]
        assert len({*map(str, states)}) == 2
        with pytest.raises(loader.OptionError, match=r"one reader\. Found: 2 .* state_dict\(\) of the iterator"):
            both.state_dict()
    again, one, other = pair()
    with again:
        one.load_state_dict(states[0])
        other.load_state_dict(states[1])
        assert [*map(without_past, (one.state_dict(), other.state_dict()))] == [*map(without_past, states)]
        fresh = undecoded(again)
        assert Counter(numbers_of(fresh)) == Counter(LABELS)
        for begun, rest in ((seen, one), (seen_by_other, other)):
            assert Counter(begun + numbers_of(rest)) == Counter(LABELS)
            assert rest.state_dict()["epoch"] == 1


@pytest.mark.parametrize("in_order", [True, False])
def test_a_source_counts_steps_from_the_state_that_its_iterator_has_loaded(source: RowSource, in_order: bool) -> None:
    with source.again(batch_size=4) as small:
        state = small.state_dict(epoch=0, steps=3)  # no whole number of the larger batches
    with source.again(batch_size=8, in_order=in_order) as made:
        batches = undecoded(made)
        batches.load_state_dict(state)
        numbers_of(iter(batches), 1)
        assert batches.given is not None
        assert made.state_dict(epoch=0, steps=batches.given.step + 1) == batches.state_dict()


def test_a_state_that_is_loaded_during_a_pass_ends_the_pass(source: RowSource) -> None:
    batches = undecoded(source)
    begun, pipeline, loop = iter(batches), pipeline_of(source), source.epoch(0)
    whole = numbers_of(begun)
    begun = iter(batches)
    next(begun), next(loop), pipeline.run()
    source.load_state_dict(source.state_dict(epoch=0, steps=2))
    for go_on in (lambda: next(begun), lambda: next(loop), lambda: [pipeline.run() for _ in range(5)]):
        with pytest.raises(loader.StateError, match="a state that was loaded since the pass began"):
            go_on()
    assert numbers_of(batches) == whole[16:]
    begun = iter(batches)
    next(begun)
    batches.load_state_dict(source.state_dict(epoch=0, steps=4))
    with pytest.raises(loader.StateError, match="Begin a new pass"):
        next(begun)
    assert numbers_of(batches) == whole[32:]
    with source.again() as alone:
        batches = undecoded(alone)
        batches.load_state_dict(alone.state_dict(epoch=3, steps=4))
        assert (alone.first_epoch, alone.first_step(3)) == (3, 4)


def test_a_custom_pipeline_must_report_what_it_has_delivered(source: RowSource) -> None:
    pipeline_of(source, depth=3).run()
    with pytest.raises(loader.OptionError, match="what has left your pipeline"):
        source.state_dict()
    assert source.state_dict(epoch=0, steps=1)["start"] == 8


class Pixels:
    """The position and a digest of the pixels of each sample of two epochs, by epoch and place."""

    def __init__(self, door: Callable[..., loader.Source]) -> None:
        self._door = door
        self.found: dict[tuple[int, int], tuple[int, str]] = {}

    def read(
        self, *, ranks: int = 1, threads: int = 1, stop: int | None = None, state: Any = None, **options: Any
    ) -> Any:
        """Read on all ranks, from a state on, both epochs or ``stop`` batches; returns the state after them."""
        states = []
        for rank in range(ranks):
            with self._door(**({"batch_size": 8} | options), rank=rank, world_size=ranks) as source:
                batches = loader.ClassificationIterator(source, size=16, train=True, num_threads=threads)
                if state is not None:
                    batches.load_state_dict(state)
                for images, _ in itertools.islice(itertools.chain(batches, batches), stop):
                    assert batches.given is not None
                    self._take(batches.given, images)
                states.append(batches.state_dict())
        return states[0] if options.get("in_order", True) else loader.merge_states(states)

    def _take(self, batch: loader.Batch, images: np.ndarray) -> None:
        for place, position, image in zip(batch.places.tolist(), batch.positions.tolist(), images, strict=True):
            sample = position, hashlib.sha256(image.tobytes()).hexdigest()
            assert self.found.setdefault((batch.epoch, place), sample) == sample


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> loader.Folder:
    """40 images of two classes, 6 of them of the second one."""
    files = {f"{'rare' if number < 6 else 'usual'}/{number}.png": texture(number) for number in range(40)}
    return loader.open_folder(plant(tmp_path_factory.mktemp("folder"), files))


LAYOUTS: list[dict[str, Any]] = [
    {"threads": 4},
    {"batch_size": 3, "ranks": 3},
    {"batch_size": 5, "ranks": 2, "last_batch_policy": "FILL"},
    {"batch_size": 10, "in_order": False, "threads": 2},
]
ORDERS: list[dict[str, Any]] = [{}, {"shuffle": False}, {"sampling": "balanced"}]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_the_pixels_of_a_sample_follow_from_seed_epoch_and_place_alone(
    folder: loader.Folder, order: dict[str, Any], layout: dict[str, Any]
) -> None:
    usual, other, halves = (Pixels(partial(loader.FolderSource, folder)) for _ in range(3))
    # The order of a sampling depends on the global batch.
    usual.read(**order, batch_size=layout.get("batch_size", 8) * layout.get("ranks", 1))
    other.read(**order, **layout)
    assert usual.found == other.found
    state = halves.read(stop=2, **order, **layout)
    halves.read(state=state, batch_size=7, ranks=2, threads=3, last_batch_policy="FILL", **order)
    assert usual.found == halves.found
    digests = [digest for _, digest in usual.found.values()]
    assert len(set(digests)) == len(digests)  # also of a sample that comes twice in an epoch


def test_another_seed_gives_other_pixels(folder: loader.Folder) -> None:
    usual, other = Pixels(partial(loader.FolderSource, folder)), Pixels(partial(loader.FolderSource, folder))
    usual.read(shuffle=False)
    other.read(shuffle=False, seed=1)
    assert usual.found.keys() == other.found.keys()
    assert not set(usual.found.values()) & set(other.found.values())


def test_a_graph_of_ones_own_takes_numbers_by_name(source: RowSource) -> None:
    def graph(files: Any, labels: Any, *, angle: Any, corners: Any) -> tuple[Any, ...]:
        return files, labels, angle, corners

    def numbers(draws: loader.Draws) -> dict[str, Any]:
        return {"corners": draws.uniform(6, low=-1).reshape(-1, 3, 2), "angle": draws.flips()}

    batches = loader.GenericIterator(source, graph, names=["files", "labels", "angle", "corners"], numbers=numbers)
    for epoch in range(2):
        for batch in batches:
            given = batches.given
            assert given is not None
            draws = loader.Draws(seed=source.seed, epoch=epoch, places=given.places)
            for name, values in numbers(draws).items():
                assert (batch[name].dtype, batch[name].tolist()) == (values.dtype, values.tolist())


def test_a_graph_gets_numbers_in_any_form_of_array(source: RowSource) -> None:
    kept = np.empty((8, 2), dtype=np.float32)

    def numbers(draws: loader.Draws) -> dict[str, Any]:
        drawn = draws.uniform(4)
        kept[: len(drawn)] = drawn[:, :2]
        found = {"big": drawn.astype(">f4"), "strided": drawn[:, 1], "reused": kept[: len(drawn)]}
        return found | {"fortran": np.asfortranarray(drawn), "bits": draws.bits()}

    def graph(files: Any, labels: Any, **given: Any) -> tuple[Any, ...]:
        return files, labels, *(given[name] for name in names)

    names = ["big", "strided", "reused", "fortran", "bits"]
    batches = loader.GenericIterator(source, graph, names=["files", "labels", *names], numbers=numbers)
    for batch in batches:
        given = batches.given
        assert given is not None
        draws = loader.Draws(seed=source.seed, epoch=given.epoch, places=given.places)
        drawn = draws.uniform(4)
        assert batch["big"].tolist() == batch["fortran"].tolist() == drawn.tolist()
        assert batch["strided"].tolist() == drawn[:, 1].tolist()
        assert batch["reused"].tolist() == drawn[:, :2].tolist()
        assert batch["bits"].tolist() == draws.bits().tolist()


@pytest.mark.parametrize(
    ("numbers", "found"),
    [
        ({"one": 5}, "numbers as a function of Draws"),
        (lambda draws: draws.flips(), "a dictionary of arrays from numbers="),
        (lambda draws: {"one": 5}, r"one row for each of 1 samples\. Found: int64 \(\)"),
        (lambda draws: {"one": np.zeros(3)}, r"one row for each of 1 samples\. Found: float64 \(3,\)"),
        (
            lambda draws: {"one": np.array(["a"])},
            "as an array of bool, uint8, int32, int64, uint64, float32, float64 with one",
        ),
        (lambda draws: {"a b": draws.flips()}, "'a b'"),
    ],
)
def test_numbers_that_are_no_row_of_each_sample_are_refused(source: RowSource, numbers: Any, found: str) -> None:
    batches = loader.GenericIterator(source, lambda files, labels, one: labels, names=["labels"], numbers=numbers)
    with pytest.raises(loader.OptionError, match=found):
        next(iter(batches))


@pytest.mark.parametrize("kind", ["other order", "other name", "other type", "other dimensions"])
def test_numbers_reach_the_graph_by_name_or_are_refused(source: RowSource, kind: str) -> None:
    def numbers(draws: loader.Draws) -> dict[str, Any]:
        ones, twos = (np.full(len(draws), value, dtype=np.int32) for value in (1, 2))
        if len(draws) == 1:  # asked for before the first batch
            return {"one": ones, "two": twos}
        others: dict[str, dict[str, Any]] = {
            "other order": {"two": twos, "one": ones},
            "other name": {"one": ones, "three": twos},
            "other type": {"one": ones, "two": twos.astype(np.float32)},
            "other dimensions": {"one": ones, "two": twos[:, None]},
        }
        return others[kind]

    def graph(files: Any, labels: Any, *, one: Any, two: Any) -> tuple[Any, ...]:
        return one, two

    batches = iter(loader.GenericIterator(source, graph, names=["one", "two"], numbers=numbers))
    if kind == "other order":
        batch = next(batches)
        assert ({*batch["one"].tolist()}, {*batch["two"].tolist()}) == ({1}, {2})
    else:
        with pytest.raises(loader.OptionError, match=r"Wanted the same arrays from numbers=.*for each batch"):
            next(batches)


@pytest.mark.parametrize(
    "source", [{"batch_size": 100}, {"batch_size": 100, "last_batch_policy": "DROP"}], indirect=True
)
def test_an_epoch_smaller_than_a_batch_is_delivered(source: RowSource) -> None:
    batches = loader.ClassificationIterator(source, size=8, train=True)
    expected = [] if len(source) == 0 else [COUNT]
    for _ in range(3):
        assert [len(labels) for _, labels in batches] == expected


@pytest.mark.parametrize("source", [{"index": 1}], indirect=True)
@pytest.mark.parametrize("train", [False, True])
def test_an_undecodable_image_is_named(source: RowSource, train: bool) -> None:
    batches = loader.ClassificationIterator(source, size=8, train=train)
    message = rf"image {NO_PICTURE} \(class 2, position 12\)\. Found: 18 bytes that begin with b'this is no p'"
    for _ in range(2):
        with pytest.raises(loader.DecodeError, match=message):
            list(batches)


@pytest.mark.parametrize("source", [{"batch_size": 2, "memory_budget": 1}], indirect=True)
def test_closing_the_source_in_mid_epoch_ends_the_pass(source: RowSource) -> None:
    batches = loader.ClassificationIterator(source, size=8, train=True)
    with pytest.raises(loader.ClosedError):
        for _ in batches:
            source.close()


@pytest.mark.parametrize("source", [{"index": 1}, {"index": 1, "last_batch_policy": "FILL"}], indirect=True)
@pytest.mark.parametrize("in_order", [True, False])
def test_an_undecodable_image_can_be_skipped(source: RowSource, in_order: bool) -> None:
    policy = source.last_batch_policy
    with source.again(in_order=in_order) as other:
        batches = loader.ClassificationIterator(other, size=8, train=False, on_undecodable="skip", **PLAIN)
        for epoch in range(2):
            found = [(shades(images).tolist(), labels.tolist()) for images, labels in batches]
            assert all(seen == labels for seen, labels in found)
            numbers = [label for _, labels in found for label in labels]
            if policy == "PARTIAL":
                assert sorted(numbers) == sorted(LABELS[:12])
            else:
                assert [len(labels) for _, labels in found] == [8, 8]
            assert other.state_dict()["epoch"] == epoch + 1
        assert [(one.id, one.position, one.epoch) for one in other.skipped] == [
            (NO_PICTURE, 12, epoch) for epoch in range(2)
        ]
        assert "this is no p" in other.skipped[0].reason


def test_a_custom_graph_gives_its_outputs_by_name(source: RowSource) -> None:
    from nvidia.dali import fn, types

    def graph(files: object, labels: object) -> tuple[object, object]:
        return fn.decoders.image(files, output_type=types.RGB), labels

    found = list(loader.GenericIterator(source, graph, names=["pictures", "numbers"]))
    assert [one["numbers"][:, 0].tolist() for one in found] == labels_of(source, 0)
    sizes = [picture.shape for one in found for picture in one["pictures"]]
    positions = [position for batch in source.epoch(0) for position in batch.positions]
    assert sizes == [(90 - position, 60 + position, 3) for position in positions]
    with pytest.raises(loader.OptionError, match=r"outputs only of the graph\. Found: 2"):
        list(loader.GenericIterator(source, graph, names=["only"]))


@pytest.mark.parametrize("kind", ["blob", "none"])
def test_images_come_with_masks_or_without_labels_and_with_metadata(tmp_path: Path, kind: str) -> None:
    folder = write_split_folder(tmp_path / "split", [(IDS, [-1] * COUNT)], label_type=kind)
    split = loader.open_split(folder, cache=tmp_path / "cache")
    assert (split.labels, split.label_type) == (None, kind)
    rows = {one: picture(number % 10, width=20, height=10) for number, one in enumerate(IDS)}
    labels = {one: bytes([number]) * 3 for number, one in enumerate(IDS)} if kind == "blob" else None
    notes = {one: (f"p\u00e9/{number}", number, 0.5) for number, one in enumerate(IDS)}
    with RowSource(
        split, rows=rows, labels=labels, notes=notes, batch_size=8, metadata=["path", "width", "score"]
    ) as source:
        for batch in source.epoch(0):
            numbers = batch.positions.tolist()
            assert batch.labels.shape == (0,)
            assert batch.label_blobs == ([bytes([number]) * 3 for number in numbers] if kind == "blob" else [])
            assert dict(batch.metadata) == {
                "path": [f"p\u00e9/{number}" for number in numbers],
                "width": numbers,
                "score": [0.5] * len(numbers),
            }
        _, *outputs = pipeline_of(source).run()
        first = next(source.epoch(0))
        if kind == "blob":
            assert [np.array(one).tobytes() for one in outputs[0]] == first.label_blobs
        path, width, score = outputs[-3:]
        assert [np.array(one).tobytes().decode() for one in path] == first.metadata["path"]
        assert np.array(width.as_tensor())[:, 0].tolist() == first.metadata["width"]
        assert np.array(score.as_tensor()).dtype == np.float64
        with pytest.raises(loader.OptionError, match="Wanted a split with class numbers"):
            loader.ClassificationIterator(source, size=8, train=True)


def test_a_mask_fits_its_photo_as_dali_decodes_it_in_every_orientation() -> None:
    from nvidia.dali import Pipeline, fn, types

    blocks = np.kron(np.random.default_rng(1).integers(0, 4, (3, 4), np.uint8), np.ones((16, 16), np.uint8))
    photos, masks = [], []
    for orientation in range(1, 9):
        photo = encoded(Image.fromarray(blocks * 80), "JPEG", exif=exif(orientation))
        mask = upright_mask(encoded(Image.fromarray(blocks), "PNG"), read_header(photo), Recode(mask_frame="stored"))
        photos.append(np.frombuffer(photo, np.uint8))
        masks.append(np.frombuffer(mask.data, np.uint8))
    pipeline = Pipeline(batch_size=8, num_threads=1, device_id=None)
    with pipeline:
        files = fn.external_source(lambda: (photos, masks), num_outputs=2)
        pipeline.set_outputs(*(fn.decoders.image(file, output_type=types.GRAY) for file in files))
    for photo, mask in zip(*pipeline.run(), strict=True):
        assert np.abs(np.asarray(photo) / 80 - np.asarray(mask)).mean() < 0.02
