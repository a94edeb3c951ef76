"""Images that encode their class, and tables of them."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import acsylla
import numpy as np
from PIL import Image

from schemas.tables import Columns, LabelType, Replication, TableName, create_data, create_keyspace
from tests.support.encoding import encoded

SHADES = 20
"""A class is the grey level ``SHADES * label``, which can be read after any crop."""


def picture(label: int, *, width: int = 80, height: int = 64, format: str = "PNG", mode: str = "RGB") -> bytes:
    """An image of one shade."""
    return encoded(Image.new("L", (width, height), SHADES * label).convert(mode), format, quality=95)


def exif(orientation: int) -> bytes:
    """An EXIF block with an orientation, 1 to 8."""
    notes = Image.Exif()
    notes[0x0112] = orientation
    return bytes(notes.tobytes())


def texture(number: int, *, width: int = 64, height: int = 64) -> bytes:
    """An image in which no two crops are alike."""
    return encoded(np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8))


def write_table(
    name: str,
    rows: Mapping[uuid.UUID, bytes | None],
    *,
    hosts: Sequence[str],
    port: int,
    columns: Columns | None = None,
    label_type: LabelType = "int",
    labels: Mapping[uuid.UUID, bytes | int] | None = None,
) -> None:
    """Write a data table with these rows (None is a null), with labels if given. Creates it if necessary."""
    table, columns = TableName.parse(name), columns or Columns()

    async def write(session: Any) -> None:
        names = [f'"{name}"' for name in (columns.id, columns.data, *([columns.label] if labels is not None else []))]
        insert = await session.create_prepared(
            f"INSERT INTO {table.quoted} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        )
        values = [(one, data, *([labels[one]] if labels is not None else [])) for one, data in rows.items()]
        for start in range(0, len(rows), 64):
            pairs = values[start : start + 64]
            await asyncio.gather(*(session.execute(insert.bind(pair)) for pair in pairs))

    made = create_data(table, columns, label_type=label_type)
    keyspace = create_keyspace(table.keyspace, Replication.parse("1"))
    execute(keyspace, made, f"TRUNCATE {table.quoted}", hosts=hosts, port=port, then=write)


def execute(
    *statements: str, hosts: Sequence[str], port: int, then: Callable[[Any], Awaitable[None]] | None = None
) -> None:
    """Run statements in order, and call ``then`` with the same session."""

    async def run() -> None:
        cluster = acsylla.create_cluster(list(hosts), port=port, log_level="critical")
        session = await cluster.create_session()
        for statement in statements:
            await session.execute(acsylla.create_statement(statement))
        if then is not None:
            await then(session)
        await session.close()
        cluster.destroy()

    asyncio.run(run())


def shades(images: np.ndarray) -> np.ndarray:
    """The classes of float32 ``(b, 3, h, w)`` images with values from 0 to 1."""
    assert np.allclose(images, images[:, :1], atol=3 / 255)  # all three channels are equal
    return np.rint(images.mean(axis=(1, 2, 3)) * 255 / SHADES).astype(np.int64)
