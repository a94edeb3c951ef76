"""The nearest neighbors of an image by a feature view of vectors, by cosine similarity.

The vector index of Cassandra finds them approximately: of the images that it returns, similarities are exact, but it
may miss some. The exact search reads all vectors.
"""

import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from etl.cassandra.control import Control, check_columns
from etl.cassandra.registry import registered_views
from etl.errors import TableError
from etl.features.columns import how_to_compute
from etl.features.vectors.index import check_vector, has_index
from schemas import Columns, TableName
from schemas.features import FeatureView, ViewName

MOST = 500
"""The most neighbors of a search."""

_LIMIT = 1000  # Cassandra's own for approximate searches
_CHUNK = 4096

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Neighbor:
    """An image, and the cosine of the angle between its vector and that of the image in question: at most 1."""

    id: str
    path: str | None
    similarity: float


@dataclass(frozen=True, slots=True)
class Neighbors:
    """The nearest images, the nearest first, and how they were found."""

    view: str
    is_exact: bool
    neighbors: tuple[Neighbor, ...]

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON knows it."""
        return asdict(self)


def find_neighbors(
    control: Control,
    image: uuid.UUID,
    *,
    metadata: TableName,
    view: ViewName,
    count: int = 10,
    exact: bool = False,
    columns: Columns | None = None,
) -> Neighbors:
    """Find up to ``count`` images, at most `MOST`, whose vectors point most nearly in the direction of an image's:
    through the index, or if ``exact``, from all vectors. Only images with a value of the bytes that they have now are
    found. Raises `TableError` if there is no such image, view or index, `FunctionError` for values that are no vectors.
    """
    if not 1 <= count <= MOST:
        raise TableError(f"Wanted 1 to {MOST} neighbors. Found: {count}")
    images = _Images(control, metadata, columns or Columns())
    found = _view(control, metadata, view)
    field, _ = check_vector(found)
    wanted = _vector_of(control, images, image, found, field=field)
    if exact:
        query = f'SELECT id, sha256, "{field}" AS vector FROM {found.table_of(metadata).quoted} PER PARTITION LIMIT 1'
        nearest = _exact(control.rows(query), images, image, wanted, count=count)
    elif has_index(control, found, metadata=metadata):
        nearest = _approximate(control, found.index_table_of(metadata), images, image, wanted, count=count)
    else:
        raise TableError(
            f"Wanted a vector index of {found.title} for {metadata}. Found: none. Build it: spark-submit "
            f"jobs/featurize.py -m {metadata} --features {found.title} --vector-index. Or read all vectors: --exact"
        )
    return Neighbors(found.title, exact, tuple(nearest))


class _Images:
    """The metadata of images: whether an image has certain bytes now, and its path."""

    def __init__(self, control: Control, metadata: TableName, columns: Columns) -> None:
        check_columns(control, metadata, columns=[columns.id, "sha256"])
        has = control.columns(metadata) or {}
        names = ", ".join(f'"{name}"' for name in ("sha256", "path", "or_split") if name in has)
        self._control, self._table = control, metadata
        self._query = f'SELECT {names} FROM {metadata.quoted} WHERE "{columns.id}" = ?'

    def row(self, image: uuid.UUID) -> Any | None:
        return next(iter(self._control.execute(self._query, (image,))), None)

    def neighbor(self, image: uuid.UUID, sha256: bytes | None, similarity: float) -> Neighbor | None:
        """The image, unless it was removed or has other bytes now."""
        row = self.row(image)
        if row is None or row.sha256 != sha256:
            return None
        split, path = getattr(row, "or_split", None), getattr(row, "path", None)
        return Neighbor(str(image), f"{split}/{path}" if split and path else path, similarity)


def _view(control: Control, metadata: TableName, wanted: ViewName) -> FeatureView:
    # not by `find_fields`, which needs Spark to read the expression of an on-demand view
    for view in registered_views(control, keyspace=metadata.keyspace, name=wanted.name):
        is_it = wanted.version in (None, view.version) and not view.is_on_demand
        if is_it and control.columns(view.table_of(metadata)) is not None:
            return view
    raise TableError(
        f"Wanted values of {wanted} for the images of {metadata}. Found: none. "
        f"{how_to_compute(wanted, control=control, metadata=metadata)}"
    )


def _vector_of(control: Control, images: _Images, image: uuid.UUID, view: FeatureView, *, field: str) -> Vector:
    row = images.row(image)
    if row is None:
        raise TableError(f"Wanted the image {image} in the metadata table. Found: no such id.")
    values = view.table_of(images._table)
    query = f'SELECT sha256, "{field}" AS vector FROM {values.quoted} WHERE id = ? LIMIT 1'
    found = [one for one in control.execute(query, (image,)) if one.sha256 == row.sha256 and one.vector is not None]
    if not found:
        raise TableError(
            f"Wanted a value of {view.title} of the image {image}. Found: none of its bytes. "
            f"{how_to_compute(view.title, control=control, metadata=images._table)}"
        )
    vector = np.frombuffer(found[0].vector, "<f4").astype(np.float64)
    if not vector.any():
        raise TableError(f"Wanted a direction of {view.title} of the image {image}. Found: a vector of zeros.")
    return vector


def _approximate(
    control: Control, table: TableName, images: _Images, image: uuid.UUID, wanted: Vector, *, count: int
) -> list[Neighbor]:
    query = f"SELECT id, sha256, vector FROM {table.quoted} ORDER BY vector ANN OF ? LIMIT ?"
    limit = min(2 * count + 10, _LIMIT)
    while True:
        rows = control.execute(query, (wanted.tolist(), limit))
        near = _nearest(rows, [np.array(row.vector) for row in rows], images, image, wanted, count=count)
        if len(near) >= count or len(rows) < limit or limit == _LIMIT:
            return near
        limit = min(4 * limit, _LIMIT)


def _nearest(
    rows: list[Any],
    vectors: list[Any],
    images: _Images,
    image: uuid.UUID,
    wanted: Vector,
    *,
    count: int,
    above: float = -2.0,
) -> list[Neighbor]:
    if not rows:
        return []
    cosines = similarities(np.array(vectors, np.float64), wanted)
    order = [i for i in np.argsort(-cosines, kind="stable") if cosines[i] > above and rows[i].id != image]
    found = (images.neighbor(rows[i].id, rows[i].sha256, float(cosines[i])) for i in order)
    return list(islice((one for one in found if one is not None), count))


def _exact(rows: Iterator[Any], images: _Images, image: uuid.UUID, wanted: Vector, *, count: int) -> list[Neighbor]:
    best: list[Neighbor] = []
    while chunk := list(islice(rows, _CHUNK)):
        full = [(row, np.frombuffer(row.vector, "<f4")) for row in chunk if row.vector is not None]
        full = [(row, vector) for row, vector in full if vector.any()]
        above = best[-1].similarity if len(best) == count else -2.0
        more = _nearest(
            [row for row, _ in full], [one for _, one in full], images, image, wanted, count=count, above=above
        )
        best = sorted([*best, *more], key=lambda one: (-one.similarity, one.id))[:count]
    return best


def similarities(vectors: Vector, wanted: Vector) -> Vector:
    """The cosines of the angles between the rows of a matrix and a vector, none of zeros."""
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(wanted)
    cosines: Vector = np.clip(vectors @ wanted / lengths, -1.0, 1.0)
    return cosines
