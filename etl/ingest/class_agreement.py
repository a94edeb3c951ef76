"""Whether the table of class numbers agrees with the labels of rows: it may have been lost, changed or restored.

Single rows may be wrong too. A number in ``classes`` is doubted only if none of the rows of its class has it. All
rows are read only if a class would get a new number, or if the first rows are in doubt.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.cassandra.control import Control
from etl.cassandra.tables import read_table
from etl.errors import ConflictError
from etl.ingest.plan import IngestPlan
from etl.tables.class_numbers import next_number
from etl.tables.table_records import read_records
from formats.sizes import counted
from schemas import Columns, TableName
from schemas.tables import check_column

LabelCounts = Mapping[tuple[str | None, int | None], int]  # the number of rows of each class name and class number

_SHOWN = 5
_FIRST = 5_000  # a page of rows: read at once, without Spark


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassAgreement:
    """What rows say about the numbers of classes."""

    known: Mapping[str, int]  # the numbers in the table `classes`
    lost: Mapping[str, int]  # classes without a number, with the one number of their rows, which no other class has
    unclear: Mapping[str, tuple[int, ...]]  # the other classes without a number, with those of their rows
    changed: Mapping[str, int]  # classes none of whose rows has their number, with the most frequent one of their rows
    single: frozenset[str]  # changed classes of one row, whose number no class has: the row may be wrong instead
    rows: Mapping[str, int]  # of each class name
    used: Mapping[int, tuple[str, ...]]  # the class names of each number in rows

    @classmethod
    def of(cls, counts: LabelCounts, *, known: Mapping[str, int]) -> "ClassAgreement":
        """Compare rows with the numbers of classes. Rows without a name or a number say nothing about a class."""
        labels: dict[str, Counter[int]] = defaultdict(Counter)
        used: dict[int, set[str]] = defaultdict(set)
        for (name, label), rows in counts.items():
            if label is not None:
                used[label].add(name or "")
            if name is not None and label is not None:
                labels[name][label] += rows
        doubted = {name for name, found in labels.items() if name in known and known[name] not in found}
        right, taken = {number for name, number in known.items() if name not in doubted}, set(known.values())
        # with the numbers of other classes only, rows are wrong and not the numbers
        changed = {name: max(labels[name].items(), key=_by_rows)[0] for name in sorted(doubted)
                   if not set(labels[name]) <= right}  # fmt: skip
        without = {name: found for name, found in sorted(labels.items()) if name not in known}
        without = {name: found for name, found in without.items() if found.total() > 1 or not set(found) <= right}
        claims = Counter(label for found in without.values() for label in found)
        lost = {
            name: label
            for name, found in without.items()
            for label in found
            if len(found) == 1 and label >= 0 and claims[label] == 1 and label not in taken
        }
        return cls(
            known=known,
            lost=lost,
            unclear={name: tuple(sorted(found)) for name, found in without.items() if name not in lost},
            changed=changed,
            single=frozenset(name for name in changed if labels[name].total() == 1 and not set(labels[name]) & taken),
            rows={name: found.total() for name, found in labels.items()},
            used={label: tuple(sorted(names)) for label, names in used.items()},
        )

    @property
    def doubtful(self) -> dict[str, tuple[int, ...]]:
        """The unclear classes whose rows have a number that no class has: the rows need not be wrong."""
        taken = set(self.known.values())
        return {name: numbers for name, numbers in self.unclear.items() if not set(numbers) <= taken}

    @property
    def numbers(self) -> dict[str, int]:
        """The numbers that classes should have: lost and changed ones have those of their rows."""
        certain = {name: number for name, number in self.changed.items() if name not in self.single}
        return {**self.known, **self.lost, **certain}

    def conflicts(self, names: Collection[str], *, first: int) -> list[str]:
        """What is wrong for an ingest of classes with these names. ``first`` is the number of the next new class."""
        wrong = []
        owners: dict[int, list[str]] = defaultdict(list)
        for name, number in sorted(self.known.items()):
            owners[number].append(name)
        for name in sorted(set(names)):
            if len(shared := owners.get(self.known.get(name, -1), [])) > 1:
                wrong.append(f"{self.known[name]} is the number of {', '.join(map(repr, shared))}")
            rows = counted(self.rows.get(name, 0), "row")
            if name in self.changed:
                wrong.append(f"{name!r} is {self.known[name]}, but {self.changed[name]} in its {rows}")
            elif name in self.lost:
                wrong.append(f"no number of {name!r}, which is {self.lost[name]} in its {rows}")
            elif name in self.unclear:
                numbers = ", ".join(map(str, self.unclear[name]))
                wrong.append(f"no number of {name!r}, which is {numbers} in its {rows}")
        for number, name in self._new(names, first=first).items():
            if number in self.used:
                others = ", ".join(repr(other) if other else "no class" for other in self.used[number])
                wrong.append(f"the next number, for {name!r}, is {number}, which rows of {others} have")
        return wrong

    def wrong_rows(self, names: Collection[str], *, first: int) -> list[int]:
        """The numbers of new classes that only wrong rows have: rows without a name, or of a class with a number."""
        known = {"", *self.known}
        return [number for number in self._new(names, first=first) if known.issuperset(self.used.get(number, {None}))]

    def _new(self, names: Collection[str], *, first: int) -> dict[int, str]:
        """The classes that would get numbers, by number."""
        new = sorted(set(names) - self.known.keys() - self.lost.keys() - self.unclear.keys())
        return dict(enumerate(new, first))


def check_classes(spark: SparkSession, control: Control, *, plan: IngestPlan, names: Collection[str]) -> None:
    """Raise `ConflictError` if class numbers do not agree with the rows of all tables of the dataset. May run Spark."""
    tables = [
        record.metadata_table
        for record in read_records(control, keyspace=plan.tables.metadata.keyspace)
        if record.dataset == plan.dataset and record.label_type == "int" and record.numbering == "name"
    ]
    for table in tables:
        counts, is_all = _first_labels(control, table, columns=plan.columns)
        # after the rows: an ingest that runs at the same time takes its numbers before it writes
        known, first = next_number(control, keyspace=table.keyspace, dataset=plan.dataset)
        agreement = ClassAgreement.of(counts, known=known)
        if not is_all and (not known.keys() >= set(names) or agreement.conflicts(names, first=first)):
            counts = count_labels(spark, control, table, columns=plan.columns)
            known, first = next_number(control, keyspace=table.keyspace, dataset=plan.dataset)
            agreement = ClassAgreement.of(counts, known=known)
        if wrong := agreement.conflicts(names, first=first):
            shown = "; ".join(wrong[:_SHOWN]) + ("; ..." if len(wrong) > _SHOWN else "")
            raise ConflictError(
                f"Wanted class numbers in {plan.tables.classes} that agree with the rows of {table}. Found: {shown}. "
                f"{_remedy(len(wrong), agreement.wrong_rows(names, first=first), plan=plan, table=table)}"
            )


def _remedy(conflicts: int, wrong_rows: list[int], *, plan: IngestPlan, table: TableName) -> str:
    """What to do about conflicts, some of which are numbers of wrong rows."""
    told = []
    if wrong_rows:
        where = f"{plan.columns.label} IN ({', '.join(map(str, wrong_rows[:_SHOWN]))})"
        told.append(
            f"Rows with a wrong number or no class name are written again by verify.py --repair with their source, on "
            f'the tables of {table}; delete.py --where "{where}" removes them.'
        )
    if conflicts > len(wrong_rows):
        told.append(
            "The table of classes was lost, changed or restored. Restore it from a backup, or run verify.py --repair "
            f"on the tables of {table}: it restores the numbers that all rows of a class agree on."
        )
    return " ".join(told)


def _first_labels(control: Control, table: TableName, *, columns: Columns) -> tuple[LabelCounts, bool]:
    """Count the first rows of a metadata table by class name and class number. Also says whether these are all rows."""
    label = _label_column(control, table, columns=columns)
    if label is None:
        return {}, True
    rows = control.execute(f'SELECT or_label, "{check_column(label)}" AS label FROM {table.quoted} LIMIT {_FIRST}')
    return Counter((row.or_label, row.label) for row in rows), len(rows) < _FIRST


def count_labels(spark: SparkSession, control: Control, table: TableName, *, columns: Columns) -> LabelCounts:
    """Count all rows of a metadata table by class name and class number. Runs Spark."""
    label = _label_column(control, table, columns=columns)
    if label is None:
        return {}
    rows = read_table(spark, table, columns=["or_label", label])
    return counts_of(rows.select("or_label", F.col(label).alias("label")))


def _label_column(control: Control, table: TableName, *, columns: Columns) -> str | None:
    there = control.columns(table) or {}
    label = next((name for name in (columns.label, Columns().label) if name in there), None)
    return label if "or_label" in there else None


def counts_of(rows: DataFrame, /) -> LabelCounts:
    """Count rows by their ``or_label`` and ``label``. Runs Spark."""
    counts = rows.groupBy("or_label", "label").agg(F.count("*").alias("rows"))
    return {(row["or_label"], row["label"]): row["rows"] for row in counts.collect()}


def _by_rows(item: tuple[int, int]) -> tuple[int, int]:
    label, rows = item
    return rows, -label
