"""Requirements on a table and its rows, without a database: messages name the table, the id and the column."""

import uuid
from dataclasses import replace
from typing import Any

import pytest

from loader import AccessError, DeletedImageError, MissingImageError, TableError, UnreachableError
from loader.cassandra.access import Access
from loader.cassandra.cluster import Cluster
from loader.cassandra.target import Kind, Target
from schemas import Columns, TableName

ONE = uuid.UUID(int=7)
TARGET = Target(
    cluster=Cluster(hosts=["10.0.0.1", "db2"], access=Access()),
    consistency="LOCAL_QUORUM",
    table=TableName("ks", "data"),
    columns=Columns(),
    label=None,
    metadata_table=TableName("ks", "metadata"),
    metadata=(),
)
PLACE = r"at 10\.0\.0\.1, db2 port 9042\. Found: "
USUAL = {"id": ("uuid", "partition_key"), "data": ("blob", "regular"), "label": ("int", "regular")}
HAS = r"the key \(id\) and the columns data blob, id uuid, label int"


def columns(**types: str) -> dict[str, tuple[str, str]]:
    """The columns of a table with the key `id`."""
    return {name: (kind, "partition_key" if name == "id" else "regular") for name, kind in types.items()}


_ACCEPT = "Make the split again, or read the newest bytes with on_changed='accept'."


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (
            (7, 3, "4f2c"),
            "ks.metadata still has the checksum of the split, so the stored bytes are damaged. jobs/verify",
        ),
        ((9, 3, "4f2c"), f"Run 3 (ingest 4f2c) has replaced the image since. {_ACCEPT}"),
        ((5, 3, "4f2c"), f"The image was replaced since, or is being replaced now. {_ACCEPT}"),
        (None, f"The image was replaced since, or is being replaced now. {_ACCEPT}"),
    ],
)
def test_other_bytes_are_explained_by_what_the_metadata_says(row: tuple[int, int, str] | None, why: str) -> None:
    message = str(replace(TARGET, split="split 0 of somewhere").changed(ONE.bytes, 9, wanted=7, row=row))
    found = "with the checksum 7 of split 0 of somewhere. Found: other bytes, with the checksum 9. "
    assert message.startswith(f"Wanted image {ONE} from ks.data at ")
    assert found + why in message


@pytest.mark.parametrize("label", ["tinyint", "smallint", "int", "bigint"])
def test_a_table_that_matches_the_split_is_accepted(label: str) -> None:
    TARGET.check(USUAL)
    TARGET.check(columns(id="timeuuid", data="blob", more="text"))
    replace(TARGET, label="int").check(columns(id="uuid", data="blob", label=label))
    replace(TARGET, label="blob").check(columns(id="uuid", data="blob", label="blob"))


@pytest.mark.parametrize(
    ("wanted", "label", "found", "message"),
    [
        (Columns(), None, {}, "no such table"),
        (Columns(id="patch_id"), None, USUAL, HAS),
        (Columns(data="picture"), None, USUAL, HAS),
        (Columns(data="label", label="data"), None, USUAL, HAS),
        (Columns(), None, columns(id="text", data="blob"), r"the key \(id\) and the columns data blob, id text"),
        (
            Columns(),
            None,
            columns(id="uuid", data="blob") | {"part": ("int", "clustering")},
            r"the key \(id, part\) and the columns",
        ),
        (Columns(), "int", columns(id="uuid", data="blob", label="text"), r"the key \(id\) and .*label text"),
        (Columns(), "int", columns(id="uuid", data="blob", label="blob"), r"the key \(id\) and .*label blob"),
        (Columns(), "blob", USUAL, HAS),
        (Columns(), "int", columns(id="uuid", data="blob"), r"the key \(id\) and the columns data blob, id uuid$"),
    ],
)
def test_a_table_that_differs_from_the_split_is_reported(
    wanted: Columns, label: Kind | None, found: dict[str, tuple[str, str]], message: str
) -> None:
    also = f", and the column label {label}" if label else ""
    start = rf"Wanted ks\.data with the key {wanted.id} uuid and the column {wanted.data} blob{also} {PLACE}"
    with pytest.raises(TableError, match=start + message):
        replace(TARGET, columns=wanted, label=label).check(found)


