"""Shards as an iterable dataset. webdataset's own functions decode samples and make tuples of them."""

import copy
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, Self

from webdataset import filters

from loader.adapters.accelerate import check_not_prepared
from loader.adapters.decoding import SAFE_STREAM_DECODERS, Decoding
from loader.adapters.samples import Base, SampleBatch, SampleSource, passes_of, state_of_the_source
from loader.batch import Batch
from loader.errors import OptionError, StateError
from loader.options import check_bools, check_int
from loader.order.permutation import LastBatchPolicy
from loader.ranks import ranks
from loader.s3.client import Client
from loader.shards.shard_set import TIMEOUT_SECONDS, shards_in

Transform = Callable[[Iterator[Any]], Iterator[Any]]
Collate = Callable[[list[Any]], Any]


def _refused(name: str, why: str) -> Callable[..., NoReturn]:
    """A function of webdataset that would break what `RemoteDataset` promises; ``why`` says what to use instead."""

    def refuse(self: "RemoteDataset", *_: Any, **__: Any) -> NoReturn:
        raise OptionError(f"Wanted a chain that keeps each sample of a pass once. Found: {name}(). {why}")

    refuse.__name__, refuse.__doc__ = name, f"Raises `OptionError`. {why}"
    return refuse


_LEAVES_OUT = (
    "Ranks would have different numbers of batches, and len() would not be exact. Choose samples when you write the "
    "shards (jobs/split.py {options}, then jobs/shard.py --split), or leave them out in your loop."
)


