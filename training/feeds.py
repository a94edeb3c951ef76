"""Where the images of a training come from. To add a source, add a function to `KINDS`."""

import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import loader
from formats import logs
from formats.local_node import described, hosts_of_script
from training import TrainingError
from training.command_line import named, one_line
from training.ranks import Ranks
from training.train_options import TrainOptions

Side: TypeAlias = Literal["train", "val"]
Open: TypeAlias = Callable[[TrainOptions, Side], Callable[..., loader.Source]]


def _from_tables(options: TrainOptions, side: Side) -> Callable[..., loader.Source]:
    is_training = side == "train"
    if options.split is not None:
        split = loader.open_split(options.split, index=options.train_index if is_training else options.val_index)
    else:
        place = options.train_rows_fn if is_training else options.val_rows_fn
        assert place is not None
        table = options.train_data_table if is_training else options.val_data_table
        split = loader.open_rows(place, data_table=table)
    hosts = hosts_of_script(options.hosts)
    return partial(loader.CassandraSource, split, hosts=hosts, port=options.port, on_changed=options.on_changed)


def _from_folders(options: TrainOptions, side: Side) -> Callable[..., loader.Source]:
    place = options.data[0 if side == "train" else 1]
    or_split = Path(place).resolve().name if options.dataset else ""
    folder = loader.open_folder(place, dataset=options.dataset, or_split=or_split, class_level=options.class_level)
    return partial(loader.FolderSource, folder)


def _from_shards(options: TrainOptions, side: Side) -> Callable[..., loader.Source]:
    place = options.train_shards if side == "train" else options.val_shards
    assert place is not None
    return partial(loader.ShardSource, loader.open_shards(place))


# By the kind of the options: a function that makes a source when it gets batch size, ranks and order.
KINDS: dict[str, Open] = {"tables": _from_tables, "folders": _from_folders, "shards": _from_shards}


@contextmanager
def open_sources(options: TrainOptions, ranks: Ranks) -> Iterator[tuple[loader.Source, loader.Source]]:
    """The sources of training and validation, connected. Raises `TrainingError` for sources that do not go together,
    and the loader's errors.
    """
    # Training has a new order each epoch, and the same number of full batches on all ranks. Validation has each image
    # once, in one order.
    share: dict[str, Any] = {"batch_size": options.batch_size, "seed": options.seed}
    share |= {"rank": ranks.rank, "world_size": ranks.world_size}
    kind = KINDS[options.kind]
    order: dict[str, Any] = {"last_batch_policy": "DROP"}
    if options.kind != "shards":  # which are written without images that are missing, and are read in pieces
        share["on_missing"] = options.on_missing
        order |= {"sampling": options.sampling, "class_weights": options.class_weights}
    with (
        kind(options, "train")(**share, **order) as train,
        kind(options, "val")(**share, shuffle=False) as val,
    ):
        check_sides(train, val, options)
        if isinstance(train, loader.CassandraSource) and ranks.rank == 0:
            logs.tell(f"cassandra: {described(train.hosts, train.port)}")
        if options.metrics_port is not None:
            local_rank = int(os.environ.get("LOCAL_RANK", "0"))
            train.serve_metrics(port=options.metrics_port + local_rank, host=options.metrics_host)
        train.connect()
        val.connect()
        yield train, val


def check_sides(train: loader.Source, val: loader.Source, options: TrainOptions) -> None:
    """Raise `TrainingError` for classes, sizes or images with which no training is possible."""
    for side in (train, val):
        if side.label_type != "int":
            raise TrainingError(f"Wanted class numbers as labels. Found: {side.split} with {side.label_type!r}")
    classes = max(train.split.num_classes, val.split.num_classes)
    if options.classes is not None and options.classes < classes:
        raise TrainingError(
            f"Wanted images of at most --classes {options.classes} classes. Found: {train.split} and {val.split}"
        )
    if other := _other_names(train.split.class_names, val.split.class_names):
        raise TrainingError(f"Wanted the same classes in training and validation. Found: {other}")
    whole = train.batch_size * train.world_size
    if len(train.split) < whole:
        raise TrainingError(
            f"Wanted at least one batch of {whole} images ({train.batch_size} on each of {train.world_size} ranks). "
            f"Found: {len(train.split)} in {train.split}. Use a smaller --b."
        )
    is_same = train.split.fingerprint == val.split.fingerprint and train.split.data_table == val.split.data_table
    if is_same and not options.validate_on_training:
        raise TrainingError(
            f"Wanted different images for training and validation. Found: {train.split} for both. "
            "Use --validate-on-training if you want that."
        )


def batches_of(source: loader.Source, options: TrainOptions, ranks: Ranks, *, train: bool) -> loader.GenericIterator:
    """The source's batches through DALI, as tensors on the GPU unless DALI works on the CPU: ``(images, labels)``, or
    with the user's transforms ``{"images": images, "labels": labels}``.
    """
    on_gpu: dict[str, Any] = {
        "device_id": None if options.dali_cpu else ranks.device_id,
        "num_threads": options.workers,
        "output": "torch",
        "on_undecodable": options.on_undecodable,
    }
    if options.transforms is None:
        return loader.ClassificationIterator(source, size=options.size, train=train, **on_gpu)
    graph = partial(
        _graph,
        transform=named(options.transforms, option="--transforms"),
        train=train,
        size=options.size,
        is_on_gpu=on_gpu["device_id"] is not None,
    )
    return loader.GenericIterator(source, graph, names=["images", "labels"], **on_gpu)


def _graph(
    files: Any, labels: Any, *, transform: Callable[..., Any], train: bool, size: int, is_on_gpu: bool
) -> tuple[Any, Any]:
    fn, types = importlib.import_module("nvidia.dali.fn"), importlib.import_module("nvidia.dali.types")
    device = "mixed" if is_on_gpu else "cpu"
    images = fn.decoders.image(files, device=device, output_type=types.RGB, jpeg_fancy_upsampling=is_on_gpu)
    labels = fn.cast(fn.squeeze(labels, axes=[0]), dtype=types.INT64)
    try:
        images = transform(images, train=train, size=size)
    except Exception as error:  # any error of the user's function
        raise TrainingError(
            f"Wanted --transforms as function(images, *, train, size) of DALI's operators. Found: {one_line(error)}"
        ) from error
    return images, labels.gpu() if is_on_gpu else labels


def _other_names(train: Mapping[int, str], val: Mapping[int, str]) -> str | None:
    """The first class number that has two names."""
    for label in sorted(train.keys() & val.keys()):
        if train[label] != val[label]:
            return f"class {label} is {train[label]!r} in one and {val[label]!r} in the other"
    return None
