"""Write any image dataset of torch as shards: worker processes encode images and write whole shards."""

import hashlib
import json
import logging
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from formats import ShardError as PackingError
from formats import StorageError
from formats.hashing import xxhash64
from formats.read_ahead import ahead
from formats.shards.layout import cut, shard_name
from formats.sizes import parse_size
from loader.errors import LoaderError, OptionError, ShardError, SplitError, require
from loader.options import check_bools, check_choice, check_int
from loader.s3.client import Client, told
from loader.shards.shard_set import Shards, shards_in
from loader.shards.upload_items import (
    Job,
    Measures,
    begin,
    class_names,
    know,
    measured,
    measured_items,
    pair_of,
    written,
)
from loader.shards.upload_pictures import FORMATS, one_line
from schemas.shards import MOST_BYTES_ON_S3, NAME, Shard

if TYPE_CHECKING:
    from formats.stores.storage import Storage

_log = logging.getLogger(__name__)

_ITEMS_TOGETHER = 64  # items of one task
_SPOOL = "imagestrata-upload-"
_AHEAD = 256  # tasks; a shard's has the numbers of all its items
_AHEAD_OF_PICTURES = 2  # for each process; a task has the pictures themselves
_NO_ITEM = "Wanted a dataset with at least one item. Found: none"

# Called with what is being done, how much of it is done, and how much there is, or None if that is not known.
Bar: TypeAlias = Callable[[str, int, int | None], None]


