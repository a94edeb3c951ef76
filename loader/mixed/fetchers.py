"""What reads the images of a split, whatever kind it is."""

from collections.abc import Callable
from functools import partial

from loader.cassandra.clients import readers_of
from loader.cassandra.cluster import Cluster, ClusterOptions, cluster_of, names_given
from loader.errors import OptionError
from loader.folder.files import FileFetcher
from loader.folder.folders import Folder
from loader.mixed.mixture import MixedFetcher, Mixture
from loader.prefetch.fetcher import Fetcher
from loader.splits import Split


def fetchers_of(
    split: Split, cluster: Cluster | None, where: ClusterOptions
) -> tuple[Callable[[], Fetcher], Cluster | None]:
    """A function that makes a fetcher, one for each process, and the Cassandra that it reads; None if there are only
    class folders. Raises `OptionError` for a cluster that would not be used, and `SplitError`.
    """
    if unknown := sorted({*where} - {*ClusterOptions.__annotations__}):
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}")
    parts = list(split.parts.values()) if isinstance(split, Mixture) else [split]
    if all(isinstance(part, Folder) for part in parts):
        if named := names_given(cluster, where):
            raise OptionError(f"Wanted no {named[0]}: the images are read from {split.address}. Found: one")
        made = None
    else:
        made = cluster_of(cluster, where)
    makers = [_fetcher(part, made) for part in parts]
    return partial(MixedFetcher, makers, split.starts) if isinstance(split, Mixture) else makers[0], made


def _fetcher(part: Split, cluster: Cluster | None) -> Callable[[], Fetcher]:
    if isinstance(part, Folder):
        return partial(FileFetcher, part)
    assert cluster is not None
    return readers_of(part, cluster)
