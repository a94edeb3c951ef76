"""The feature views that names of feature services stand for."""

import json

import pytest
from pyspark.sql import SparkSession

from etl.cassandra import registry
from etl.cassandra.control import Control
from etl.cassandra.registry import FEATURE_SERVICE, Entry
from etl.errors import TableError
from etl.features.services import with_services
from schemas.features import ViewName, parse_feature
from schemas.tables import Replication, create_keyspace
from tests.support.services import fresh_name

SERVICES = {("sorting", 1): ["size@v1", "red@v1"], ("sorting", 2): ["red@v2"], ("search", 1): ["red@v2", "blue@v1"]}


@pytest.fixture(scope="module")
def keyspace(spark: SparkSession) -> str:
    """A keyspace with these services."""
    name = fresh_name("services")
    with Control.from_spark(spark) as control:
        control.define(create_keyspace(name, Replication.parse("1")))
        registry.create(control, keyspace=name)
        for (service, version), views in SERVICES.items():
            document = json.dumps({"format": 1, "views": views})
            entry = Entry(kind=FEATURE_SERVICE, name=service, version=version, document=document)
            registry.register(control, entry, keyspace=name)
    return name


def views(control: Control, keyspace: str, text: str) -> tuple[str, list[str]]:
    features = [parse_feature(one) for one in text.split(",")]
    found, services = with_services(control, features, keyspace=keyspace)
    assert all(isinstance(one, ViewName) for one in found)
    return ",".join(map(str, found)), list(services)


@pytest.mark.parametrize(
    ("asked", "wanted", "services"),
    [
        ("size,red@v1", "size,red@v1", []),
        ("service:sorting", "red@v2", ["sorting@v2"]),
        ("service:sorting@v1", "size@v1,red@v1", ["sorting@v1"]),
        ("red,service:search,blue", "red@v2,blue@v1", ["search@v1"]),
        ("service:sorting,service:search", "red@v2,blue@v1", ["sorting@v2", "search@v1"]),
    ],
)
def test_a_service_stands_for_its_views(
    control: Control, keyspace: str, asked: str, wanted: str, services: list[str]
) -> None:
    assert views(control, keyspace, asked) == (wanted, services)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            "service:other",
            r"Wanted a feature service of .*: search@v1, sorting@v2, sorting@v1\. Found: service:oth",
        ),
        ("service:sorting@v3", "Found: service:sorting@v3"),
        ("service:sorting@v1,service:search", "Wanted one version of red. Found: red@v1 and red@v2 in service:sort"),
        ("red@v1,red@v2", "Wanted one version of red"),
    ],
)
def test_other_services_and_two_versions_of_a_view_are_refused(
    control: Control, keyspace: str, asked: str, message: str
) -> None:
    with pytest.raises(TableError, match=message):
        views(control, keyspace, asked)
