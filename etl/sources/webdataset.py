"""Listing of WebDataset shards: tars in which consecutive members with the same key are one sample.

The key is the name up to the first dot in its last part. The rest is the kind of the member: an image (``jpg``,
``png``, ``img.webp``), its label (``cls``, or ``json`` with "label" or "cls"), an array (``npy``) or a mask
(``seg.png``, ``mask.png``). Other members are ignored; they are counted by kind, in separate rows.
"""

import glob
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain, groupby

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.errors import SourceError
from etl.secrets import driver_storage, executor_storage
from etl.sources.archives import is_compressed, is_remote, open_archive, place_of
from etl.sources.entries import ENTRIES, Entry, Listing, entry_batches, text
from etl.sources.labels.values import LabelError, bare, label_text
from etl.sources.plan import SourcePlan
from etl.sources.tar_members import CUT, TWICE, Archive, Member, NotATarError, members
from etl.sources.tars import once, plain, unsafe
from etl.workers import map_items
from formats.errors import StorageError
from formats.stores.storage import Storage
from schemas import image_id
from schemas.tables import LabelType

_TARS = (".tar", ".tar.gz", ".tgz")
_MOST = 1_000_000
_SHOWN = 10
_IMAGES = frozenset(b"jpg jpeg png webp tif tiff bmp jp2 ppm pgm".split())
_MASKS = (b"seg", b"mask")
_LABELS = frozenset([b"cls", b"cls.txt", b"json"])
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_NOT_TAKEN = "\0not taken"  # the reason in rows that count ignored members: the path is their kind, bytes their number
_MOST_KINDS = 1000
_OTHER_KINDS = "other names"


def expand(pattern: str, *, storage_at: Callable[[str], Storage] = Storage) -> list[str]:
    """List the shards of a folder, a glob in the last part (``*.tar``) or braces (``{00..46}``, ``{a,b}``), in the
    order of their names or of the braces. Raises `SourceError` if there are none.
    """
    found = [shard for one in _expand_braces(pattern) for shard in _expand_one(one, storage_at)]
    if not found:
        raise SourceError(f"Wanted shards ({', '.join(_TARS)}) in {_shown(pattern)}. Found: none.")
    return list(dict.fromkeys(found))


def _expand_braces(pattern: str) -> list[str]:
    """Expand braces. The numbers of a range have the width of the first one."""
    at = _literal(pattern)  # such characters in the name of a file or folder that exists stand for themselves
    done = [pattern[:at]]
    for braces in _BRACES.finditer(pattern, at):
        if span := _RANGE.fullmatch(braces[1]):
            first, last = int(span[1]), int(span[2])
            if not 0 <= last - first < _MOST:
                raise SourceError(f"Wanted an ascending range of shards. Found: {braces[0]} in {_shown(pattern)}.")
            choices = [str(number).zfill(len(span[1])) for number in range(first, last + 1)]
        elif "," in braces[1]:
            choices = braces[1].split(",")
        else:
            choices = [braces[0]]
        if len(done) * len(choices) > _MOST:
            raise SourceError(f"Wanted at most {_MOST:,} shards. Found: more, in {_shown(pattern)}.")
        done = [before + pattern[at : braces.start()] + choice for before in done for choice in choices]
        at = braces.end()
    return [before + pattern[at:] for before in done]


def _literal(pattern: str) -> int:
    """The length of the start of a pattern that is the name of a local file or folder."""
    if is_remote(os.fsencode(pattern)):
        return 0
    if os.path.exists(pattern):
        return len(pattern)
    folder, slash, _ = pattern.rpartition("/")
    return len(folder + slash) if os.path.isdir(folder) else 0


def _expand_one(address: str, storage_at: Callable[[str], Storage]) -> list[str]:
    remote = is_remote(os.fsencode(address))
    folder, slash, last = address.rstrip("/").rpartition("/")
    if remote:
        if glob.has_magic(last):
            names = _names(storage_at, folder)
            return [folder + slash + name for name in names if name == last or fnmatchcase(name, last)]
        if last.lower().endswith(_TARS):
            return [address]
        here = address.rstrip("/")
        return [f"{here}/{name}" for name in _names(storage_at, here) if name.lower().endswith(_TARS)]
    if os.path.isdir(address):
        return [os.path.join(address, name) for name in sorted(os.listdir(address)) if name.lower().endswith(_TARS)]
    if glob.has_magic(address) and not os.path.exists(address):
        return sorted(glob.glob(glob.escape(folder) + slash + last if os.path.isdir(folder) else address))
    return [address]


