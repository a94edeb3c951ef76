"""The source inside DALI, on the CPU: each sample once an epoch, decoded, with its own label."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from nvidia.dali import Pipeline, fn, types
from pictures import SHADES, execute, picture, shades, texture, write_table
from split_folders import image_ids, write_split_folder

import loader
from devstack.cassandra import Cassandra

COUNT = 43
IDS = image_ids(COUNT, first=1000)
LABELS = [number % 10 for number in range(COUNT)]
NO_PICTURE = uuid.UUID(int=3)
TEXTURES = image_ids(40, first=2000)
KINDS = [("PNG", "RGB"), ("JPEG", "RGB"), ("JPEG", "L"), ("PNG", "RGBA"), ("PNG", "L"), ("PNG", "P")]
PLAIN = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}


@pytest.fixture(scope="module")
def folder(cassandra: Cassandra, tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows: dict[uuid.UUID, bytes | None] = {NO_PICTURE: b"this is no picture"}
    for number, (one, label) in enumerate(zip(IDS, LABELS, strict=True)):
        format, mode = KINDS[number % len(KINDS)]
        rows[one] = picture(label, width=60 + number, height=90 - number, format=format, mode=mode)
    rows |= {one: texture(number) for number, one in enumerate(TEXTURES)}
    write_table("loader_dali.data", rows, hosts=cassandra.hosts, port=cassandra.port)
    splits = [(IDS, LABELS), ([*IDS[:12], NO_PICTURE], LABELS[:13]), (TEXTURES, [0] * len(TEXTURES))]
    return write_split_folder(tmp_path_factory.mktemp("split"), splits, data_table="loader_dali.data")


@pytest.fixture(params=[{}])
def source(
    request: pytest.FixtureRequest, folder: Path, cassandra: Cassandra, tmp_path: Path
) -> Iterator[loader.CassandraSource]:
    """Options of the source, and the index of the split, are the fixture's parameter."""
    options = {"hosts": cassandra.hosts, "port": cassandra.port, "batch_size": 8} | request.param
    split = loader.open_split(folder, index=options.pop("index", 0), cache=tmp_path / "cache")
    with loader.CassandraSource(split, **options) as made:
        yield made


def labels_of(source: loader.CassandraSource, epoch: int) -> list[list[int]]:
    return [batch.labels.tolist() for batch in source.epoch(epoch)]


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("exec_dynamic", [False, True])
def test_a_pipeline_gets_each_epoch_whole_and_in_order(
    source: loader.CassandraSource, depth: int, exec_dynamic: bool
) -> None:
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
def test_the_iterator_gives_decoded_batches_one_epoch_a_pass(
    source: loader.CassandraSource, train: bool, output: str
) -> None:
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


def test_batches_stay_as_they_are_when_later_ones_come(source: loader.CassandraSource) -> None:
    batches = loader.ClassificationIterator(source, size=8, train=False, output="numpy", **PLAIN)
    kept = list(batches) + list(batches)
    for images, labels in kept:
        assert shades(images).tolist() == labels.tolist()


def test_values_are_normalised_by_channel(source: loader.CassandraSource) -> None:
    mean, std = (0.1, 0.2, 0.3), (0.5, 1.0, 2.0)
    for images, labels in loader.ClassificationIterator(source, size=8, train=False, mean=mean, std=std):
        value = SHADES * labels / 255
        expected = np.stack([(value - m) / s for m, s in zip(mean, std, strict=True)], axis=1)
        assert np.allclose(images.mean(axis=(2, 3)), expected, atol=0.02)


def test_a_pass_that_is_left_early_is_followed_by_the_next_epoch(source: loader.CassandraSource) -> None:
    batches = loader.ClassificationIterator(source, size=8, train=True)
    for _, labels in batches:
        assert labels.tolist() == labels_of(source, 0)[0]
        break
    assert [labels.tolist() for _, labels in batches] == labels_of(source, 1)
    assert [labels.tolist() for _, labels in batches] == labels_of(source, 2)


