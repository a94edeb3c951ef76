"""Croissant 1.1 descriptions of splits, shards and class folders: JSON-LD that catalogues and loaders read.

The format is specified at https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html. Each description has the
data's name, version and fingerprint, its files (with SHA-256 where it is known), and its record sets: the samples, and
the classes and splits that they refer to. Licence, creator and citation are left out, because no manifest knows them.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from formats.stores.storage import Storage
from schemas import SplitManifest
from schemas.shards import ShardManifest

log = logging.getLogger(__name__)

SPLIT_NAME, SHARDS_NAME = "_croissant.json", "croissant.json"  # the file in a split folder, and in a folder of shards

MEDIA_TYPE = "application/ld+json"

_IMAGES = {
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "png": "image/png",
    "bmp": "image/bmp",
    "gif": "image/gif",
    "webp": "image/webp",
    "tif": "image/tiff",
    "tiff": "image/tiff",
}
_SHARD_IMAGES = _IMAGES | {"jp2": "image/jp2", "ppm": "image/x-portable-pixmap"}
_TERMS = """
    arrayShape citeAs column containedIn equivalentProperty extract field fileObject fileProperty fileSet format
    includes isArray isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated replace
    samplingRate separator source subField transform
"""
_CONTEXT = {
    **{name: f"cr:{name}" for name in _TERMS.split()},
    "@language": "en",
    "@vocab": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
}

Node = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A version that a dataset service serves: its tar or file, and the address of each file in it. ``files`` ends with
    ``/``; ``query`` is appended to the address of a file. ``folder`` is the folder in the tar that holds the manifest:
    empty, or ending with ``/``. ``text`` is what people wrote about the dataset.
    """

    url: str
    version: int
    filename: str
    media_type: str
    bytes: int
    sha256: str
    created: str
    files: str
    query: str
    folder: str = ""
    text: str = ""


def split_croissant(manifest: SplitManifest, *, name: str, served: Served | None = None) -> Node:
    """Describe a split folder as JSON-LD. Without a service, paths are relative to the description."""
    folder = "" if served is None else served.folder
    files = [folder + file.path for part in manifest.splits for file in part.files]
    classes = _classes(manifest)
    image = _source("parquet", column="id")
    number = _source("parquet", r"(?:.*/)?split=([0-9]+)/.*", fileProperty="fullpath")
    fields = [
        _field("samples/id", "sc:Text", "The image's id: the 16 big-endian bytes of its UUID.", image),
        _field("samples/split", "sc:Text", "The number of the split.", number, references="splits/name"),
    ]
    if manifest.has_position:
        place = _source("parquet", column="position")
        fields.insert(1, _field("samples/position", "sc:Integer", "The sample's place in its split, from 0.", place))
    if classes:
        label = _source("parquet", column="label")
        of_class = _field("samples/label", "sc:Integer", "The number of the class.", label, references="classes/label")
        fields.insert(1, of_class)
    parquet = _file_set("parquet", ["application/x-parquet"], files, inside=None if served is None else ["archive"])
    rows = sum(part.rows for part in manifest.splits)
    return _dataset(
        name,
        f"{rows:,} images of {manifest.metadata_table}, assigned to {len(manifest.splits)} splits. "
        f"The images are in {manifest.data_table}, under their ids.",
        created=manifest.created,
        served=served,
        identifiers={f"fingerprint of split {part.index}": part.fingerprint for part in manifest.splits},
        distribution=[*_archive(served), *([parquet] if files else [])],
        record_sets=[
            _names("splits", "cr:Split", [str(part.index) for part in manifest.splits]),
            *classes,
            *([_record_set("samples", "The images of all splits.", fields)] if files else []),
        ],
    )