def _names(storage_at: Callable[[str], Storage], folder: str) -> list[str]:
    try:
        return storage_at(folder).names()
    except StorageError as error:
        raise SourceError(str(error)) from None
    except OSError as error:
        raise SourceError(f"Wanted to list shards in {_shown(folder)}. Found: {error.strerror or error}") from None


def _shown(address: str) -> str:
    return text(os.fsencode(address))


def list_shards(
    spark: SparkSession,
    plan: SourcePlan,
    *,
    dataset: str,
    keep: Callable[[DataFrame], DataFrame] = lambda frame: frame,
) -> Listing:
    """List the images of shards, several shards at once. A path is ``shard-stem/member``, and labels are the text of a
    sample's label member. Raises `SourceError` if local shards are missing, or if two have the same stem.
    """
    places = [place_of(address) for address in expand(plan.address, storage_at=partial(driver_storage, spark))]
    stems: dict[bytes, bytes] = {}
    for place in places:
        if stems.setdefault(_stem(place), place) != place:
            raise SourceError(
                f"Wanted shards with different names. Found: {text(stems[_stem(place)])} and {text(place)}"
            )
    missing = [place for place in places if not is_remote(place) and not os.path.isfile(place)]
    if missing:
        raise SourceError(
            f"Wanted {len(places):,} shards. Found: {len(missing):,} of them missing, first {text(missing[0])}."
        )
    list_batches = partial(_list_batches, plan=plan, dataset=dataset)
    # kept: both images and ignored members are taken from it
    listed = keep(map_items(spark, list(stems.values()), task=list_batches, schema=ENTRIES))
    is_image = ~F.col("reason").eqNullSafe(F.lit(_NOT_TAKEN))
    others = listed.where(~is_image).select(F.col("path").cast("string").alias("kind"), F.col("bytes").alias("files"))
    return Listing(
        entries=listed.where(is_image),
        access="stream" if any(map(is_compressed, places)) else "random",
        not_taken=others,
    )


def describe_not_taken(others: DataFrame) -> str | None:
    """One line about ignored members, the most frequent kinds first, or None. Runs Spark."""
    total = F.sum("files").alias("files")
    kinds = others.groupBy("kind").agg(total).orderBy(F.desc("files"), "kind").collect()
    if not kinds:
        return None
    shown = ", ".join(f"{row.files:,} {row.kind}" for row in kinds[:_SHOWN])
    more = f", and {len(kinds) - _SHOWN:,} more kinds" if len(kinds) > _SHOWN else ""
    return f"{sum(row.files for row in kinds):,} files of samples are ignored: {shown}{more}"


def _stem(place: bytes) -> bytes:
    name = place.rpartition(b"/")[2]
    suffix = next((end for end in _TARS if name.lower().endswith(end.encode())), "")
    return name[: len(name) - len(suffix)]


def _list_batches(places: Iterable[bytes], *, plan: SourcePlan, dataset: str) -> Iterator[pa.RecordBatch]:
    """Run the task: it takes places and yields rows of `ENTRIES`, also for the ignored members of each place."""
    for place in places:
        others: Counter[str] = Counter()
        with open_archive(place, executor_storage) as archive:
            yield from once(_entries(archive, place, plan, dataset, others), dataset=dataset)
        kinds = others.most_common(_MOST_KINDS)
        rest = others.total() - sum(files for _, files in kinds)
        rows = chain(kinds, [(_OTHER_KINDS, rest)] if rest else [])
        yield from entry_batches(
            Entry(b"", b"", kind.encode("utf-8", "surrogatepass"), None, None, place, None, files, reason=_NOT_TAKEN)
            for kind, files in rows
        )


def _entries(archive: Archive, place: bytes, plan: SourcePlan, dataset: str, others: Counter[str]) -> Iterator[Entry]:
    """The entries of a shard; the members that are not taken are counted in ``others``, by kind."""
    stem, or_split = _stem(place), plan.or_split.encode()

    def entry(member: Member, reason: str | None, label: str | None = None, companion: Member | None = None) -> Entry:
        path = stem + b"/" + (member.name if unsafe(member.name) else plain(member.name))
        id = image_id(dataset, or_split, path).bytes
        found = Entry(id, or_split, path, label, None, place, member.offset, member.size, reason=reason)
        if companion is None:
            return found
        return found._replace(label_place=place, label_offset=companion.offset, label_size=companion.size)

    try:
        for _, sample in groupby(_shown_members(archive, others), key=_key):
            ignored = yield from _sample_entries(list(sample), entry, label_type=plan.label_type)
            others.update("." + text(b".".join(_parts(member))) for member in ignored)
    except NotATarError as error:
        yield entry(Member(b"@0", 0, 0), f"not a tar: {archive.fault or error}")


