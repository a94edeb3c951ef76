"""Computing features of real tables: built-in ones, functions of users, and functions that misbehave."""

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from etl.cassandra import registry
from etl.cassandra.control import Control
from etl.cassandra.registry import registered_views
from etl.catalog.definitions import plan_changes
from etl.errors import ConflictError, FunctionError
from etl.features.columns import find_fields
from etl.features.computing.builtin import phash
from etl.features.computing.pictures import Picture
from etl.features.report import ViewCounts
from schemas import TableName, image_id
from schemas.feature_sources import Labels
from schemas.features import FeatureView, ViewName, cql_type
from schemas.tables import create_feature_values
from tests.support import feature_functions
from tests.support.features import FUNCTIONS, digest_of_earlier_versions, featurize, ingest
from tests.support.pictures import texture
from tests.support.services import fresh_name
from tests.support.trees import picture, plant

SEEDS = range(8)


def values(control: Control, keyspace: str, view: str, *fields: str) -> dict[Any, list[tuple[Any, ...]]]:
    """The values of each image, the newest first."""
    found: dict[Any, list[tuple[Any, ...]]] = {}
    names = ", ".join(("id", "sequence", "error", *fields))
    for row in control.execute(f"SELECT {names} FROM {keyspace}.metadata_{view}"):
        found.setdefault(row.id, []).append(tuple(row)[1:])
    return found