@pytest.mark.parametrize(
    ("found", "message"),
    [({}, "no such table"), (columns(id="uuid", width="int"), "id, width"), (columns(other="uuid"), "other")],
)
def test_missing_metadata_columns_are_named(found: dict[str, tuple[str, str]], message: str) -> None:
    target = replace(TARGET, metadata=("width", "colour"))
    target.check_metadata(columns(id="uuid", width="int", colour="text"))
    with pytest.raises(TableError, match=rf"the columns id, width, colour in ks\.metadata {PLACE}{message}"):
        target.check_metadata(found)


def test_a_missing_image_is_named() -> None:
    image = rf"Wanted image {ONE} from ks\.data {PLACE}"
    for row, found in [
        (None, "no such row"),
        ((None,), r"it was deleted \(its data is null\)"),
        ((None, 3), "it was deleted"),
        ((b"",), "its data has 0 bytes"),
    ]:
        with pytest.raises(MissingImageError, match=image + found) as caught:
            replace(TARGET, label=None if row is None or len(row) == 1 else "int").image(ONE.bytes, row)
        assert isinstance(caught.value, DeletedImageError) == ("deleted" in found)
    assert TARGET.image(ONE.bytes, (b"bytes",)) == (b"bytes", None)
    with pytest.raises(MissingImageError, match=rf"the metadata of image {ONE} from ks\.metadata .*Found: no such row"):
        TARGET.values(ONE.bytes, None)
    assert TARGET.values(ONE.bytes, ["a", None]) == ("a", None)


@pytest.mark.parametrize(
    ("kind", "label", "message"),
    [
        ("int", None, "its label is null"),
        ("int", 1 << 31, "its label is 2147483648"),
        ("int", -(1 << 31) - 1, "its label is -2147483649"),
        ("blob", None, "its label is null"),
        ("int", -(1 << 31), None),
        ("int", (1 << 31) - 1, None),
        ("blob", b"", None),
    ],
)
def test_missing_and_out_of_range_labels_are_reported(kind: Kind, label: Any, message: str | None) -> None:
    target = replace(TARGET, label=kind)
    if message is None:
        assert target.image(ONE.bytes, (b"bytes", label)) == (b"bytes", label)
        return
    with pytest.raises(TableError, match=rf"Wanted a label .*image {ONE} from ks\.data {PLACE}{message}"):
        target.image(ONE.bytes, (b"bytes", label))


def test_statements_keep_the_case_of_names() -> None:
    target = replace(
        TARGET, columns=Columns(id="patch_id", label="Klasse", data="Bild"), label="int", metadata=("Breite", "path")
    )
    assert target.select == f'SELECT "Bild", "Klasse" FROM {target.table.quoted} WHERE "patch_id" = ?'
    assert replace(target, label=None).select == f'SELECT "Bild" FROM {target.table.quoted} WHERE "patch_id" = ?'
    wanted = f'SELECT "Breite", "path" FROM {target.metadata_table.quoted} WHERE "patch_id" = ?'
    assert target.select_metadata == wanted


def test_a_refused_login_says_which_credentials_to_give() -> None:
    for user, message in [
        (None, "it requires a log-in .*IMAGESTRATA_USERNAME"),
        ("me", "user 'me' is refused .*Correct the user name or the password"),
    ]:
        access = Access(username=user, password=None if user is None else "hardly-guessed-7")
        error = replace(TARGET, cluster=Cluster(hosts="db", access=access)).refusal("Cassandra", "bad credentials")
        assert isinstance(error, AccessError)
        with pytest.raises(AccessError, match=f"Wanted Cassandra. Found: {message}"):
            raise error
        assert "hardly" not in str(error)


def test_a_datacenter_without_nodes_is_named() -> None:
    target = replace(TARGET, cluster=Cluster(hosts="db", datacenter="dc9"))
    for error, message in [
        (target.no_answer("Cassandra", "none", is_elsewhere=True), "from the datacenter dc9. Found: no node of it"),
        (target.no_answer("Cassandra", "none", is_elsewhere=False), r"Found: no node that answers \(none\)"),
        (TARGET.no_answer("Cassandra", "none", is_elsewhere=True), r"Found: no node that answers \(none\)"),
    ]:
        with pytest.raises(UnreachableError, match=message):
            raise error