def _shown_members(archive: Archive, others: Counter[str]) -> Iterator[Member]:
    for member in members(archive, wanted=_is_label):
        if member.reason is None and _is_hidden(member):
            others["hidden names"] += 1
        else:
            yield member


def _sample_entries(
    sample: Sequence[Member], entry: Callable[..., Entry], *, label_type: LabelType
) -> Generator[Entry, None, list[Member]]:
    """One image with its label, and an entry with a reason for each other possible image; returns ignored members."""
    last = {member.name: member for member in sample}
    for member in sample:
        if member is not last[member.name]:
            yield entry(member._replace(name=member.name + b"@%d" % member.offset), TWICE)
    sample = list(last.values())
    images = [member for member in sample if _may_be_taken(member) and _is_image(member)]
    others = [member for member in sample if _may_be_taken(member) and not _is_image(member)]
    cut = None
    for member in sample:
        if not _may_be_taken(member):
            if images and not _is_image(member) and member.reason == CUT:
                cut = "truncated: the archive ends inside its sample"
            else:
                yield entry(member, unsafe(member.name) or member.reason)
    if images:
        arrays = [member for member in others if _parts(member)[-1] == b"npy"]
        pictures = [member for member in others if _is_mask(member)]
        companions = {"blob": pictures + arrays, "multi": arrays + pictures}.get(label_type, [])[:1]
        try:
            label, label_member = _label(others)
        except LabelError as error:
            label, label_member = None, None
            if label_type == "int":  # otherwise labels are not used
                cut = cut or f"unreadable label: {error}"
        yield entry(images[0], cut, label, next(iter(companions), None))
        for member in images[1:]:
            yield entry(member, "second image of a sample")
        return [member for member in others if member is not label_member and member not in companions]
    if len(others) == len(sample):
        yield entry(others[0], "no image in the sample")
        return others[1:]
    return []


def _key(member: Member) -> bytes:
    folder, slash, name = member.name.rpartition(b"/")
    return folder + slash + name.partition(b".")[0]


def _parts(member: Member) -> list[bytes]:
    """The lower-case parts after the first dot of the name, split at dots."""
    return member.name.rpartition(b"/")[2].partition(b".")[2].lower().split(b".")


def _is_hidden(member: Member) -> bool:
    """Whether a name does not belong to a sample: it has no key, or is metadata (``__meta__``)."""
    name = member.name.rpartition(b"/")[2]
    return name.startswith(b".") or (name.startswith(b"__") and name.endswith(b"__"))


def _may_be_taken(member: Member) -> bool:
    return member.reason is None and unsafe(member.name) is None


def _is_mask(member: Member) -> bool:
    parts = _parts(member)
    return len(parts) > 1 and parts[-1] in _IMAGES and parts[-2] in _MASKS


def _is_image(member: Member) -> bool:
    return _parts(member)[-1] in _IMAGES and not _is_mask(member)


def _is_label(name: bytes) -> bool:
    return b".".join(_parts(Member(name, 0, 0))) in _LABELS


def _label(others: Sequence[Member]) -> tuple[str | None, Member | None]:
    """The label of a sample as text, or None if there is none; and the member that has it. Raises `LabelError`."""
    found = {b".".join(_parts(member)): member for member in reversed(others) if member.body is not None}
    member = next((found[kind] for kind in (b"cls", b"cls.txt") if kind in found), None)
    label = None if member is None else label_text(member.body)
    if label and (label := bare(label)):
        return label, member
    if b"json" not in found:
        return None, None
    try:
        fields = json.loads(found[b"json"].body or b"")
    except (ValueError, RecursionError):
        return None, None
    named = [fields.get(name) for name in ("label", "cls")] if isinstance(fields, dict) else []
    single = [value for value in named if value is not None and not isinstance(value, (list, dict))]
    values = map(label_text, single or named)  # boxes may be called labels too
    label = next((stripped for value in values if value and (stripped := bare(value))), None)
    # Its other contents are not used, so it counts as ignored.
    return label, found[b"json"] if label is not None and len(fields) == 1 else None
