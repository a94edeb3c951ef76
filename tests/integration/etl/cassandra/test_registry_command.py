"""The command `imagestrata registry` on a real keyspace."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from etl.cassandra import registry
from etl.cassandra.control import Control
from etl.cassandra.registry import Entry, register_view
from etl.catalog.drawing import as_svg, as_text
from etl.catalog.lineage import Tracer
from etl.catalog.products import product_at
from etl.features.computing import builtin
from etl.tables.runs import new_ingest_id
from etl.tables.sequence import create_sequence, take_run
from etl.tables.table_records import TableRecord, claim_tables
from imagestrata.cli import main
from schemas import Columns, TableName
from schemas.feature_sources import Python, Sql
from schemas.features import FeatureView
from schemas.offline import OfflineManifest, OfflineView
from schemas.tables import (
    Replication,
    create_feature_values,
    create_keyspace,
    create_metadata,
    create_shared,
    create_vectors,
)
from tests.support.feature_functions import __name__ as functions
from tests.support.features import digest_of_earlier_versions
from tests.support.services import fresh_name

Run = Callable[..., tuple[int, str, str]]
"""Runs `imagestrata registry`: exit code, output and errors."""

VIEWS = f"""
[[feature_view]]
name = "red"
source = "python:{functions}:redness"
fields = {{ red = "double" }}
owner = "vision@example.org"
description = "mean of the red channel"
tags = {{ team = "vision" }}

[[feature_service]]
name = "sorting"
views = ["red@v1", "sharpness@v2"]

[[dataset]]
name = "digits"
description = "small digits"
"""


@pytest.fixture(scope="module")
def control(spark: SparkSession) -> Iterator[Control]:
    """A connection for all tests of this file."""
    with Control.from_spark(spark) as control:
        yield control


@pytest.fixture(scope="module")
def metadata(control: Control) -> TableName:
    """The metadata table of an ingest, without images."""
    keyspace = fresh_name("registry")
    metadata, data = TableName(keyspace, "metadata"), TableName(keyspace, "data")
    control.define(create_keyspace(keyspace, Replication.parse("1")))
    for statement in (
        create_metadata(metadata, Columns()),
        create_shared("tables", keyspace),
        create_shared("classes", keyspace),
    ):
        control.define(statement)
    create_sequence(control, keyspace=keyspace)
    record = TableRecord(metadata_table=metadata, data_table=data, dataset="digits", label_type="int", numbering="name")
    claim_tables(control, record)
    control.execute(f"INSERT INTO {keyspace}.classes (dataset, name, label) VALUES (?, ?, ?)", ("digits", "zero", 0))
    options: dict[str, Any] = {"kind": "ingest", "dataset": "digits", "source": "/data", "ingest_id": new_ingest_id()}
    take_run(control, table=metadata, **options)
    return metadata


@pytest.fixture(scope="module")
def views(control: Control, metadata: TableName) -> None:
    """Two built-in views are registered."""
    registry.create(control, keyspace=metadata.keyspace)
    for name in ("sharpness", "phash"):
        register_view(control, builtin.view_of(name), keyspace=metadata.keyspace)


@pytest.fixture
def run(control: Control, metadata: TableName, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in the keyspace."""
    where = ["-k", metadata.keyspace, "--host", ",".join(control.cluster.hosts), "--port", str(control.cluster.port)]

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["registry", *arguments, *where])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_what_ingests_recorded_is_listed_and_shown(run: Run, metadata: TableName) -> None:
    assert [line.split("\t")[:2] for line in run("list")[1].splitlines()] == [
        ["dataset", "digits"],
        ["table", str(metadata)],
        ["classes", "digits"],
        ["run", f"{metadata}#1"],
    ]
    assert json.loads(run("show", f"{metadata}#1", "--json")[1])["definition"]["source"] == "/data"
    assert json.loads(run("show", "classes", "digits", "--json")[1])["definition"] == {"zero": 0}
    assert "Found: a classes and a dataset. Name the kind, too." in run("show", "digits")[2]


@pytest.mark.usefixtures("views")
def test_a_view_is_described_and_tagged(run: Run, metadata: TableName) -> None:
    assert run("list", "feature-views")[1] == "feature view\tphash@v2\nfeature view\tsharpness@v2\n"
    run("describe", "phash", "--owner", "a@example.org", "--description", "look-alikes")
    run("tag", "phash@v2", "team=vision", "use=groups")
    code, out, _ = run("tag", "feature-view", "phash", "use=", "--json")
    found = json.loads(out)
    assert (code, found["owner"], found["description"]) == (0, "a@example.org", "look-alikes")
    assert (found["tags"], found["definition"]["fields"]) == ({"team": "vision"}, {"phash": "bigint"})
    assert run("list", "feature-views")[1].splitlines()[0] == "feature view\tphash@v2\ta@example.org\tlook-alikes"
    code, _, err = run("show", "sharpness@v9")
    assert code == 1
    assert f"`imagestrata registry list -k {metadata.keyspace}` shows the names." in err


