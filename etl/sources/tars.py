"""Listing of tars: one archive, or a tar of tars like ImageNet's training images.

Executors read the headers and skip the contents; nothing is extracted. Of several members with the same name, the last
counts, as in tar. Members that cannot be used are listed with the reason.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from etl.errors import SourceError
from etl.secrets import driver_storage, executor_storage
from etl.sources.archives import is_compressed, open_archive, place_of
from etl.sources.entries import ENTRIES, Entry, Listing, entry_batches, text
from etl.sources.plan import SourcePlan
from etl.sources.tar_members import TWICE, Archive, Member, NotATarError, members
from etl.workers import map_items
from formats.image_names import HIDDEN, OUTSIDE, left_out
from formats.stores.storage import Storage
from schemas import image_id

_TAR = b".tar"


def is_tar_of_tars(address: str, *, root: bytes = b"", storage_at: Callable[[str], Storage] = Storage) -> bool:
    """Whether the first file in an archive, below ``root``, is a tar. Raises `SourceError` if there is no archive."""
    with open_archive(place_of(address), storage_at) as archive:
        found = _checked(archive, place_of(address))
        first = next((one for one in found if not root or plain(one.name).startswith(root + b"/")), None)
    return first is not None and first.name.lower().endswith(_TAR)


def list_tar(spark: SparkSession, plan: SourcePlan, *, dataset: str) -> Listing:
    """List the files in a ``.tar``, ``.tar.gz`` or ``.tgz`` in one task, in the order of the archive: those below root
    and splits, if given, with names relative to these. Executors list several tars of a tar at once. Raises
    `SourceError` if there is no tar, or if two inner archives of a split have the same stem.
    """
    place, storage_at = place_of(plan.address), partial(driver_storage, spark)
    if not is_tar_of_tars(plan.address, root=os.fsencode(plan.root), storage_at=storage_at):
        list_batches = partial(_list_batches, plan=plan, dataset=dataset)
        entries = map_items(spark, [place], task=list_batches, schema=ENTRIES)
        return Listing(entries=entries, access="stream" if is_compressed(place) else "random")
    if is_compressed(place):
        raise SourceError(f"Wanted an uncompressed tar of tars. Found: {text(place)}. Decompress it first.")
    with open_archive(place, storage_at) as archive:
        inside = _split_up(_checked(archive, place), plan, place)
        found = {(split, plain(member.name)): (split, member) for split, member in inside}
    stems: dict[tuple[bytes, bytes], bytes] = {}
    for split, name in found:
        if name.lower().endswith(_TAR) and stems.setdefault((split, _stem(name)), name) != name:
            raise SourceError(
                f"Wanted inner archives with different names in {text(place)}. "
                f"Found: {text(stems[split, _stem(name)])} and {text(name)}. "
                "If their folders are splits, set --split-subdir."
            )
    list_batches = partial(_list_inner_batches, place=place, dataset=dataset)
    classes = frozenset(text(stem) for _, stem in stems)
    entries = map_items(spark, list(found.values()), task=list_batches, schema=ENTRIES)
    return Listing(entries=entries, classes=classes, has_archives=True)


def _list_batches(places: Iterable[bytes], *, plan: SourcePlan, dataset: str) -> Iterator[pa.RecordBatch]:
    """Run the task: it takes a place and yields rows of `ENTRIES`."""
    for place in places:
        with open_archive(place, executor_storage) as archive:
            found = _split_up(_checked(archive, place), plan, place)
            yield from once(_entries(found, place, dataset, plan.by_folder), dataset=dataset)


def _checked(archive: Archive, place: bytes) -> Iterator[Member]:
    try:
        yield from members(archive)
    except NotATarError as error:
        raise SourceError(f"Wanted a tar at {text(place)}. Found: {archive.fault or error}.") from None


def unsafe(name: bytes) -> str | None:
    """The reason why the name of a member is unsafe, if it is."""
    if name.startswith(b"/"):
        return "unsafe name: it begins at the root"
    if b".." in name.split(b"/"):
        return "unsafe name: it leads out of its folder"
    if not name or b"\0" in name:
        return "unsafe name: not a file name"
    return None


def plain(name: bytes) -> bytes:
    """The name of a member without the leading ``./`` that many archives have."""
    while name.startswith(b"./"):
        name = name[2:].lstrip(b"/")
    return name


def _split_up(found: Iterable[Member], plan: SourcePlan, place: bytes) -> Iterator[tuple[bytes, Member]]:
    """Members with their splits and paths, without members outside of the chosen folders. Raises `SourceError` after
    the last member if a folder has none, unless the archive is truncated.
    """
    root, or_split = os.fsencode(plan.root), plan.or_split.encode()
    folders = {(root + b"/" + split if root else split): split for split in plan.split_names}
    folders = folders or ({root: or_split} if root else {})
    starts = [(folder + b"/", split) for folder, split in folders.items()]
    missing, others, whole = set(folders), set[bytes](), True
    depth = 1 + max((folder.count(b"/") for folder in folders), default=0)
    for member in found:
        name, wrong = plain(member.name), unsafe(member.name)
        at_fault = member.reason is not None and member.reason.startswith(("truncated", "damaged", "unread"))
        whole = whole and not at_fault
        if wrong:
            yield or_split, member._replace(reason=wrong)
        elif not folders:
            yield or_split, member._replace(name=name)
        elif one := next((one for one in starts if name.startswith(one[0]) and name != one[0]), None):
            missing.discard(one[0][:-1])
            yield one[1], member._replace(name=name[len(one[0]) :])
        elif at_fault:  # missing members may be after the damage
            yield or_split, member._replace(name=name)
        elif len(others) < 5:
            others.add(b"/".join(name.split(b"/")[:depth]))
    if missing and whole:
        there = ", ".join(map(text, sorted(others))) or "nothing else"
        raise SourceError(f"Wanted files below {text(min(missing))}/ in {text(place)}. Found: none, but {there}.")


def _entries(found: Iterable[tuple[bytes, Member]], place: bytes, dataset: str, by_folder: bool) -> Iterator[Entry]:
    labels: dict[bytes, str] = {}
    for or_split, (path, offset, size, reason, _) in found:
        folder, slash, _ = path.partition(b"/")
        label = None
        reason = reason or left_out(path, by_extension=False)
        if slash and reason != HIDDEN and (reason is None or not reason.startswith("unsafe")):
            label = labels.get(folder) or labels.setdefault(folder, text(folder))
        if by_folder and label is None:
            reason = reason or OUTSIDE
        id = image_id(dataset, or_split, path).bytes
        yield Entry(id, or_split, path, label, None, place, offset, size, reason=reason)
    if by_folder and len(set(labels.values())) < len(labels):
        names = sorted(folder for folder in labels if list(labels.values()).count(labels[folder]) > 1)
        raise SourceError(f"Wanted class folders whose names differ as text in {text(place)}. Found: {names}")


def once(entries: Iterator[Entry], *, dataset: str) -> Iterator[pa.RecordBatch]:
    """The batches of all entries of an archive: the last one of each id, and the others by a name with their offset."""
    batches = list(entry_batches(entries))  # as Arrow a million of them take 200 MB
    if not batches:
        return
    ids = np.concatenate([np.frombuffer(b"".join(batch.column("id").to_pylist()), ">u8") for batch in batches])
    high, low = ids[0::2], ids[1::2]
    order = np.lexsort((low, high))  # stable: equal ids keep their order
    last = np.append((high[order][1:] != high[order][:-1]) | (low[order][1:] != low[order][:-1]), True)
    kept = np.empty(len(order), dtype=bool)
    kept[order] = last
    at = 0
    for batch in batches:
        mask = pa.array(kept[at : at + batch.num_rows])
        yield batch.filter(mask)
        yield from entry_batches(
            superseded(Entry(*row.values()), dataset=dataset) for row in batch.filter(pc.invert(mask)).to_pylist()
        )
        at += batch.num_rows


def superseded(entry: Entry, *, dataset: str) -> Entry:
    """The entry of a member whose name a later member has."""
    path = entry.path + b"@%d" % (entry.offset or 0)
    return entry._replace(id=image_id(dataset, entry.or_split, path).bytes, path=path, reason=TWICE)


def _stem(name: bytes) -> bytes:
    return os.path.basename(name)[: -len(_TAR)]


def _list_inner_batches(
    outer: Iterable[tuple[bytes, Member]], *, place: bytes, dataset: str
) -> Iterator[pa.RecordBatch]:
    """Run the task: it takes splits and members of the outer archive and yields rows of `ENTRIES`."""
    with open_archive(place, executor_storage) as archive:
        for or_split, member in outer:
            yield from once(_inner_entries(archive, member, place, dataset, or_split), dataset=dataset)


def _inner_entries(archive: Archive, outer: Member, place: bytes, dataset: str, or_split: bytes) -> Iterator[Entry]:
    def entry(path: bytes, member: Member, reason: str | None, label: str | None = None) -> Entry:
        id = image_id(dataset, or_split, path).bytes
        return Entry(id, or_split, path, label, None, place, member.offset, member.size, reason=reason)

    name, whole = plain(outer.name), outer.reason is None
    if wrong := unsafe(outer.name):
        yield entry(outer.name, outer, wrong)
    elif not name.lower().endswith(_TAR) or not (whole or (outer.reason or "").startswith("truncated")):
        yield entry(name, outer, outer.reason or "not a tar: a file among the inner archives")
    else:
        stem = _stem(name)
        try:
            for member in members(archive, start=outer.offset, end=outer.offset + outer.size):
                wrong = unsafe(member.name)
                path = stem + b"/" + (member.name if wrong else plain(member.name))
                whole = whole or (member.reason is not None and member.reason.startswith("truncated"))
                reason = wrong or member.reason or left_out(plain(member.name), by_extension=False)
                yield entry(path, member, reason, text(stem))
        except NotATarError as error:
            yield entry(name, outer, f"not a tar: {error}")
            return
        if not whole:  # truncated between two members, which nothing else shows
            yield entry(name, outer, outer.reason)