class RemoteDataset(Base):
    """The samples of a folder of shards in a bucket: dictionaries of bytes by extension, in a new order each pass.

    A sample also has ``__key__`` and ``__url__``, its shard. `decode`, `to_tuple`, `map`, `map_tuple`, `map_dict`,
    `rename`, `rename_keys`, `extract_keys` and `xdecode` are webdataset's and return a new dataset. `batched` makes
    batches of samples, and later functions then get batches. `slice` ends each pass earlier. Functions that would
    change the number of samples, such as `select`, raise `OptionError` and say what to use instead. A dataset works
    under torch's ``DataLoader(dataset, num_workers=k, batch_size=None)``, in a plain loop, and without torch.

    Each pass is the next epoch; `set_epoch` chooses another. `loader.ShardSource` explains the order, and how shards
    are read ahead in pieces. Ranks read different parts of the shards, and so do workers. The order of batches is the
    same for any number of workers. All ranks have the same number of batches.

    `state_dict` and `load_state_dict` resume exactly, under a StatefulDataLoader, which calls them, and in a plain
    loop. A pass raises `ShardError` for damaged shards.

    Args:
        client: The connection settings, from `make_client`.
        bucket: The name of the bucket.
        folder: The folder in it.
        seed: The seed of the order.
        shuffle: Whether each pass has a new order; otherwise all have the order of the shards.
        rank: The number of this rank, from 0. Give both ``rank`` and ``world_size``, or neither: then they are
            detected.
        world_size: The number of ranks.
        last_batch_policy: How an epoch ends; see `loader.Source`. By default "PARTIAL", each sample once, on one rank.
            On several ranks "FILL", so that they have the same number of batches: it repeats `repeats` samples, less
            than one batch on each rank. Use "PARTIAL" for evaluation.
        mix: Samples that each stream shuffles; see `loader.ShardSource`.
        streams: Parts that a rank reads in parallel.
        memory_budget: Bytes that may be read ahead and in flight.
        timeout: Seconds after which a failing request is not repeated any more.
        max_in_flight: Requests at the same time.
        cache: A folder on a local disk in which pieces are kept.
        cache_bytes: The most bytes that the cache may hold.

    Raises:
        OptionError: An option is out of its range.
        SplitError: There are no shards in the folder.
        AccessError: The store refuses access.
        UnreachableError: The store does not answer.
    """

    def __init__(
        self,
        client: Client,
        bucket: str,
        folder: str = "",
        *,
        seed: int = 0,
        shuffle: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        last_batch_policy: LastBatchPolicy | None = None,
        mix: int | None = None,
        streams: int = 12,
        memory_budget: int = 400_000_000,
        timeout: float = TIMEOUT_SECONDS,
        max_in_flight: int = 64,
        cache: str | os.PathLike[str] | None = None,
        cache_bytes: int = 100_000_000_000,
    ) -> None:
        if not isinstance(client, Client):
            raise OptionError(f"Wanted a client from loader.shards.make_client. Found: {client!r}")
        is_alone = ranks(rank, world_size)[1] == 1
        self._source = SampleSource(
            shards_in(client, bucket, folder),
            batch_size=1,
            rank=rank,
            world_size=world_size,
            seed=seed,
            shuffle=shuffle,
            last_batch_policy=last_batch_policy or ("PARTIAL" if is_alone else "FILL"),
            mix=mix,
            streams=streams,
            memory_budget=memory_budget,
            timeout=timeout,
            max_in_flight=max_in_flight,
            cache=cache,
            cache_bytes=cache_bytes,
        )
        self._policy = self._source.last_batch_policy
        self._passes = passes_of(self._source)
        self._transforms: tuple[Transform, ...] = ()
        self._collate: Collate | None = None
        self._partial = True
        self._most: int | None = None  # samples of a pass on this rank
        self._batch_transforms: tuple[Transform, ...] = ()

    def __repr__(self) -> str:
        source = self._source
        batched = f".batched({source.batch_size})" if self._collate is not None else ""
        batched += "" if self._most is None else f", {len(self)} of {len(source)} a pass"
        return f"RemoteDataset({source.split!r}, rank={source.rank}, world_size={source.world_size}){batched}"

    def __len__(self) -> int:
        """The batches of a pass on this rank, over all workers; without `batched`, the samples."""
        return len(self._source) if self._last is None else min(len(self._source), self._last)

    @property
    def repeats(self) -> int:
        """The samples that a pass repeats on this rank, at the end of its last batch; 0 unless the policy is "FILL"."""
        whole, taken = self._source.samples, len(self) * self._source.batch_size
        left_out = 0 if self._most is None else max(0, whole - min(self._most, taken))
        return max(0, self._source.repeats - left_out)

    @property
    def classes(self) -> list[str]:
        """The names of the classes by their numbers; the number itself where a name is not known."""
        split = self._source.split
        return [split.class_names.get(label, str(label)) for label in range(split.num_classes)]

    def decode(self, *handlers: Any, **options: Any) -> Self:
        """Decode files by their extensions; files of other types stay bytes.

        ``cls``, ``index`` and ``id`` become numbers, ``txt`` text, ``json`` objects, ``npy`` arrays. Images are decoded
        if you name their type: ``"pil"``, ``"rgb8"``, ``"torchrgb"``, ... as in webdataset. They have the pixels that
        all adapters give: upright by EXIF, 16 bits scaled to 8. Unlike webdataset, this never unpickles or unzips: for
        other types, give your own functions.

        Args:
            *handlers: Image types, and functions of ``.extension`` and bytes; such a function returns None for a file
                that it does not decode.
            **options: ``handler``, ``only``, ``partial``, ``pre`` and ``post``, as in webdataset; and
                ``orientation="stored"`` for images that are not turned.

        Returns:
            A dataset of decoded samples.

        Raises:
            OptionError: A name is not an image type.
            DecodeError: In a pass, for a damaged file. The message names file, sample and shard.
        """
        return self._with(Decoding(*handlers, **options))

    def to_tuple(self, *names: str, **options: Any) -> Self:
        """Make tuples of samples' files.

        Args:
            *names: Extensions; ``"jpg;png"`` is the first of these that a sample has.
            **options: As in webdataset.

        Returns:
            A dataset of tuples.
        """
        return self._with(filters.to_tuple(*names, **options))

    def map(self, function: Callable[[Any], Any]) -> Self:
        """Apply a function to each sample, or to each batch after `batched`."""
        return self._with(filters.map(function))

    def map_tuple(self, *functions: Callable[[Any], Any]) -> Self:
        """Apply one function to each element of a tuple."""
        return self._with(filters.map_tuple(*functions))

    def map_dict(self, **functions: Callable[[Any], Any]) -> Self:
        """Apply functions to some values of each sample, by their names."""
        return self._with(filters.map_dict(**functions))

    def rename(self, **names: str) -> Self:
        """Rename values: ``image="jpg;png"``."""
        return self._with(filters.rename(**names))

    def rename_keys(self, *names: Any, **options: Any) -> Self:
        """Rename files by patterns of their extensions.

        Args:
            *names: As in webdataset.
            **options: As in webdataset.

        Returns:
            A dataset with the new names.
        """
        return self._with(filters.rename_keys(*names, **options))

    def extract_keys(self, *patterns: str, **options: Any) -> Self:
        """Make tuples of samples' files by patterns of their extensions.

        Args:
            *patterns: As in webdataset.
            **options: As in webdataset.

        Returns:
            A dataset of tuples.
        """
        return self._with(filters.extract_keys(*patterns, **options))

    def xdecode(self, *decoders: Any, **options: Any) -> Self:
        """Decode files with your own functions by patterns of their extensions.

        ``*.bin`` and ``*.txt`` have defaults. Unlike in webdataset, pickles have none.

        Args:
            *decoders: As in webdataset.
            **options: As in webdataset.

        Returns:
            A dataset of decoded samples.
        """
        return self._with(filters.xdecode(*decoders, **{"defaults": SAFE_STREAM_DECODERS, **options}))

    def batched(
        self, batch_size: int, collation_fn: Collate | None = filters.default_collation_fn, partial: bool = True
    ) -> Self:
        """Make batches, as webdataset does: by default tensors and arrays are stacked, and numbers become an array.

        Args:
            batch_size: Samples of a batch.
            collation_fn: Makes a batch of a list of samples; None leaves the list.
            partial: Whether the last batch of an epoch may be smaller. False leaves it out on all ranks, as
                ``last_batch_policy="DROP"`` does. With "FILL" all batches are full anyway.

        Returns:
            A dataset of batches that starts with the first epoch.

        Raises:
            OptionError: This is a dataset of batches already.
        """
        if self._collate is not None:
            raise OptionError("Wanted samples to be batched. Found: batches. Call batched() once.")
        check_bools(partial=partial)
        policy = self._source.last_batch_policy
        made = self._copied(
            batch_size=check_int("batch_size", batch_size, 1),
            last_batch_policy=policy if partial or policy == "FILL" else "DROP",
        )
        made._collate, made._partial = list if collation_fn is None else collation_fn, partial
        return made

    def listed(self, batch_size: int, partial: bool = True) -> Self:
        """Make lists of samples: `batched` without a ``collation_fn``.

        Args:
            batch_size: Samples of a list.
            partial: Whether the last list of an epoch may be shorter.

        Returns:
            A dataset of lists.
        """
        return self.batched(batch_size, None, partial)

    def unbatched(self) -> Self:
        """Undo `batched`: a dataset of single samples again, in the order that they have without batches.

        Raises `OptionError` if there are no batches, or functions were applied to them.
        """
        if self._collate is None or self._batch_transforms:
            found = "single samples" if self._collate is None else "functions of batches"
            raise OptionError(
                f"Wanted unbatched() directly after batched(). Found: {found}. Apply functions to samples, before "
                "batched(), or take batches apart in your loop."
            )
        made = self._copied(batch_size=1, last_batch_policy=self._policy)
        made._collate, made._partial = None, True
        return made

    unlisted = unbatched

    def slice(self, stop: int, *more: Any) -> Self:
        """End each pass early; the next pass is a new epoch.

        Length and states stay exact. The samples are those that a full pass begins with, for any number of workers.

        Args:
            stop: Samples of this rank, or batches after `batched`, of a pass.
            *more: Refused: ranks and workers have no common order for a start and a step.

        Returns:
            A dataset with shorter passes.

        Raises:
            OptionError: There is more than one argument.
        """
        if more:
            raise OptionError(
                f"Wanted slice(stop). Found: {1 + len(more)} arguments. Use a start and a step in your loop: "
                "itertools.islice(dataset, start, stop, step)."
            )
        made = self._copied()
        most = check_int("stop", stop, 0) * self._source.batch_size
        made._most = most if self._most is None else min(most, self._most)
        return made

    def shuffle(self, size: int, **_: Any) -> Self:
        """Raise `OptionError`, because each pass has a new order anyway.

        Args:
            size: The size of a buffer; 0 is allowed and does nothing.

        Returns:
            This dataset, for size 0.
        """
        if size < 1:
            return self
        raise OptionError(
            f"Wanted a chain without shuffle(). Found: shuffle({size}). Each pass has a new order of all samples "
            "already: leave it out. RemoteDataset(..., seed=) chooses the order, mix= says how many samples are mixed "
            "at a time, shuffle=False keeps the order of the shards."
        )

    select = _refused("select", _LEAVES_OUT.format(options="--where"))
    rsample = _refused("rsample", _LEAVES_OUT.format(options="--limit or --per-class"))
    with_epoch = _refused(
        "with_epoch",
        "Each pass is one epoch, and ranks have as many batches: leave it out. slice(n) ends each pass after n.",
    )
    repeat = _refused("repeat", "Each pass is the next epoch: use `for epoch in range(n): for batch in dataset: ...`.")
    with_length = _refused("with_length", "len(dataset) is exact: leave it out.")
    mcached = _refused("mcached", "Use RemoteDataset(..., cache=FOLDER) to keep shards on a local disk.")
    lmdb_cached = _refused("lmdb_cached", "Use RemoteDataset(..., cache=FOLDER) to keep shards on a local disk.")
    compose = _refused("compose", "Use map(function), which gets one sample at a time.")
    log_keys = _refused("log_keys", "Use map(function) with a function that logs sample['__key__'].")

    def set_epoch(self, epoch: int, /) -> None:
        """Make the next pass this epoch. Later passes count from it."""
        check_not_prepared(self._source.rank, self._source.world_size)
        self._passes.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The position of this process: in a loop, after the last batch taken. A StatefulDataLoader calls it."""
        return self._passes.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Continue the next pass from a state; that of a loop also with another batch size or number of ranks.

        Raises `StateError` for a state of other shards or another order.
        """
        if not isinstance(state, Mapping):
            raise StateError(f"Wanted a state from state_dict(). Found: {state!r}")
        try:
            self._passes.load_state_dict(state)
        except StateError:
            if state.get("workers") != 1:
                raise
            self._passes.load_state_dict(state_of_the_source(state))

    def __iter__(self) -> Iterator[Any]:
        batches: Iterator[Any] = map(self._made, self._passes if self._last is None else self._sliced(self._last))
        for transform in self._batch_transforms:
            batches = transform(batches)
        return batches

    @property
    def _last(self) -> int | None:
        """The number of batches of a pass that ends early; None for full passes."""
        if self._most is None:
            return None
        whole, rest = divmod(self._most, self._source.batch_size)
        return whole + (rest > 0 and self._partial and self._source.last_batch_policy != "DROP")

    def _sliced(self, last: int) -> Iterator[Batch]:
        if not last:
            return
        for batch in self._passes:
            if batch.step < last:
                yield batch
            if batch.step >= last - 1:  # also in a worker that does not read the last one
                self._passes.end_pass()
                self._source.note(batch.epoch + 1)
                return

    def _with(self, transform: Transform) -> Self:
        made = self._copied()
        if self._collate is None:
            made._transforms = (*self._transforms, transform)
        else:
            made._batch_transforms = (*self._batch_transforms, transform)
        return made

    def _copied(self, **changes: Any) -> Self:
        made = copy.copy(self)
        made._source = self._source.again(**changes)  # or the passes of one would count in the other
        made._passes = passes_of(made._source)
        return made

    def _made(self, batch: SampleBatch) -> Any:
        most = None if self._most is None else self._most - batch.step * self._source.batch_size
        wanted = batch.samples[:most]
        samples: Iterator[Any] = iter(wanted)
        for transform in self._transforms:
            samples = transform(samples)
        found = list(samples)
        if len(found) != len(wanted):
            raise OptionError(
                f"Wanted functions that return one sample for each. Found: {len(found)} of {len(wanted)}; a handler, "
                "or a map() that returns None, would give ranks different numbers of batches"
            )
        return found[0] if self._collate is None else self._collate(found)