@pytest.mark.usefixtures("views")
def test_definitions_are_shown_applied_after_an_answer_and_changed(run: Run, tmp_path: Path) -> None:
    definitions = tmp_path / "features.toml"
    definitions.write_text(VIEWS, encoding="utf-8")
    assert "+ add feature view red@v1" in run("apply", str(tmp_path), "--plan")[1]
    assert "Found: neither. Nothing was changed." in run("apply", str(tmp_path))[2]
    assert "red" not in run("list")[1]
    assert run("apply", str(tmp_path), "--yes")[0] == 0
    assert run("apply", str(tmp_path), "--plan")[1].splitlines()[-1] == "nothing to do"
    shown = json.loads(run("show", "red", "--json")[1])
    assert (shown["owner"], shown["tags"], shown["definition"]["fields"]) == (
        "vision@example.org", {"team": "vision"}, {"red": "double"}
    )  # fmt: skip
    assert json.loads(run("show", "dataset", "digits", "--json")[1])["description"] == "small digits"
    definitions.write_text(VIEWS.replace('"vision"', '"other"').replace("small", "tiny"), encoding="utf-8")
    out = run("apply", str(definitions), "--yes")[1]
    assert "~ change feature view red@v1" in out
    assert "description: 'small digits' -> 'tiny digits'" in out
    assert json.loads(run("show", "red", "--json")[1])["tags"] == {"team": "other"}


@pytest.fixture
def definitions(views: None, run: Run, tmp_path: Path) -> Path:
    """A file with the definitions of `VIEWS`, which are registered."""
    place = tmp_path / "features.toml"
    place.write_text(VIEWS, encoding="utf-8")
    assert run("apply", str(place), "--yes")[0] == 0
    return place


def test_a_definition_that_an_earlier_version_registered_is_the_same(
    control: Control, metadata: TableName, run: Run, tmp_path: Path
) -> None:
    source = Python(functions, "moments")
    view = FeatureView(
        name="early", version=1, fields={"early": "float[6]"}, source=source, digest=digest_of_earlier_versions(source)
    )
    registry.create(control, keyspace=metadata.keyspace)
    document = json.dumps({**json.loads(view.to_json()), "ttl": 3600})
    entry = Entry(kind="feature view", name="early", version=1, document=document)
    registry.register(control, entry, keyspace=metadata.keyspace)
    text = f"[[feature_view]]\nname = 'early'\nsource = '{source}'\nfields = {{ early = 'float[6]' }}\n"
    (tmp_path / "early.toml").write_text(text, encoding="utf-8")
    assert run("apply", str(tmp_path), "--plan")[1].endswith("\nnothing to do\n")
    (tmp_path / "early.toml").write_text(text.replace("moments", "redness"), encoding="utf-8")
    assert "instead of 'python:tests.support.feature_functions:moments'" in run("apply", str(tmp_path), "--plan")[2]


def test_the_ttl_of_a_view_of_an_earlier_version_is_ignored_and_said_once(
    control: Control, metadata: TableName, caplog: pytest.LogCaptureFixture
) -> None:
    view = FeatureView(name="old", version=1, fields={"old": "int"}, source=Python("m", "f"), digest="0" * 64)
    document = json.dumps({**json.loads(view.to_json()), "ttl": 3600})
    registry.create(control, keyspace=metadata.keyspace)
    entry = Entry(kind="feature view", name="old", version=1, document=document)
    registry.register(control, entry, keyspace=metadata.keyspace)
    for _ in range(2):
        assert view in registry.registered_views(control, keyspace=metadata.keyspace)
    register_view(control, view, keyspace=metadata.keyspace)  # it is the same view
    told = f"old@v1 of {metadata.keyspace} was registered with a ttl of 3600 s, which no longer counts"
    assert caplog.text.count(told) == 1


def test_a_definition_never_changes_but_gets_a_next_version(run: Run, definitions: Path) -> None:
    definitions.write_text(VIEWS.replace('"double"', '"float"'), encoding="utf-8")
    assert "Found: fields {'red': 'float'} instead of {'red': 'double'}" in (found := run("apply", str(definitions))[2])
    assert "Set version = 2" in found
    definitions.write_text(VIEWS.replace('"double" }', '"float" }\nversion = 2'), encoding="utf-8")
    assert "+ add feature view red@v2" in run("apply", str(definitions), "--plan")[1]


