"""What each job reads and writes, for OpenLineage events.

Events are off unless ``spark.imagestrata.openlineage`` says where they go.
"""

from functools import singledispatch
from typing import TYPE_CHECKING, Any

from etl.catalog.events import SETTING, Dataset, Flow, RunEvents
from etl.features.plan import FeaturizePlan
from etl.ingest.plan import IngestPlan
from etl.labels.plan import RelabelPlan
from etl.shards.plan import ShardPlan
from etl.splits.plan import SplitPlan
from schemas import TableName
from schemas.features import ViewName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def events_of(spark: "SparkSession", *, name: str, plan: object | None) -> RunEvents:
    """The events of a run of a job, as ``spark.imagestrata.openlineage`` says; none if the setting is empty or the plan
    is None. Raises `EtlError` if the setting is not valid, or the client is not installed.
    """
    from etl.cassandra.cluster import Cluster

    target = (spark.conf.get(SETTING, None) or None) if plan is not None else None
    host, port = ("", 0) if target is None else Cluster.from_spark(spark).first
    return RunEvents(
        target, name=name, flow=lambda report: flow_of(plan, report), cassandra=f"cassandra://{host}:{port}"
    )


@singledispatch
def flow_of(plan: object, report: Any) -> Flow:
    """What a job reads and writes, from its plan, and once it is done from its report, too."""
    raise TypeError(f"Wanted a plan of a job. Found: {type(plan).__name__}")


@flow_of.register
def _(plan: IngestPlan, report: Any) -> Flow:
    version, rows, size = (report.fingerprint, report.images, report.bytes) if report else (None, None, None)
    if plan.target is not None:
        outputs = [Dataset(plan.target, version, rows, size)]
    else:
        tables = plan.tables
        outputs = [Dataset(tables.data, version, rows, size), Dataset(tables.metadata, version, rows)]
    return Flow([Dataset(plan.source.address)], outputs)


@flow_of.register
def _(plan: SplitPlan, report: Any) -> Flow:
    source = plan.metadata_in or plan.metadata_table
    outputs = []
    if report is not None and report.out is not None:
        parts = zip(report.fingerprints, report.rows, strict=True)
        outputs = [Dataset(part_of(report.out, index), print_, rows) for index, (print_, rows) in enumerate(parts)]
    return Flow([] if source is None else [Dataset(source)], outputs)


@flow_of.register
def _(plan: ShardPlan, report: Any) -> Flow:
    inputs = []
    if plan.split is not None:
        version = report.source_fingerprint if report else None
        inputs.append(Dataset(part_of(plan.split, plan.index), version))
    if plan.source is not None:
        inputs.append(Dataset(plan.source.address))
    inputs += [Dataset(table) for table in (plan.data_table, plan.metadata_table) if table is not None]
    if report is None:
        return Flow(inputs, [Dataset(plan.out)])
    return Flow(inputs, [Dataset(report.out, report.fingerprint, report.images, report.bytes, report.shards)])


@flow_of.register
def _(plan: FeaturizePlan, report: Any) -> Flow:
    outputs = []
    if report is not None:
        outputs = [
            Dataset(TableName.parse(report.tables[title]), title, counts.computed)
            for title, counts in report.views.items()
        ]
    return Flow([Dataset(plan.data_table), Dataset(plan.metadata_table)], outputs)


@flow_of.register
def _(plan: RelabelPlan, report: Any) -> Flow:
    name = ViewName.parse(report.view).name if report else plan.view
    table = plan.metadata_table.derived(f"_{name}")
    written = Dataset(table, report.view, report.images) if report else Dataset(table)
    return Flow([Dataset(plan.labels), Dataset(plan.metadata_table)], [written])


def part_of(address: str, index: int) -> str:
    """The name of one split of a folder, for events."""
    return f"{address.rstrip('/')}/split={index}"