class _Here:
    """Runs tasks in this process, one at a time."""

    def submit(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future


Pool: TypeAlias = ProcessPoolExecutor | _Here


def upload_cv_dataset(
    ds: Any,
    *,
    client: Client,
    bucket: str,
    base_folder: str = "",
    maxsize: float | str = 1e8,
    maxcount: float = 100_000,
    workers: int | None = None,
    seed: int = 0,
    image_format: str = "jpg",
    quality: int = 95,
    dataset: str = "",
    overwrite: bool = False,
    create_bucket: bool = False,
    progress: bool = True,
) -> Shards:
    """Pack a dataset of (image, class number) into shards in a folder of a bucket.

    An image is one of PIL; the bytes of a JPEG, PNG, WebP, BMP, TIFF or GIF file; an array of uint8, (height, width) or
    (height, width, channels); or a tensor of torch, (height, width) or (channels, height, width), of uint8 or of floats
    from 0 to 1. Channels are 1, 3 or 4. Bytes, and the files of an ImageFolder without transforms, are stored as they
    are. Images of PIL are stored upright by their EXIF. All but bytes and files are first encoded into a temporary
    folder, because their sizes are not known before. Then each process writes whole shards, with the images fully
    shuffled by ``seed``. The shards are the same for any number of workers.

    The manifest is written last. After a killed upload there is no dataset; call this again, which removes the rest.

    Args:
        ds: A dataset with a length and items, such as torch's map-style datasets; or an iterable, such as torch's
            IterableDataset or a generator, which is read once, in this process.
        client: The connection settings, from `make_client`.
        bucket: The name of the bucket.
        base_folder: The folder in it.
        maxsize: The most bytes of a shard, tar headers included: a number, or a text with a unit, such as ``"100MB"``.
        maxcount: The most images of a shard.
        workers: Processes, by default one for each processor; 0 uses only this one.
        seed: The seed of the order.
        image_format: "jpg", "png" or "webp", for images that are encoded.
        quality: The quality of JPEG and WebP, from 1 to 100.
        dataset: The name of a dataset: ids are those that an ingest of it gives to the same paths. Items without paths
            get ids from their numbers.
        overwrite: Whether shards that are there are replaced.
        create_bucket: Whether a missing bucket is made. The folders of a local client are always made.
        progress: Whether a progress bar is shown.

    Returns:
        The shards, opened.

    Raises:
        ShardError: An item raises an error, has no image or class number, or does not fit into a shard; or there are
            shards already, without ``overwrite``.
        OptionError: An option is out of its range.
        AccessError: The store refuses access.
        UnreachableError: The store does not answer.
    """
    count = _count(ds)  # None: an iterable
    options = _checked(client, maxsize, maxcount, seed, image_format, quality)
    workers = check_int("workers", os.cpu_count() or 1 if workers is None else workers, 0)
    check_bools(overwrite=overwrite, create_bucket=create_bucket, progress=progress)
    storage = client.storage(bucket, base_folder, create=create_bucket)
    before = _before(client, storage, bucket, base_folder, is_replaced=overwrite)
    with _spool() as spool:
        mine, names = None if count is None else ds, tuple(class_names(ds))
        job = Job(mine, client, bucket, base_folder, spool, image_format, quality, dataset, names)
        with _processes(workers if count is None else min(workers, count), job) as pool, _bar(progress) as bar:
            items = _measured(pool, ds, count, bar, most=_AHEAD_OF_PICTURES * max(1, workers))
            layout = _layout(items, seed=seed, options=options)
            shards = _write(pool, items, layout, bar)
        _publish(storage, job, shards, items, layout, before, source=f"{type(ds).__module__}.{type(ds).__qualname__}")
    return shards_in(client, bucket, base_folder)


@dataclass(frozen=True, slots=True)
class _Items:
    """What is known of all items, in their order; ids have shape (n, 16). See `Measures`."""

    ids: NDArray[np.uint8]
    labels: NDArray[np.int32]
    sizes: NDArray[np.int64]
    extensions: list[str]
    contents: list[str]

    @classmethod
    def of(cls, found: Sequence[Measures]) -> Self:
        """Join what processes found of some items each."""
        return cls(
            np.frombuffer(b"".join(chain.from_iterable(one.ids for one in found)), np.uint8).reshape(-1, 16),
            np.fromiter(chain.from_iterable(one.labels for one in found), np.int32),
            np.fromiter(chain.from_iterable(one.sizes for one in found), np.int64),
            list(chain.from_iterable(one.extensions for one in found)),
            [one.contents for one in found],
        )

    def fingerprint(self, places: NDArray[np.int64]) -> str:
        """The identity of items, their labels and sizes, in an order."""
        digest = hashlib.sha256(b"items 1")
        for column in (self.ids, self.labels, self.sizes):
            digest.update(np.ascontiguousarray(column[places]).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class _Layout:
    """The items in the order of shards, where shards begin, the tag of their names, and facts for the manifest."""

    places: NDArray[np.int64]
    cuts: NDArray[np.int64]
    tag: str
    facts: dict[str, Any]


def _checked(
    client: Any, maxsize: float | str, maxcount: float, seed: int, image_format: str, quality: int
) -> dict[str, Any]:
    """The options that decide what is in which shard, checked. Raises `OptionError`."""
    if not isinstance(client, Client):
        raise OptionError(f"Wanted a client from loader.shards.make_client. Found: {client!r}")
    size, count = _size("maxsize", maxsize), _whole("maxcount", maxcount)
    check_int("maxsize", size, 10_240, None if client.is_local else MOST_BYTES_ON_S3)
    check_int("maxcount", count, 1)
    check_int("seed", seed, -(1 << 63), (1 << 63) - 1)
    check_int("quality", quality, 1, 100)
    check_choice("image_format", image_format, list(FORMATS))
    return {"maxsize": size, "maxcount": count, "image_format": image_format, "quality": quality}


def _layout(items: _Items, *, seed: int, options: dict[str, Any]) -> _Layout:
    """Shuffle items by the seed, and cut where shards are full. Raises `ShardError`."""
    order = xxhash64([items.ids], seed=int(xxhash64([np.array([seed], dtype=np.int64)])[0]))
    places = np.lexsort((np.arange(len(order)), order))
    try:
        cuts = cut(items.sizes[places], maxsize=options["maxsize"], maxcount=options["maxcount"])
    except PackingError as error:
        largest = int(items.sizes.argmax())
        raise ShardError(f"{error} It is item {largest} of the dataset.") from error
    source = items.fingerprint(places)
    tag = hashlib.sha256(json.dumps([1, source, items.contents, seed, options]).encode()).hexdigest()[:8]
    return _Layout(places, cuts, tag, {"seed": seed, "source_fingerprint": source, "options": options})


def _count(ds: Any) -> int | None:
    """The number of items of a dataset; None for one that is iterated over."""
    torch: Any = sys.modules.get("torch.utils.data")  # imported already, if ds is an IterableDataset
    is_iterable = hasattr(ds, "__iter__") and not (hasattr(ds, "__len__") and hasattr(ds, "__getitem__"))
    if is_iterable or (torch is not None and isinstance(ds, torch.IterableDataset)):
        return None
    try:
        count = len(ds)
    except TypeError:
        raise OptionError(
            f"Wanted a dataset with a length and items, or an iterable of (image, class number). "
            f"Found: {type(ds).__name__}"
        ) from None
    if not count:
        raise OptionError(_NO_ITEM)
    return count


def _size(name: str, value: float | str) -> int:
    """A number of bytes, which may have a unit as on command lines: ``"100MB"``."""
    if not isinstance(value, str):
        return _whole(name, value)
    try:
        return parse_size(value)
    except ValueError as error:
        raise OptionError(f"{name}: {error}") from None


def _whole(name: str, value: float) -> int:
    """A number that may be given as 1e8."""
    try:
        if isinstance(value, (bool, str)) or int(value) != value:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise OptionError(f"Wanted {name} as a whole number, as 100000 or 1e5. Found: {value!r}") from None
    return int(value)


@contextmanager
def _spool() -> Iterator[Path]:
    """A temporary folder for encoded images. First remove what killed uploads have left beside it."""
    for place in Path(tempfile.gettempdir()).glob(f"{_SPOOL}*"):
        number = place.name.removeprefix(_SPOOL).partition("-")[0]
        if number.isdecimal() and not Path(f"/proc/{number}").exists() and Path("/proc/self").exists():
            shutil.rmtree(place, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{_SPOOL}{os.getpid()}-") as folder:
        yield Path(folder)


def _before(client: Client, storage: "Storage", bucket: str, folder: str, *, is_replaced: bool) -> Shards | None:
    """The shards that are there; None if there are none. Raises `ShardError` unless they are replaced."""
    try:
        before = shards_in(client, bucket, folder)
    except SplitError as error:
        if not is_replaced and storage.exists(NAME):  # it is there, but cannot be read
            raise ShardError(f"{error} Remove it, or name another folder.") from error
        return None
    if not is_replaced:
        raise ShardError(
            f"Wanted a folder without shards at {storage.address}. Found: {len(before):,} images in shards. Use "
            "overwrite=True to replace them, or name another folder."
        )
    return before


@contextmanager
def _processes(count: int, job: Job) -> Iterator[Pool]:
    """Processes that know the job; forked if possible, so that the dataset need not be pickled. 0: none."""
    if not count:
        know(job)
        try:
            yield _Here()
        finally:
            know(None)
        return
    kind = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(kind)
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=begin, initargs=(job,))
    try:
        pool.submit(os.getpid).result()  # all are begun
        yield pool
    except BaseException:
        for process in list(pool._processes.values()):  # their tasks may take long, and are not needed any more
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _in_turn(
    pool: Pool,
    function: Callable[..., Any],
    tasks: Iterable[tuple[Any, ...]],
    done: Callable[[tuple[Any, ...]], None],
    *,
    most: int = _AHEAD,
) -> list[Any]:
    """The results of tasks in their order; few of them are submitted ahead, as they may be large."""
    most = 1 if isinstance(pool, _Here) else most
    results = []
    try:
        for task, result in ahead(tasks, lambda task: pool.submit(function, *task), most=most):
            results.append(result)
            done(task)
    except LoaderError:
        raise
    except BrokenProcessPool as error:
        raise ShardError(
            "Wanted processes that pack the dataset. Found: one was killed, perhaps because memory ran out. "
            "Use fewer workers."
        ) from error
    except OSError as error:
        raise ShardError(f"Wanted processes that pack the dataset. Found: {error}") from error
    return results


def _measured(pool: Pool, ds: Any, count: int | None, bar: Bar, *, most: int) -> _Items:
    """Encode what must be encoded, and measure all items; ``most`` tasks of an iterable are sent at a time."""
    if count is None:
        return _Items.of(_measure_iterable(pool, ds, bar, most=most))
    tasks = [(range(start, min(start + _ITEMS_TOGETHER, count)),) for start in range(0, count, _ITEMS_TOGETHER)]
    return _Items.of(_in_turn(pool, measured, tasks, lambda task: bar("encode", len(task[0]), count)))


def _measure_iterable(pool: Pool, ds: Iterable[Any], bar: Bar, *, most: int) -> list[Measures]:
    """The same of an iterable, read here and only once, because each process would iterate over all of it."""

    def tasks() -> Iterator[tuple[int, list[tuple[Any, int]]]]:
        pairs = (pair_of(item, number) for number, item in enumerate(_items(ds)))
        first = 0
        while together := list(islice(pairs, _ITEMS_TOGETHER)):
            yield first, together
            first += len(together)

    found = _in_turn(pool, measured_items, tasks(), lambda task: bar("encode", len(task[1]), None), most=most)
    if not found:
        raise OptionError(_NO_ITEM)
    return found


def _items(ds: Iterable[Any]) -> Iterator[Any]:
    number = 0
    try:
        for item in ds:
            yield item
            number += 1
    except Exception as error:  # whatever the user's dataset does
        raise ShardError(f"Wanted item {number} of the dataset. Found: {one_line(error)}") from error


def _write(pool: Pool, items: _Items, layout: _Layout, bar: Bar) -> list[Shard]:
    total, cuts = len(layout.places), layout.cuts

    def tasks() -> Iterator[tuple[str, int, int, list[tuple[int, int, str]]]]:
        for number, (start, end) in enumerate(pairwise(cuts.tolist())):
            some = layout.places[start:end]
            kinds = [items.extensions[item] for item in some.tolist()]
            rows = list(zip(some.tolist(), items.labels[some].tolist(), kinds, strict=True))
            yield shard_name(layout.tag, number, len(cuts) - 1), start, total, rows

    return _in_turn(pool, written, tasks(), lambda task: bar("upload", len(task[3]), total))


def _publish(
    storage: "Storage",
    job: Job,
    shards: list[Shard],
    items: _Items,
    layout: _Layout,
    before: Shards | None,
    *,
    source: str,
) -> None:
    """Publish the manifest; then remove the shards that it replaces, and what killed uploads of these items left."""
    from formats.shards.folder import manifest_of, publish

    numbers, counts = np.unique(items.labels, return_counts=True)
    manifest = manifest_of(
        shards,
        label_type="int",
        class_names=dict(enumerate(job.names)),
        counts=dict(zip(numbers.tolist(), counts.tolist(), strict=True)),
        source=source,
        **layout.facts,
    )
    try:
        others = publish(storage, manifest, tag=layout.tag, before=None if before is None else before.contents)
    except StorageError as error:
        raise told(error) from None
    if others:
        tags = ", ".join(f"{one}-*" for one in others)
        _log.warning(
            "%s also has shards that no manifest names: %s. Remove them, unless they are being uploaded.",
            storage.address,
            tags,
        )


@contextmanager
def _bar(is_wanted: bool) -> Iterator[Bar]:
    """A bar for each part of the work, on a terminal's standard error; a notebook shows it as well. It has a thread:
    begin it after processes are forked.
    """
    progress = require("rich.progress", extra="shards", purpose="progress bars")
    console = require("rich.console", extra="shards", purpose="progress bars").Console(stderr=True)
    columns = [*progress.Progress.get_default_columns(), progress.MofNCompleteColumn()]
    with progress.Progress(*columns, console=console, disable=not is_wanted) as bars:
        parts: dict[str, Any] = {}

        def tell(what: str, done: int, total: int | None) -> None:
            if what not in parts:
                parts[what] = bars.add_task(what, total=total)
            bars.update(parts[what], advance=done)

        yield tell
