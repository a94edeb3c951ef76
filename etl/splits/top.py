"""The images with the highest values of each class.

Only small classes are sorted. In a large one, a sample gives two images between which the last one that is taken almost
certainly is, and all images are counted by these. Then the images between them are sorted::

    a large class, highest value first   |   taken   |   zone   |   left out   |
                                                         ^ the last image that is taken

If the zone is large too, it is sampled again. If that image is not in it, the part that has it becomes the zone. So the
result is exact whatever the sample was, and no task sorts more than a small class.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from types import MappingProxyType
from typing import Any

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from etl.columns import column, ours, quoted
from etl.errors import TableError
from etl.frames import small_table
from etl.splits.dealing.cuts import at_fraction
from etl.splits.plan import Top

MOST_SORTED = 1_000_000
"""The most rows of a class that one task sorts."""

_SAMPLED = 100_000  # rows of a zone, on average
_ROUNDS = 16  # 2 are enough for a class of 10**9; a zone that no sample narrows is sorted all the same
_DEVIATIONS, _ROWS_AROUND = 5, 25
_DRAW = 0x746F70  # "top", so that the samples do not depend on other orders of ids
_LABEL, _VALUE, _ID, _ZONE, _RANK = map(ours, ("label", "value", "id", "zone", "rank"))
_MOST, _DRAWN = map(ours, ("most", "drawn"))

_NOTHING: Mapping[str, Any] = MappingProxyType({})

Key = tuple[Any, Any]  # the value and the id of a row: the highest value comes first, and of equal ones the smallest id


@dataclass(frozen=True, slots=True)
class Zone:
    """Rows of a class from ``start`` to before ``end``; the last one that is taken is the ``taken``-th of these."""

    label: Any
    rows: int
    taken: int
    start: Key | None = None
    end: Key | None = None

    @property
    def share(self) -> float:
        """The share of the rows that a sample has."""
        return min(1.0, _SAMPLED / self.rows)


def take_top(rows: DataFrame, *, top: Top) -> DataFrame:
    """The rows of each class with the highest values in a column of ``id, label`` and others. A share of a class is
    rounded up; of equal values, the smallest ids are taken. Rows without a value (null or NaN) count towards the share
    but are never taken. Runs Spark. Raises `TableError` if the number of rows has changed.
    """
    counts = F.count("*").alias("rows"), F.count_if(_has_value(top)).alias("valued")
    sizes = {row["label"]: row for row in rows.groupBy("label").agg(*counts).collect()}
    limits = {label: _limit(row, top) for label, row in sizes.items()}
    large = {label for label, row in sizes.items() if row["valued"] > MOST_SORTED}
    zones = [
        Zone(label, sizes[label]["valued"], limits[label])
        for label in large
        if limits[label] < sizes[label]["valued"]  # otherwise all that have a value are taken
    ]
    last = _LargeClasses.of(rows, top).find_last(zones)
    small = [label for label in sizes if label not in large]
    parts = []
    if small or not large:
        table = _class_table(rows, top, small, numbers={_MOST: [limits[label] for label in small]})
        parts.append(_of_classes(rows, top, table).transform(_sorted, top=top))
    if large:
        table = _class_table(rows, top, list(large), {"last": [last.get(label) for label in large]})
        parts.append(_of_classes(rows, top, table).transform(_until_last, top=top))
    return reduce(DataFrame.union, (part.select(*map(column, rows.columns)) for part in parts))


def _of_classes(rows: DataFrame, top: Top, table: DataFrame) -> DataFrame:
    """The rows with a value of some classes, with the columns of their `_class_table`."""
    is_of_class = F.col("label").eqNullSafe(F.col(_LABEL))
    return rows.where(_has_value(top)).join(F.broadcast(table), on=is_of_class, how="inner")


def _sorted(rows: DataFrame, /, *, top: Top) -> DataFrame:
    place = F.row_number().over(Window.partitionBy("label").orderBy(F.desc(quoted(top.column)), "id"))
    # Spark drops rows early if the number is a constant.
    most = F.col(_MOST) if top.count is None else F.lit(top.count)
    return rows.withColumn(_RANK, place).where(F.col(_RANK) <= most)


def _until_last(rows: DataFrame, /, *, top: Top) -> DataFrame:
    value, row_id = column(top.column), F.col("id")
    is_last = (value == F.col(f"{_VALUE}_last")) & (row_id == F.col(f"{_ID}_last"))
    return rows.where(F.col(f"{_ID}_last").isNull() | is_last | _is_before("last", value, row_id))


def _has_value(top: Top) -> Column:
    highest = column(top.column)
    return highest.isNotNull() & ~F.isnan(highest.cast("double"))


def _limit(size: Row, top: Top) -> int:
    """How many rows of a class are taken, if that many have a value."""
    if top.share is not None:
        return int(-(-size["rows"] * top.share.numerator // top.share.denominator))
    assert top.count is not None
    return top.count


@dataclass(frozen=True, slots=True)
class _LargeClasses:
    """The rows of classes that are too large to be sorted."""

    rows: DataFrame
    top: Top
    keyed: DataFrame  # those with a value: ``label`` and the key

    @classmethod
    def of(cls, rows: DataFrame, top: Top) -> "_LargeClasses":
        """Select the columns."""
        keyed = rows.where(_has_value(top)).select("label", column(top.column).alias(_VALUE), F.col("id").alias(_ID))
        return cls(rows, top, keyed)

    def find_last(self, zones: Sequence[Zone]) -> dict[Any, Key]:
        """The key of the last row that is taken, by label."""
        for number in range(_ROUNDS):
            wide = [zone for zone in zones if zone.rows > MOST_SORTED]
            if not wide:
                break
            narrowed = self._narrowed(wide, self._draw(wide, number=number))
            zones = [zone for zone in zones if zone.rows <= MOST_SORTED] + narrowed
        found = _at_ranks(self._within(zones), [[zone.taken] for zone in zones]) if zones else {}
        if len(found) != len(zones):
            raise _changed()
        return {zones[number].label: key for (number, _), key in found.items()}

    def _draw(self, zones: Sequence[Zone], *, number: int) -> list[Zone]:
        """The rows between two of a sample around the last one that is taken, for each zone; counts are still those of
        the zone.
        """
        draw = F.xxhash64(F.lit(_DRAW).cast("long"), F.lit(number).cast("long"), F.col(_ID))
        ranks = []
        for zone in zones:
            middle = zone.share * zone.taken
            reach = _DEVIATIONS * middle**0.5 + _ROWS_AROUND
            ranks.append([int(middle - reach), int(middle + reach) + 1])
        found = _at_ranks(self._within(zones).where(draw <= F.col(_DRAWN)), ranks)
        return [
            replace(zone, start=found.get((place, 0), zone.start), end=found.get((place, 1), zone.end))
            for place, zone in enumerate(zones)
        ]

    def _narrowed(self, zones: Sequence[Zone], inner: Sequence[Zone]) -> list[Zone]:
        """The part of each zone that has the last row that is taken: before, in or after the inner one."""
        keys = {"from": [zone.start for zone in inner], "to": [zone.end for zone in inner]}
        is_before = F.col(f"{_ID}_from").isNotNull() & _is_before("from")
        is_after = F.col(f"{_ID}_to").isNotNull() & ~_is_before("to")
        part = F.when(is_before, 0).when(is_after, 2).otherwise(1)
        counted = [[0, 0, 0] for _ in zones]
        for row in self._within(zones, keys).groupBy(_ZONE, part.alias("part")).count().collect():
            counted[row[_ZONE]][row["part"]] = row["count"]
        narrowed = []
        for zone, inside, (before, between, after) in zip(zones, inner, counted, strict=True):
            if before + between + after != zone.rows:
                raise _changed()
            if zone.taken <= before:
                narrowed.append(replace(zone, rows=before, end=inside.start))
            elif zone.taken <= before + between:
                narrowed.append(replace(inside, rows=between, taken=zone.taken - before))
            else:
                narrowed.append(replace(zone, rows=after, taken=zone.taken - before - between, start=inside.end))
        return narrowed

    def _within(self, zones: Sequence[Zone], keys: Mapping[str, Sequence[Key | None]] = _NOTHING) -> DataFrame:
        """The rows in the zones, each with the number of its zone, the bound of its sample, and more keys for it."""
        ends = {"start": [zone.start for zone in zones], "end": [zone.end for zone in zones]}
        drawn = {_DRAWN: [at_fraction(zone.share) for zone in zones]}
        labels = [zone.label for zone in zones]
        table = _class_table(self.rows, self.top, labels, {**ends, **keys}, numbers=drawn)
        joined = self.keyed.join(F.broadcast(table), on=F.col("label").eqNullSafe(F.col(_LABEL)), how="inner")
        is_there = F.col(f"{_ID}_start").isNull() | ~_is_before("start")
        return joined.where(is_there & (F.col(f"{_ID}_end").isNull() | _is_before("end")))


def _is_before(name: str, value: Column | None = None, row_id: Column | None = None) -> Column:
    """Whether a row is before a key of `_class_table`."""
    value, row_id = F.col(_VALUE) if value is None else value, F.col(_ID) if row_id is None else row_id
    end, end_id = F.col(f"{_VALUE}_{name}"), F.col(f"{_ID}_{name}")
    return (value > end) | ((value == end) & (row_id < end_id))


def _at_ranks(zoned: DataFrame, ranks: Sequence[Sequence[int]]) -> dict[tuple[int, int], Key]:
    """The keys at these ranks of each zone, from 1, by the numbers of zone and rank; not those beyond its ends."""
    wanted = [(zone, rank) for zone, some in enumerate(ranks) for rank in some if rank > 0]
    if not wanted:
        return {}
    columns = dict(zip((_ZONE, _RANK), zip(*wanted, strict=True), strict=True))
    table = small_table(zoned.sparkSession, columns, f"`{_ZONE}` INT, `{_RANK}` INT")
    place = F.row_number().over(Window.partitionBy(_ZONE).orderBy(F.desc(_VALUE), _ID))
    ranked = zoned.select(_ZONE, _VALUE, _ID).withColumn(_RANK, place)
    found: dict[tuple[int, int], Key] = {}
    for row in ranked.join(F.broadcast(table), on=[_ZONE, _RANK], how="inner").collect():
        row_id = bytes(row[_ID]) if isinstance(row[_ID], bytearray) else row[_ID]
        found[row[_ZONE], ranks[row[_ZONE]].index(row[_RANK])] = (row[_VALUE], row_id)
    return found


def _class_table(
    rows: DataFrame,
    top: Top,
    labels: Sequence[Any],
    keys: Mapping[str, Sequence[Key | None]] = _NOTHING,
    *,
    numbers: Mapping[str, Sequence[int]] = _NOTHING,
) -> DataFrame:
    """A row for each of these classes: its place in the list, some numbers, and some keys, each a value and an id."""
    kinds = {name: rows.schema[name].dataType.simpleString() for name in ("label", "id", top.column)}
    columns: dict[str, Sequence[Any]] = {_ZONE: range(len(labels)), _LABEL: labels, **numbers}
    schema = [f"`{_ZONE}` INT", f"`{_LABEL}` {kinds['label']}", *(f"`{name}` BIGINT" for name in numbers)]
    for name, some in keys.items():
        columns[f"{_VALUE}_{name}"] = [key and key[0] for key in some]
        columns[f"{_ID}_{name}"] = [key and key[1] for key in some]
        schema += [f"`{_VALUE}_{name}` {kinds[top.column]}", f"`{_ID}_{name}` {kinds['id']}"]
    return small_table(rows.sparkSession, columns, ", ".join(schema))


def _changed() -> TableError:
    return TableError("Wanted the rows that were counted before, for --top. Found: a different number of rows.")
