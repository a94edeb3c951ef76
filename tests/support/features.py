"""Features of tables of a test."""

import hashlib
import importlib
import inspect
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from etl.features.computing.pictures import DECODER
from etl.features.plan import FeatureRequest, FeaturizePlan
from etl.features.report import FeaturizeReport
from etl.ingest import ingestion
from etl.ingest.plan import IngestPlan
from etl.sources.plan import SourcePlan
from jobs import featurize as job
from schemas import TableName
from schemas.feature_sources import Python

FUNCTIONS = "tests.support.feature_functions"
"""The module with functions."""


def tables_of(keyspace: str) -> dict[str, Any]:
    """The tables of a test, as fields of plans."""
    return {f"{name}_table": TableName(keyspace, name) for name in ("data", "metadata")}


def ingest(spark: SparkSession, source: Path, keyspace: str, **options: Any) -> None:
    """Ingest a tree of class folders."""
    ingestion.run(spark, plan=IngestPlan(source=SourcePlan(address=str(source)), **tables_of(keyspace), **options))


def featurize(
    spark: SparkSession, keyspace: str, *features: str, preprocess: str | None = None, **options: Any
) -> FeaturizeReport:
    """Compute features, as they are written on the command line."""
    requests = FeatureRequest.parse_all(features, preprocess=preprocess)
    plan = FeaturizePlan(**tables_of(keyspace), features=requests, **options)
    return job.run(spark, plan=plan)


def digest_of_earlier_versions(source: Python) -> str:
    """What earlier versions registered of a function of pixels: the text of its module, and the decoder."""
    text = inspect.getsource(importlib.import_module(source.module))
    return hashlib.sha256((text + DECODER).encode()).hexdigest()