def shards_croissant(manifest: ShardManifest, *, name: str, served: Served | None = None) -> Node:
    """Describe a folder of WebDataset shards as JSON-LD. The images, class numbers and JSON files of samples are a
    record set each, with the sample's number as ``position``. Without a service, paths are relative to the description.
    """

    def place(name: str) -> str:
        return name if served is None else f"{served.files}{quote(served.folder + name)}{served.query}"

    shards = [
        _file_object(one.name, one.name, place(one.name), one.bytes, "application/x-tar", one.sha256)
        for one in manifest.shards
    ]
    names = [shard.name for shard in manifest.shards]
    kinds = sorted(set(_SHARD_IMAGES.values()))
    # The key of a sample ends with a digit: "*[0-9].png" leaves out masks, which are called KEY.seg.png.
    sets = [_file_set("images-files", kinds, [f"*[0-9].{one}" for one in _SHARD_IMAGES], inside=names)]
    records = [_members("images", "sc:ImageObject", "image", "The image.")]
    if manifest.label_type == "int":
        sets.append(_file_set("labels-files", ["text/plain"], ["*.cls"], inside=names))
        # It has no reference to the classes: mlcroissant 1.1.1 cannot join the contents of files.
        records.append(_members("labels", "sc:Integer", "label", "The number of the class, as in `classes`."))
    sets.append(_file_set("metadata-files", ["application/json"], ["*.json"], inside=names))
    told = "JSON with the image's id, path, and where they are known split, class, group and label."
    records.append(_members("metadata", "sc:Text", "json", told))
    return _dataset(
        name,
        f"{manifest.samples:,} images of {manifest.source} in {len(names):,} WebDataset shards.",
        created=manifest.created,
        served=served,
        identifiers={"fingerprint": manifest.fingerprint, "source fingerprint": manifest.source_fingerprint},
        distribution=[*shards, *(sets if names else [])],
        record_sets=[*_classes(manifest), *(records if names else [])],
    )


def folders_croissant(*, name: str, served: Served, images: int, classes: Sequence[str], splits: Sequence[str]) -> Node:
    """Describe class folders (``train/cat/1.jpg``, ``cat/1.jpg``) or images in one folder, which a service serves, as
    JSON-LD. ``classes`` is empty if images have none, or if not all names are known; ``splits`` are the folders above
    the classes.
    """
    patterns = [f"*.{''.join(f'[{one}{one.upper()}]' for one in ending)}" for ending in _IMAGES]
    fields = [_field("samples/image", "sc:ImageObject", "The image.", _source("image-files", fileProperty="content"))]
    # Labels and splits have no references: mlcroissant 1.1.1 would read one of two fields of a path from the other.
    if classes:
        source = _source("image-files", r"(?:.*/)?([^/]+)/[^/]+", fileProperty="fullpath")
        fields.append(_field("samples/label", "sc:Text", "The name of the class, as in `classes`.", source))
    if classes and splits:
        source = _source("image-files", r"(?:.*/)?([^/]+)/[^/]+/[^/]+", fileProperty="fullpath")
        fields.append(_field("samples/split", "sc:Text", "The name of the split, as in `splits`.", source))
    return _dataset(
        name,
        f"{images:,} images in a folder.",
        created=served.created,
        served=served,
        identifiers={},
        distribution=[
            *_archive(served),
            _file_set("image-files", sorted(set(_IMAGES.values())), patterns, inside=["archive"]),
        ],
        record_sets=[
            *([_names("splits", "cr:Split", splits)] if classes and splits else []),
            *([_names("classes", "sc:Enumeration", classes)] if classes else []),
            _record_set("samples", "The images.", fields),
        ],
    )


def file_croissant(*, name: str, served: Served) -> Node:
    """Describe a file, or a folder without images and manifests, which a service serves: no records are known."""
    text = f"The file {served.filename}."
    return _dataset(
        name, text, created=served.created, served=served, identifiers={}, distribution=_archive(served), record_sets=[]
    )


def write(storage: Storage, file: str, node: Node) -> None:
    """Write a description into a folder. A failure is a warning in the log."""
    try:
        storage.write_bytes(file, text_of(node).encode(), durable=True)
    except OSError as error:  # the data are complete without it
        log.warning("Cannot write %s/%s: %s. The data are complete without it.", storage.address, file, error)


def text_of(node: Node) -> str:
    """Return a description as indented JSON text."""
    return json.dumps(node, indent=2, ensure_ascii=False) + "\n"


