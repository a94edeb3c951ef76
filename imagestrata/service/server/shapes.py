"""The JSON bodies of requests and responses."""

from typing import Annotated, Any

from fastapi import Depends, Query
from pydantic import BaseModel, ConfigDict, Field

from imagestrata.service.errors import RequestError
from schemas.datasets import NAME_PATTERN, DatasetVersion, check_name
from schemas.errors import SchemaError

# For the OpenAPI document; `name_of` checks it.
_NAME_SCHEMA = {"minLength": 1, "maxLength": 100, "pattern": NAME_PATTERN}
DatasetName = Annotated[str, Field(examples=["my_dataset"], json_schema_extra=_NAME_SCHEMA)]

BINARY = {"schema": {"type": "string", "format": "binary", "minLength": 1}}
"""Describes binary bodies in the OpenAPI document."""


def name_of(name: DatasetName) -> str:
    """Check the name of a dataset. Raises `RequestError`."""
    try:
        return check_name(name)
    except SchemaError as error:
        raise RequestError(str(error)) from None


Name = Annotated[str, Depends(name_of)]
VersionNumber = Annotated[int | None, Query(ge=1, le=10**9, description="the version (default: the newest)")]
Limit = Annotated[int, Query(ge=1, le=1000, description="the largest number of entries on a page")]
Prefix = Annotated[str, Query(max_length=4096, description="only paths with this prefix")]
Label = Annotated[
    str | None, Query(alias="class", max_length=255, description="only files directly in folders of this name")
]


class Shape(BaseModel):
    """A JSON object."""

    model_config = ConfigDict(extra="forbid")


class NewDataset(Shape):
    """A dataset to create."""

    name: DatasetName


class DescriptionShape(Shape):
    """The description of a dataset as plain text. An empty text removes it."""

    description: str = Field(max_length=10_000)


class VersionShape(Shape):
    """A version of a dataset. It never changes. `sha256` is the digest of the file, or of the folder's tar."""

    version: int
    kind: str
    filename: str
    bytes: int
    sha256: str
    files: int
    created: str
    by: str | None = None


class DatasetShape(Shape):
    """A dataset and its newest version, null if it is empty. `problem` says why the newest version cannot be read.
    `summary` is the first line of the description, at most 200 characters.
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
    """A page of datasets by name. `next` is the cursor of the next page."""

    datasets: list[DatasetShape]
    next: str | None = None


class CardShape(DatasetShape):
    """A dataset with its versions, newest first, and the contents of the requested version."""

    description: str = ""
    versions: list[VersionShape]
    card: dict[str, Any]


class VersionsShape(Shape):
    """The versions of a dataset, newest first, and the numbers of unreadable ones."""

    versions: list[VersionShape]
    unreadable: list[int]


class PublishedShape(VersionShape):
    """The published version."""

    name: str
    location: str


class FileShape(Shape):
    """A file of a dataset."""

    path: str
    bytes: int
    sha256: str


class FilesShape(Shape):
    """A page of files by path. `next` is the cursor of the next page. With `delimiter=/`, `files` are directly below
    the prefix, and `folders` are the prefixes one level below.
    """

    files: list[FileShape]
    folders: list[str] = []
    next: str | None = None


class PictureShape(Shape):
    """An image of a contact sheet. `label` is the name of its folder."""

    path: str
    bytes: int
    label: str | None = None


class SheetShape(Shape):
    """The images of a contact sheet, row by row: squares of `cell` pixels, `gap` pixels apart."""

    columns: int
    cell: int
    gap: int
    pictures: list[PictureShape]


class HealthShape(Shape):
    """The state of the service: bytes of versions, bytes of arriving bodies, and the quota for both."""

    status: str
    version: str
    used: int
    arriving: int
    quota: int | None = None


class ProblemShape(BaseModel):
    """An error (RFC 9457)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    request_id: str


def location(name: str) -> str:
    """Return the path of a dataset."""
    return f"/dataset/{name}"


def summary_of(description: str) -> str | None:
    """Return the first line of a description, at most 200 characters; None if it is empty."""
    line = next((line.strip() for line in description.splitlines() if line.strip()), "")
    return (line if len(line) <= 200 else f"{line[:199]}…") or None


def version_shape(version: DatasetVersion) -> VersionShape:
    """Return a version as JSON."""
    told = {name: getattr(version, name) for name in VersionShape.model_fields if name != "version"}
    return VersionShape(version=version.number, **told)


def published(name: str, version: DatasetVersion) -> PublishedShape:
    """Return a published version as JSON."""
    return PublishedShape(name=name, location=location(name), **version_shape(version).model_dump())