@pytest.mark.parametrize("policy", ["FILL", "PARTIAL", "DROP"])
def test_what_dali_has_prepared_ahead_is_not_delivered(
    folder: Path, cassandra: Cassandra, tmp_path: Path, policy: loader._order.LastBatchPolicy
) -> None:
    def begin(batch_size: int) -> tuple[loader.CassandraSource, loader.ClassificationIterator]:
        source = loader.CassandraSource(
            loader.open_split(folder, cache=tmp_path),
            hosts=cassandra.hosts,
            port=cassandra.port,
            batch_size=batch_size,
            last_batch_policy=policy,
        )
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
        again.load_state_dict(state)  # the source's, while an iterator stands on it
        assert rest.state_dict() == state
        assert [labels.tolist() for _, labels in rest] == undisturbed[1][3:]
        assert [labels.tolist() for _, labels in rest] == undisturbed[2]
    smaller, rest = begin(5)
    with smaller:
        rest.load_state_dict(state)
        found = [label for _, labels in rest for label in labels.tolist()]
        wanted = [label for labels in undisturbed[1][3:] for label in labels]
        assert found[:15] == wanted[:15]
        assert len(found) == {"FILL": 20, "PARTIAL": 19, "DROP": 15}[policy]


def test_a_pipeline_of_one_s_own_must_tell_what_has_left_it(source: loader.CassandraSource) -> None:
    pipeline = Pipeline(batch_size=8, num_threads=2, device_id=None, prefetch_queue_depth=3)
    with pipeline:
        pipeline.set_outputs(*source.read())
    pipeline.run()
    with pytest.raises(loader.OptionError, match="what has left your pipeline"):
        source.state_dict()
    assert source.state_dict(epoch=0, steps=1)["start"] == 8


def test_crops_repeat_with_the_seed_and_differ_between_epochs(
    folder: Path, cassandra: Cassandra, tmp_path: Path
) -> None:
    def crops(seed: int, threads: int) -> list[np.ndarray]:
        split = loader.open_split(folder, index=2, cache=tmp_path)
        with loader.CassandraSource(
            split, hosts=cassandra.hosts, port=cassandra.port, batch_size=16, seed=seed, shuffle=False
        ) as source:
            batches = loader.ClassificationIterator(source, size=16, train=True, num_threads=threads)
            return [np.concatenate([images for images, _ in batches]) for _ in range(2)]

    first, again, other = crops(0, 1), crops(0, 3), crops(1, 1)
    assert np.array_equal(first[0], again[0])
    assert np.array_equal(first[1], again[1])
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[0], other[0])


@pytest.mark.parametrize(
    "source", [{"batch_size": 100}, {"batch_size": 100, "last_batch_policy": "DROP"}], indirect=True
)
def test_an_epoch_smaller_than_a_batch(source: loader.CassandraSource) -> None:
    batches = loader.ClassificationIterator(source, size=8, train=True)
    expected = [] if len(source) == 0 else [COUNT]
    for _ in range(3):
        assert [len(labels) for _, labels in batches] == expected


@pytest.mark.parametrize("source", [{"index": 1}], indirect=True)
@pytest.mark.parametrize("train", [False, True])
def test_an_image_that_is_no_picture_is_named(source: loader.CassandraSource, train: bool) -> None:
    batches = loader.ClassificationIterator(source, size=8, train=train)
    message = rf"image {NO_PICTURE} \(class 2, position 12\)\. Found: 18 bytes that begin with b'this is no p'"
    for _ in range(2):
        with pytest.raises(loader.DecodeError, match=message):
            list(batches)


@pytest.mark.parametrize("source", [{"batch_size": 2, "memory_budget": 1}], indirect=True)
def test_a_source_that_is_closed_in_mid_epoch_ends_the_pass(source: loader.CassandraSource) -> None:
    batches = loader.ClassificationIterator(source, size=8, train=True)
    with pytest.raises(loader.ClosedError):
        for _ in batches:
            source.close()


@pytest.mark.parametrize("source", [{"index": 1}, {"index": 1, "last_batch_policy": "FILL"}], indirect=True)
@pytest.mark.parametrize("in_order", [True, False])
def test_an_image_that_is_no_picture_can_be_skipped(
    source: loader.CassandraSource, in_order: bool, folder: Path, cassandra: Cassandra
) -> None:
    policy = source._schedule.last_batch_policy
    with loader.CassandraSource(
        source.split,
        hosts=cassandra.hosts,
        port=cassandra.port,
        batch_size=8,
        in_order=in_order,
        last_batch_policy=policy,
    ) as other:
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


def test_a_graph_of_one_s_own_gives_its_outputs_by_name(source: loader.CassandraSource) -> None:
    def graph(files: object, labels: object) -> tuple[object, object]:
        return fn.decoders.image(files, output_type=types.RGB), labels

    found = list(loader.GenericIterator(source, graph, names=["pictures", "numbers"]))
    assert [one["numbers"][:, 0].tolist() for one in found] == labels_of(source, 0)
    sizes = [picture.shape for one in found for picture in one["pictures"]]
    positions = [position for batch in source.epoch(0) for position in batch.positions]
    assert sizes == [(90 - position, 60 + position, 3) for position in positions]
    with pytest.raises(loader.OptionError, match=r"outputs only of the graph\. Found: 2"):
        list(loader.GenericIterator(source, graph, names=["only"]))