def test_what_is_used_pinned_or_has_values_is_not_deleted(
    control: Control, metadata: TableName, run: Run, definitions: Path
) -> None:
    assert "Found: feature service sorting@v1. Delete these first." in run("delete", "red", "--yes")[2]
    values = TableName(metadata.keyspace, "metadata_phash_v2")
    control.define(create_feature_values(values, {"phash": "bigint"}))
    code, _, err = run("apply", str(definitions), "--prune", "--yes")  # sharpness is used by sorting
    assert (code, "Found: feature service sorting@v1" in err or f"Found: values in {values}" in err) == (1, True)
    assert f"Found: values in {values}. Add --drop-values" in run("delete", "phash", "--yes")[2]
    assert control.columns(values) is not None
    split, uses = (
        str(definitions.with_name("split")),
        {"features": ["phash@v2"], "label_view": None, "services": ["sorting@v1"]},
    )
    document = json.dumps({"metadata_table": str(metadata), "fingerprint": ["0"], **uses})
    registry.register(
        control, Entry(kind="split", name=split, version=1, document=document), keyspace=metadata.keyspace
    )
    assert f"Found: split {split}@v1" in run("delete", "phash", "--drop-values", "--yes")[2]
    assert f"Found: split {split}@v1" in run("delete", "sorting", "--yes")[2]
    run("tag", "split", split, "pinned=true")
    assert "Found: the tag pinned=true" in run("delete", "split", split, "--yes")[2]
    run("tag", "split", split, "pinned=")
    assert run("delete", "split", split, "--yes")[0] == 0
    assert f"drops {values}" in run("delete", "phash", "--drop-values", "--yes")[1]
    assert control.columns(values) is None
    assert "phash" not in run("list")[1]


@pytest.fixture
def embedding(control: Control, metadata: TableName) -> Iterator[FeatureView]:
    """A registered view with values and a vector index."""
    source = Python(functions, "moments")
    view = FeatureView(name="embedding", version=1, fields={"embedding": "float[6]"}, source=source, digest="0" * 64)
    registry.create(control, keyspace=metadata.keyspace)
    register_view(control, view, keyspace=metadata.keyspace)
    control.define(create_feature_values(view.table_of(metadata), {"embedding": "blob"}))
    control.define(create_vectors(view.index_table_of(metadata), 6))
    yield view
    for table in (view.table_of(metadata), view.index_table_of(metadata)):
        control.define(f"DROP TABLE IF EXISTS {table.quoted}")
    for entry in registry.entries(control, keyspace=metadata.keyspace, kind="feature view"):
        if entry.name in ("embedding", "first"):
            registry.remove(control, entry, keyspace=metadata.keyspace)


def test_a_view_that_an_sql_view_or_exported_features_have_is_not_deleted(
    control: Control, metadata: TableName, run: Run, embedding: FeatureView, tmp_path: Path
) -> None:
    delete = ("delete", "embedding", "--drop-values", "--yes")
    sql = Sql("length(embedding)")
    first = FeatureView(
        name="first", version=1, fields={"first": "int"}, source=sql, digest="0" * 64, uses=("embedding@v1",)
    )
    register_view(control, first, keyspace=metadata.keyspace)
    assert "Found: feature view first@v1. Delete these first." in run(*delete)[2]
    assert run("delete", "first", "--yes")[0] == 0
    exported = OfflineView("embedding@v1", {"embedding": "float[6]"}, 0, ())
    manifest = OfflineManifest(str(metadata), (exported,), "2026-01-01T00:00:00+00:00", "1")
    (tmp_path / "_features.json").write_text(manifest.to_json(), encoding="utf-8")
    added = f"feature export {tmp_path}@v1 is registered in {metadata.keyspace}.registry\n"
    assert [run("add", str(tmp_path))[1] for _ in range(2)] == [added, added]
    assert f"Found: feature export {tmp_path}@v1. Delete these first." in run(*delete)[2]
    product = product_at(str(tmp_path))
    assert product is not None
    lineage = Tracer(control, keyspace=metadata.keyspace).of_product(product)
    assert f"feature view embedding@v1: python:{functions}:moments" in as_text(lineage)
    assert as_svg(lineage).count("<rect") == 1 + len(lineage.nodes)
    assert run("delete", "feature-export", str(tmp_path), "--yes")[0] == 0
    tables = [embedding.table_of(metadata), embedding.index_table_of(metadata)]
    assert all(f"drops {table}" in run(*delete[:-1], "--plan")[1] for table in tables)
    assert run(*delete)[0] == 0
    assert [control.columns(table) for table in tables] == [None, None]


def test_what_the_files_lack_is_pruned(run: Run, definitions: Path) -> None:
    views = run("list", "feature-views")[1].count("\n")
    definitions.write_text('[[dataset]]\nname = "digits"\n', encoding="utf-8")
    code, out, _ = run("apply", str(definitions), "--prune", "--yes")
    assert (code, out.count("- remove")) == (0, views + 1)
    assert run("list", "feature-views")[1] == run("list", "feature-services")[1] == ""
