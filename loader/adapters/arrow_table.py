"""A split as an Arrow table, with metadata from a metadata cache or from Cassandra."""

import os
from collections.abc import Sequence
from uuid import UUID

import pyarrow as pa

from formats import FormatsError
from formats.local_node import LocalNode
from formats.splits.arrow_rows import OWN, cached_metadata, column_names, read_cache, rows_table
from loader.cassandra.access import Access
from loader.cassandra.cluster import Cluster, ClusterOptions, cluster_of, names_given
from loader.cassandra.metadata_rows import read_metadata
from loader.errors import MissingImageError, OptionError, SplitError
from loader.folder.folders import Folder
from loader.mixed.mixture import Mixture
from loader.options import check_names
from loader.shards.shard_set import Shards
from loader.splits import Split
from schemas import SchemaError


def arrow_table(
    split: Split,
    *,
    metadata: bool | Sequence[str],
    metadata_cache: str | os.PathLike[str] | None,
    cluster: Cluster | None,
    where: ClusterOptions,
) -> pa.Table:
    """What `Split.to_arrow` returns, with its options."""
    if isinstance(split, Shards):
        raise OptionError("Wanted a split that lists its images. Found: shards, whose ids are inside the shards.")
    named = names_given(cluster, where)
    table = rows_table(split.ids, split.labels, split.class_names)
    if metadata is False:
        if metadata_cache is not None or named:
            first = min([*named, *(["metadata_cache"] if metadata_cache is not None else [])])
            raise OptionError(f"Wanted metadata=True, or a list of columns, to read them. Found: only {first}")
        return table
    names = None if metadata is True else check_names("metadata", metadata)
    if isinstance(split, Mixture):
        raise OptionError("Wanted the metadata of one split. Found: a mixture. Ask its parts.")
    if isinstance(split, Folder):
        if metadata_cache is not None or named or set(names or ()) - {"path"}:
            raise OptionError("Wanted metadata=['path'] alone: class folders have no other metadata. Found: more")
        return table.append_column("path", pa.array(list(map(os.fsdecode, split.paths)), pa.string()))
    is_named = bool(named) or LocalNode.find() is not None or Access.from_environment().bundle is not None
    if (metadata_cache is None and not is_named) or (metadata_cache is not None and named):
        found = "neither" if metadata_cache is None else f"both, metadata_cache and {', '.join(named)}"
        raise OptionError(
            "Wanted metadata_cache=FOLDER, made with jobs/split.py --metadata-ofn, or hosts=[...] of Cassandra, to "
            f"read metadata from. Found: {found}"
        )
    if metadata_cache is None:
        found_columns = read_metadata(split, names, cluster_of(cluster, where))
    else:
        found_columns = _cached(split, names, metadata_cache)
    for name, column in zip(found_columns.column_names, found_columns.columns, strict=True):
        table = table.append_column(f"metadata_{name}" if name in OWN else name, column)
    return table


def _cached(split: Split, names: Sequence[str] | None, address: str | os.PathLike[str]) -> pa.Table:
    try:
        cache = read_cache(address)
        if split.metadata_table and cache.metadata_table != split.metadata_table:
            raise OptionError(
                f"Wanted a metadata cache of {split.metadata_table}, which {split!r} was made from. "
                f"Found: {address} is a cache of {cache.metadata_table}"
            )
        known = [name for name in column_names(address, cache) if name not in ("id", "label")]
        if unknown := sorted(set(names or ()) - set(known)):
            has = ", ".join(known)
            raise OptionError(f"Wanted columns of the metadata cache {address}: {has}. Found: {unknown[0]}")
        table, is_known = cached_metadata(address, cache, split.ids, known if names is None else names)
    except (FormatsError, SchemaError) as error:
        raise SplitError(str(error)) from error
    if not is_known.all():
        first = UUID(bytes=split.ids[is_known.argmin()].tobytes())
        raise MissingImageError(
            f"Wanted metadata of the {len(split):,} images of {split!r} in {address}. "
            f"Found: none of {(~is_known).sum():,} of them, the first is {first}. "
            "Make the cache again with jobs/split.py --metadata-ofn."
        )
    return table
