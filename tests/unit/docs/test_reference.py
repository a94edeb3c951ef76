"""The reference pages are compared with the code."""

import argparse
import dataclasses
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import loader
import loader.shards
from etl.secrets import PROPERTIES
from imagestrata import hub
from jobs import arguments, cache_rows, delete, featurize, ingest, relabel, shard, split, verify
from loader.order.history import Run
from loader.order.state import State
from loader.order.strata import Sampling
from schemas import cache, datasets, manifest, offline, shards

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = ROOT / "docs" / "reference"
CODE = ("schemas", "formats", "etl", "jobs", "loader", "training", "imagestrata", "benchmarks")


def source_texts(*packages: str) -> Iterator[str]:
    """The text of each module of these packages, or of all."""
    for package in packages or CODE:
        for file in (ROOT / package).rglob("*.py"):
            yield file.read_text(encoding="utf-8")


def section(page: str, heading: str) -> str:
    """The text of a page's section, up to the next heading."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", text, re.M | re.S)
    assert found, heading
    return found[1]


def first_column(text: str) -> set[str]:
    """The names in the first columns of a section's tables."""
    return {name for row in re.findall(r"^\| (`[^|]*) \|", text, re.M) for name in re.findall(r"`([^`]+)`", row)}


def field_names(*classes: Any) -> set[str]:
    """The names of all fields of these dataclasses."""
    return {one.name for kind in classes for one in dataclasses.fields(kind)}


@pytest.mark.parametrize("package", [loader, loader.shards, hub], ids=lambda package: package.__name__)
def test_every_public_name_is_in_the_reference(package: Any) -> None:
    text = (REFERENCE / "api.md").read_text(encoding="utf-8")
    assert set(package.__all__) - set(re.findall(r"\.\. auto\w+:: (\w+)", text)) == set()


@pytest.mark.parametrize(
    ("heading", "classes"),
    [
        (
            "Split manifest",
            (
                manifest.SplitManifest,
                manifest.SplitPart,
                manifest.StoredGroups,
                manifest.StoredFeature,
                manifest.FeaturePart,
            ),
        ),
        ("Features as Parquet", (offline.OfflineManifest, offline.OfflineView)),
        ("Cache manifest", (cache.CacheManifest,)),
        ("Shard manifest", (shards.ShardManifest, shards.Shard)),
        ("Version manifest", (datasets.DatasetVersion,)),
    ],
)
def test_the_fields_of_a_manifest_are_those_of_its_dataclasses(heading: str, classes: tuple[Any, ...]) -> None:
    assert first_column(section("formats.md", heading)) == field_names(*classes)


def test_the_keys_of_a_state_are_those_that_it_has() -> None:
    run = Run(begin={}, end=None, batch_size=1, world_size=1, last_batch_policy="PARTIAL")
    with_all = {"checksums": "", "sampling": Sampling("balanced", 1), "past": (run,)}
    state = State(fingerprint="", seed=0, shuffle=True, epoch=0, global_batch_size=1, rows=1, **with_all)  # type: ignore[arg-type]
    assert first_column(section("formats.md", "Loader state")) == set(state.to_dict())
    assert first_column(section("formats.md", "Past runs")) == set(run.to_dict())


def test_the_columns_of_the_metadata_table_are_those_of_its_definition() -> None:
    cql = (ROOT / "schemas" / "cql" / "metadata.cql").read_text(encoding="utf-8")
    columns = {name.strip('"$') for name in re.findall(r'^    (["$\w]+) ', cql, re.M)}
    assert first_column(section("formats.md", "Metadata")) == columns


def test_every_table_definition_is_shown() -> None:
    text = (REFERENCE / "formats.md").read_text(encoding="utf-8")
    files = {file.name for file in (ROOT / "schemas" / "cql").glob("*.cql")} - {"keyspace.cql"}
    assert {name for name in files if f"schemas/cql/{name}" not in text} == set()


def test_the_format_versions_are_those_that_the_code_writes() -> None:
    text = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    written = {"split": manifest, "metadata cache": cache, "shards": shards, "dataset version": datasets}
    for name, module in written.items():
        assert f"| {name} | {module.FORMAT} |" in text


def test_every_extra_is_described() -> None:
    text = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {name for name in project["optional-dependencies"] if f"imagestrata[{name}]" not in text} == set()


def test_the_tests_that_are_named_exist() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:unit|integration|e2e)/[^`]+)`", text))
    assert len(named) > 15
    assert {name for name in named if not (ROOT / "tests" / name).exists()} == set()


def configured_options(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The destinations of all options that a job takes from Spark's configuration."""
    found: set[str] = set()

    def parse(
        parser: argparse.ArgumentParser, argv: Sequence[str], *, needed: Any = arguments.both_tables, **rest: Any
    ) -> Any:
        wanted: Mapping[str, Sequence[str]] = needed(parser.parse_args(argv))
        found.update(wanted, *wanted.values())
        return None, argparse.Namespace(json=False)

    for module in [one for name, one in sys.modules.items() if name.startswith("jobs.") and one is not arguments]:
        if getattr(module, "parse", None) is arguments.parse:
            monkeypatch.setattr(module, "parse", parse)
    for job in (ingest, split, verify):
        job.parse_args([])
    cache_rows.parse_args(["-o", "x"])
    featurize.parse_args(["--features", "phash"])
    relabel.parse_args(["x.csv"])
    delete.parse_args(["--where", "true", "--reason", "x"])
    shard.parse_args(["-o", "x"])
    return found


def test_the_settings_of_spark_are_those_that_the_code_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (REFERENCE / "settings.md").read_text(encoding="utf-8")
    pattern = r"spark\.imagestrata(?:\.[a-z0-9-]+)+(?![a-z0-9.*-])"
    written = {name for source in source_texts() for name in re.findall(pattern, source)}
    used = {f"spark.imagestrata.{name.replace('_', '-')}" for name in configured_options(monkeypatch)}
    used |= set(PROPERTIES.values())
    assert len(used) == 9
    assert set(re.findall(pattern, text)) == used | written


def test_the_environment_variables_are_those_that_the_code_reads() -> None:
    text = (REFERENCE / "settings.md").read_text(encoding="utf-8")
    access = {f"IMAGESTRATA_{one.name.upper()}" for one in dataclasses.fields(loader.Access)}
    access |= {f"IMAGESTRATA_{name}_FILE" for name in ("PASSWORD", "PASSPHRASE")}
    ours = r"IMAGESTRATA_[A-Z_]*[A-Z]"
    assert set(re.findall(ours, text)) == access | {name for one in source_texts() for name in re.findall(ours, one)}
    others = {
        name
        for source in source_texts(*set(CODE) - {"benchmarks"})
        for name in re.findall(r"""(?:environ|env|environment)(?:\.get\(|\[)"([A-Z][A-Z0-9_]+)"\]?""", source)
    }
    assert "AWS_ENDPOINT_URL" in others
    assert {name for name in others - _OF_TOOLS if f"`{name}`" not in text} == set()


_OF_TOOLS = {"CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "PATH", "UV_CACHE_DIR", "SSL_CERT_FILE"}
"""Variables of other programs that are passed on."""