def name_of(keyspace: str, seed: int) -> Any:
    return image_id(keyspace, b"", f"a/{seed}.png".encode())


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Tables of small images. Each test adds views of other names."""
    keyspace, tree = fresh_name("test"), tmp_path_factory.mktemp("tree")
    ingest(spark, plant(tree, {f"a/{seed}.png": picture(seed) for seed in SEEDS}), keyspace)
    return keyspace


def titles(control: Control, keyspace: str, *names: str) -> list[str]:
    """The registered views with these names."""
    return [view.title for view in registered_views(control, keyspace=keyspace) if view.name in names]


def test_values_are_those_of_the_images_and_are_computed_once(
    spark: SparkSession, control: Control, keyspace: str, tmp_path: Path
) -> None:
    images = {f"a/{seed}.png": texture(seed) for seed in SEEDS}
    tree = plant(tmp_path / "tree", images)
    ingest(spark, tree, keyspace)
    report = featurize(spark, keyspace, "phash,size", f"moments={FUNCTIONS}:moments", f"about={FUNCTIONS}:about")
    assert report.views == dict.fromkeys(("phash@v2", "size@v1", "moments@v1", "about@v1"), ViewCounts(8, 0))
    assert (report.images, report.gone, report.sequence) == (8, 0, 2)
    hashes, moments = values(control, keyspace, "phash_v2", "phash"), values(control, keyspace, "moments_v1", "moments")
    about = values(control, keyspace, "about_v1", "about_bytes", "about_kind")
    for path, data in images.items():
        name = image_id(keyspace, b"", path.encode())
        assert hashes[name] == [(1, None, phash(Picture(data)))]
        assert about[name] == [(1, None, len(data), "PNG")]
        ((_, _, stored),) = moments[name]
        assert len(stored) == 24
        assert np.isfinite(struct.unpack("<6f", stored)).all()
    again = featurize(spark, keyspace, "phash,size,moments,about@v1")
    assert (again.images, again.sequence) == (0, None)
    assert str(again).startswith(f"all images of {keyspace}.metadata have phash@v2, size@v1, moments@v1, about@v1")
    plant(tmp_path / "tree", {"a/0.png": texture(100), "a/new.png": texture(101)})
    ingest(spark, tree, keyspace)
    more = featurize(spark, keyspace, "phash,entropy")
    assert more.views == {"phash@v2": ViewCounts(2, 0), "entropy@v2": ViewCounts(9, 0)}
    # values belong to the run since which an image has its bytes, although the second ingest has written it again
    late = values(control, keyspace, "entropy_v2")
    assert [late[name_of(keyspace, seed)] for seed in (0, 1)] == [[(3, None)], [(1, None)]]
    changed = values(control, keyspace, "phash_v2", "phash")[name_of(keyspace, 0)]
    assert changed == [(3, None, phash(Picture(texture(100)))), (1, None, phash(Picture(images["a/0.png"])))]
    plant(tmp_path / "tree", {"a/0.png": images["a/0.png"]})  # the first bytes again are the newest value again
    ingest(spark, tree, keyspace)
    assert featurize(spark, keyspace, "phash").views == {"phash@v2": ViewCounts(1, 0)}
    assert [row[0] for row in values(control, keyspace, "phash_v2")[name_of(keyspace, 0)]] == [5, 3, 1]


FAULTS = {
    "raises": (1, "LookupError: no such thing"),
    "hangs": (2, "no value within 5 s"),
    "crashes": (3, "its process ended with signal 11"),
    "reshapes": (4, "Wanted float[2] for reshapes. Found: list of 3 items"),
}


def test_functions_that_fail_on_an_image_cost_only_that_image(
    spark: SparkSession, control: Control, tables: str
) -> None:
    # One function never ends. A machine under load needs some seconds for the others, which start a process first.
    report = featurize(spark, tables, *(f"{name}={FUNCTIONS}:{name}" for name in FAULTS), timeout=5)
    assert report.views == {f"{name}@v1": ViewCounts(7, 1) for name in FAULTS}
    query = f"SELECT path, stage, reason FROM {tables}.quarantine WHERE ingest_id = {report.run_id}"
    assert query in str(report)
    wanted = sorted((f"a/{bad}.png", "feature", f"{name}@v1: {reason}") for name, (bad, reason) in FAULTS.items())
    assert sorted(tuple(row) for row in control.execute(query)) == wanted
    for name, (bad, reason) in FAULTS.items():
        assert values(control, tables, f"{name}_v1", name)[name_of(tables, bad)] == [(1, reason, None)]
    assert featurize(spark, tables, *FAULTS, timeout=5).images == 0
    again = featurize(spark, tables, "raises", f"also={FUNCTIONS}:raises", retry=True)
    assert again.views == {"raises@v1": ViewCounts(0, 1), "also@v1": ViewCounts(7, 1)}
    (row,) = control.execute(f"SELECT reason FROM {tables}.quarantine WHERE ingest_id = {again.run_id}")
    assert row.reason == "raises@v1: LookupError: no such thing; also@v1: LookupError: no such thing"


def test_a_view_keeps_its_function(
    spark: SparkSession,
    control: Control,
    tables: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    featurize(spark, tables, f"mine={FUNCTIONS}:redness")
    with pytest.raises(ConflictError, match=r"Wanted mine@v1 as it was registered.*Make it a new version: mine@v2="):
        featurize(spark, tables, f"mine={FUNCTIONS}:about")
    with pytest.raises(ConflictError, match=r"Wanted mine@v2, the next version\. Found: mine@v3"):
        featurize(spark, tables, f"mine@v3={FUNCTIONS}:about")
    featurize(spark, tables, f"mine@v2={FUNCTIONS}:about")
    assert titles(control, tables, "mine") == ["mine@v2", "mine@v1"]
    with monkeypatch.context() as patch:
        patch.setattr("etl.features.views.digest_of", digest_of_earlier_versions)
        featurize(spark, tables, f"early={FUNCTIONS}:redness")
    assert "tests.support" not in caplog.text
    assert featurize(spark, tables, "early").images == 0
    assert "early@v1 was registered by an earlier version" in caplog.text
    assert f"{FUNCTIONS} imports: tests.support. If they have changed" in caplog.text
    own = {FUNCTIONS: Path(feature_functions.__file__).read_bytes(), "tests.support": b"changed"}
    monkeypatch.setattr("etl.features.computing.functions.own_modules", lambda module: own)
    message = r"the module, or one that it imports, has changed since then, .*mine@v3=tests\.support"
    with pytest.raises(ConflictError, match=message):
        featurize(spark, tables, "mine")


def test_the_version_of_a_view_that_was_removed_is_not_used_again(
    spark: SparkSession, control: Control, tables: str
) -> None:
    """The run that computed it may still write."""
    featurize(spark, tables, f"gone={FUNCTIONS}:redness")
    (view,) = registry.entries(control, keyspace=tables, kind=registry.FEATURE_VIEW, name="gone")
    registry.remove(control, view, keyspace=tables)
    with pytest.raises(ConflictError, match=r"Wanted gone@v2, the next version\. Found: gone@v1"):
        featurize(spark, tables, f"gone@v1={FUNCTIONS}:about")
    featurize(spark, tables, f"gone={FUNCTIONS}:about")
    assert titles(control, tables, "gone") == ["gone@v2"]

    (second,) = registered_views(control, keyspace=tables, name="gone")
    third, metadata = replace(second, version=3), TableName(tables, "metadata")
    registry.register_view(control, third, keyspace=tables)  # as a run does that has just begun
    fields = {name: cql_type(kind) for name, kind in third.fields.items()}
    control.define(create_feature_values(third.table_of(metadata), fields))
    for wanted, found in ((ViewName("gone"), second), (ViewName("gone", 3), third)):
        assert [one.view for one in find_fields(control, metadata, names=(), pinned=[wanted])] == [found]


def test_a_feature_view_and_a_label_view_have_two_names(spark: SparkSession, control: Control, tables: str) -> None:
    of_labels = FeatureView(name="both", version=1, fields={"both": "int"}, source=Labels("x.csv"), digest="0" * 64)
    registry.create(control, keyspace=tables)
    registry.register_view(
        control, of_labels, keyspace=tables, kind=registry.label_views_of(TableName(tables, "metadata"))
    )
    message = r"Wanted both as the name of a feature view\. Found: a label view of meta"
    with pytest.raises(ConflictError, match=message):
        featurize(spark, tables, f"both={FUNCTIONS}:redness")
    defined = registry.Entry(kind=registry.FEATURE_VIEW, name="both", version=1, document="{}")
    with pytest.raises(ConflictError, match=message):
        plan_changes(control, [defined], keyspace=tables)


def test_functions_that_do_not_exist_are_refused(spark: SparkSession, control: Control, tables: str) -> None:
    for features, message in (
        ("nothing", r"Wanted a feature view that is built in \(size, .* Found: nothing\. Define a new one: nothing="),
        ("phash=os:getcwd", "built in"),
        ("phash=sql:bytes * 2", r"Wanted another name for sql:bytes \* 2\. Found: phash, which is built in"),
        ("lost=no_such_module:f", r"No module named 'no_such_module'.*--py-files"),
        (f"lost={FUNCTIONS}:nothing", "no such name"),
        (f"error={FUNCTIONS}:redness", "Wanted another name than error, which is a column of every table of values"),
        ("lost=sql:since + 1", r"other than ids, labels and ingest_id, ingested_at, since, .* Found: since\."),
        (f"lost={FUNCTIONS}:unclear", r"list\[numpy\.ndarray\]\. Found: no annotation"),
    ):
        with pytest.raises((FunctionError, ConflictError), match=message):
            featurize(spark, tables, features)
    assert titles(control, tables, "nothing", "phash", "lost", "error") == []