@pytest.fixture(scope="module")
def masks(cassandra: Cassandra, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Splits of masks and of no labels, with metadata."""
    rows = {one: picture(number % 10, width=20, height=10) for number, one in enumerate(IDS)}
    labels = {one: bytes([number]) * 3 for number, one in enumerate(IDS)}
    hosts, port = cassandra.hosts, cassandra.port
    write_table("loader_masks.data", rows, hosts=hosts, port=port, label_type="blob", labels=labels)
    write_table("loader_masks.bare", rows, hosts=hosts, port=port, label_type="none")
    execute(
        "CREATE TABLE IF NOT EXISTS loader_masks.metadata (id uuid PRIMARY KEY, width int, path text, score double)",
        *(
            "INSERT INTO loader_masks.metadata (id, width, path, score) "
            f"VALUES ({one}, {number}, 'p\u00e9/{number}', 0.5)"
            for number, one in enumerate(IDS)
        ),
        hosts=hosts,
        port=port,
    )
    for kind, table in (("blob", "data"), ("none", "bare")):
        write_split_folder(
            tmp_path_factory.getbasetemp() / f"masks-{kind}",
            [(IDS, [-1] * COUNT)],
            data_table=f"loader_masks.{table}",
            metadata_table="loader_masks.metadata",
            label_type=kind,
        )
    return tmp_path_factory.getbasetemp()


@pytest.mark.parametrize("kind", ["blob", "none"])
def test_masks_or_no_labels_and_metadata_come_with_their_images(
    masks: Path, cassandra: Cassandra, tmp_path: Path, kind: str
) -> None:
    split = loader.open_split(masks / f"masks-{kind}", cache=tmp_path)
    assert (split.labels, split.label_type) == (None, kind)
    with loader.CassandraSource(
        split, hosts=cassandra.hosts, port=cassandra.port, batch_size=8, metadata=["path", "width", "score"]
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
        pipeline = Pipeline(batch_size=8, num_threads=2, device_id=None)
        with pipeline:
            pipeline.set_outputs(*source.read())
        _, *outputs = pipeline.run()
        first = next(source.epoch(0))
        if kind == "blob":
            assert [np.array(one).tobytes() for one in outputs[0]] == first.label_blobs
        path, width, score = outputs[-3:]
        assert [np.array(one).tobytes().decode() for one in path] == first.metadata["path"]
        assert np.array(width.as_tensor())[:, 0].tolist() == first.metadata["width"]
        assert np.array(score.as_tensor()).dtype == np.float64
        with pytest.raises(loader.OptionError, match="Wanted a split with class numbers"):
            loader.ClassificationIterator(source, size=8, train=True)


@pytest.mark.parametrize("kind", ["blob", "none"])
def test_torch_gets_masks_or_no_labels_too(masks: Path, cassandra: Cassandra, tmp_path: Path, kind: str) -> None:
    split = loader.open_split(masks / f"masks-{kind}", cache=tmp_path)
    with loader.CassandraSource(split, hosts=cassandra.hosts, port=cassandra.port, batch_size=8) as source:
        dataset = loader.TorchDataset(source, transform=lambda picture: torch.tensor(picture.size))
        batches = list(torch.utils.data.DataLoader(dataset, batch_size=None))
        wanted = [batch.label_blobs for batch in source.epoch(0)]
    sizes = [one[0] if kind == "blob" else one for one in batches]
    assert [one.tolist() for one in sizes] == [[[20, 10]] * len(one) for one in sizes]
    if kind == "blob":
        assert [labels for _, labels in batches] == wanted


def test_metadata_that_are_not_there_are_named(masks: Path, cassandra: Cassandra, tmp_path: Path) -> None:
    split = loader.open_split(masks / "masks-blob", cache=tmp_path)
    with (
        loader.CassandraSource(
            split, hosts=cassandra.hosts, port=cassandra.port, batch_size=8, metadata=["colour"]
        ) as source,
        pytest.raises(loader.TableError, match=r"the columns id, colour in loader_masks\.metadata .*Found: id, "),
    ):
        next(source.epoch(0))
    with pytest.raises(loader.OptionError, match="metadata as a list of different names"):
        loader.CassandraSource(split, hosts=cassandra.hosts, batch_size=8, metadata="path")
