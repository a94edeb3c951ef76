"""The JSON bodies of requests and answers, as the OpenAPI tells them."""

from typing import Annotated, Any

from fastapi import Depends, Query
from pydantic import BaseModel, ConfigDict, Field

from imagestrata.service.errors import RequestError
from schemas.datasets import NAME_PATTERN, DatasetVersion, check_name
from schemas.errors import SchemaError

_NAME_SCHEMA = {"minLength": 1, "maxLength": 100, "pattern": NAME_PATTERN}  # told, and checked in our own words
DatasetName = Annotated[str, Field(examples=["my_dataset"], json_schema_extra=_NAME_SCHEMA)]

BINARY = {"schema": {"type": "string", "format": "binary", "minLength": 1}}
"""What the OpenAPI says of bodies that are bytes."""


def name_of(name: DatasetName) -> str:
    """A dataset's name out of an address or a body. Raises `RequestError`."""
    try:
        return check_name(name)
    except SchemaError as error:
        raise RequestError(str(error)) from None


Name = Annotated[str, Depends(name_of)]
VersionNumber = Annotated[int | None, Query(ge=1, le=10**9, description="the newest, unless it is said")]

Prefix = Annotated[str, Query(max_length=4096, description="only paths that begin so")]
Label = Annotated[str | None, Query(alias="class", max_length=255, description="only files in folders of this name")]


class Shape(BaseModel):
    """A JSON object."""

    model_config = ConfigDict(extra="forbid")


class NewDataset(Shape):
    """A dataset that is wanted."""

    name: DatasetName


class DescriptionShape(Shape):
    """What people say about a dataset, as plain text. An empty text removes it."""

    description: str = Field(max_length=10_000)


class VersionShape(Shape):
    """One version of a dataset, which never changes. `sha256` is that of the file, or of the folder's tar."""

    version: int
    kind: str
    filename: str
    bytes: int
    sha256: str
    files: int
    created: str
    by: str | None = None


class DatasetShape(Shape):
    """A dataset and its newest version. An empty one has none; `problem` says why the newest one cannot be read.

    `summary` is the first line of its description, 200 characters at most.
    """

    name: str
    location: str
    newest: VersionShape | None = None
    summary: str | None = None
    images: int | None = None
    num_classes: int | None = None
    type: str | None = None
    problem: str | None = None


class ListingShape(Shape):
    """A page of datasets by name; `next` is the cursor of the page behind it."""

    datasets: list[DatasetShape]
    next: str | None = None


class CardShape(DatasetShape):
    """All that is known of a dataset: its versions, newest first, and what is in the one that was asked for."""

    description: str = ""
    versions: list[VersionShape]
    card: dict[str, Any]


class VersionsShape(Shape):
    """The versions of a dataset, newest first, and the numbers of those that cannot be read."""

    versions: list[VersionShape]
    unreadable: list[int]


class PublishedShape(VersionShape):
    """The version that a body has become."""

    name: str
    location: str


class FileShape(Shape):
    """A file of a dataset."""

    path: str
    bytes: int
    sha256: str


class FilesShape(Shape):
    """A page of files by path; `next` is the cursor of the following page.

    With `delimiter=/`, `files` are those directly in the prefix, and `folders` the prefixes one level below.
    """

    files: list[FileShape]
    folders: list[str] = []
    next: str | None = None


class PictureShape(Shape):
    """A picture of a sheet; `label` is the name of the folder that it is in."""

    path: str
    bytes: int
    label: str | None = None


class SheetShape(Shape):
    """What a sheet shows, row by row: squares of `cell` pixels, `gap` pixels apart."""

    columns: int
    cell: int
    gap: int
    pictures: list[PictureShape]


class HealthShape(Shape):
    """How the service is: the bytes of all versions, those on their way into one, and the most of both there may be."""

    status: str
    version: str
    used: int
    arriving: int
    quota: int | None = None


class ProblemShape(BaseModel):
    """What went wrong (RFC 9457)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    request_id: str


def location(name: str) -> str:
    """The path of a dataset."""
    return f"/dataset/{name}"


def summary_of(description: str) -> str | None:
    """The first line of a description, cut after 200 characters; None without one."""
    line = next((line.strip() for line in description.splitlines() if line.strip()), "")
    return (line if len(line) <= 200 else f"{line[:199]}…") or None


def told(version: DatasetVersion) -> VersionShape:
    """A version as it is told."""
    return VersionShape(
        version=version.number,
        kind=version.kind,
        filename=version.filename,
        bytes=version.bytes,
        sha256=version.sha256,
        files=version.files,
        created=version.created,
        by=version.by,
    )


def published(name: str, version: DatasetVersion) -> PublishedShape:
    """A version that a body has become, as it is told."""
    return PublishedShape(name=name, location=location(name), **told(version).model_dump())