def _dataset(
    name: str,
    description: str,
    *,
    created: str,
    served: Served | None,
    identifiers: Mapping[str, str],
    distribution: list[Node],
    record_sets: list[Node],
) -> Node:
    found: Node = {
        "@context": dict(sorted(_CONTEXT.items())),
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": name,
        "description": description,
        "datePublished": created,
    }
    if served is not None:
        found |= {"url": served.url, "version": f"{served.version}.0.0"}
        found["description"] = f"{served.text}\n\n{description}".lstrip()
    found["identifier"] = [{"@type": "PropertyValue", "propertyID": k, "value": v} for k, v in identifiers.items()]
    return {key: value for key, value in found.items() if value} | {
        "distribution": distribution,
        "recordSet": record_sets,
    }


def _archive(served: Served | None) -> list[Node]:
    if served is None:
        return []
    return [_file_object("archive", served.filename, served.url, served.bytes, served.media_type, served.sha256)]


def _file_object(id: str, name: str, url: str, bytes: int, media_type: str, sha256: str) -> Node:
    return {
        "@type": "cr:FileObject",
        "@id": id,
        "name": name,
        "contentUrl": url,
        "contentSize": f"{bytes} B",
        "encodingFormat": media_type,
        "sha256": sha256,
    }


def _file_set(name: str, kinds: Sequence[str], patterns: Iterable[str], *, inside: Sequence[str] | None) -> Node:
    found: Node = {"@type": "cr:FileSet", "@id": name, "name": name}
    if inside is not None:
        found["containedIn"] = [{"@id": one} for one in inside]
    return found | {"encodingFormat": kinds, "includes": list(patterns)}


def _record_set(name: str, description: str, fields: list[Node]) -> Node:
    return {"@type": "cr:RecordSet", "@id": name, "name": name, "description": description, "field": fields}


def _field(name: str, kind: str, description: str, source: Node | None, *, references: str | None = None) -> Node:
    found: Node = {"@type": "cr:Field", "@id": name, "name": name.rpartition("/")[2], "description": description}
    found["dataType"] = kind
    if source is not None:
        found["source"] = source
    if references is not None:
        found["references"] = {"field": {"@id": references}}
    return found


def _source(file_set: str, regex: str | None = None, /, **extract: str) -> Node:
    found: Node = {"fileSet": {"@id": file_set}, "extract": extract}
    return found if regex is None else found | {"transform": {"regex": f"^{regex}$"}}


def _members(record_set: str, kind: str, field: str, description: str) -> Node:
    name = f"{record_set}-files"
    number = _source(name, r"0*([0-9]+)\..*", fileProperty="filename")
    fields = [
        _field(f"{record_set}/position", "sc:Integer", "The number of the sample in all shards, from 0.", number),
        _field(f"{record_set}/{field}", kind, description, _source(name, fileProperty="content")),
    ]
    return _record_set(record_set, f"The {record_set} of samples.", fields)


def _classes(manifest: SplitManifest | ShardManifest) -> list[Node]:
    """The record set of class numbers and names; none if there are no class numbers."""
    counts: set[int] = set()
    if isinstance(manifest, ShardManifest):
        counts.update(manifest.counts)
    else:
        counts.update(label for part in manifest.splits for label in part.counts)
    labels = sorted(counts | set(manifest.class_names))
    if manifest.label_type != "int" or not labels:
        return []
    data = [{"classes/label": one, "classes/name": manifest.class_names.get(one, str(one))} for one in labels]
    fields = [
        _field("classes/label", "sc:Integer", "The number of the class.", None),
        _field("classes/name", "sc:Text", "The name of the class, or its number if it has no name.", None),
    ]
    enumeration = _record_set("classes", "The classes.", fields)
    return [enumeration | {"dataType": "sc:Enumeration", "key": {"@id": "classes/label"}, "data": data}]


def _names(record_set: str, kind: str, names: Sequence[str]) -> Node:
    fields = [_field(f"{record_set}/name", "sc:Text", "The name.", None)]
    found = _record_set(record_set, f"The names of {record_set}.", fields)
    key = f"{record_set}/name"
    return found | {"dataType": kind, "key": {"@id": key}, "data": [{key: name} for name in names]}
