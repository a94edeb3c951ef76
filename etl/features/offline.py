"""Features of a whole table as Parquet: a folder for each view, and a manifest, which is written last.

::

    features/
      sharpness@v2/part-*.parquet    id: 16 bytes, sequence, event_timestamp, created_timestamp, sharpness
      _features.json                 the file that readers trust
"""

import re
from collections.abc import Sequence

from pyspark.sql import DataFrame

from etl.writing.publication import Kind, Publication
from formats.origin import code_version, created
from schemas import SchemaError, TableName
from schemas.features import FeatureView, ViewName
from schemas.offline import NAME, OfflineManifest, OfflineView


def _is_view(name: str) -> bool:
    try:
        return ViewName.parse(name).version is not None
    except SchemaError:
        return False


_KIND = Kind(
    new="features",
    old="folder of features",
    otherwise="use another folder with --offline",
    manifests=(NAME,),
    folders=_is_view,
    files=re.compile(r"[^/]+/\.?part-.*\.parquet(\.crc)?").fullmatch,
    beside=re.compile(rf"\.{re.escape(NAME)}\..*").fullmatch,
)


def features_folder(address: str, *, overwrite: bool) -> Publication:
    """A folder of features in the making. Raises `OutputExistsError` unless it is free, or may be replaced."""
    return Publication(address, _KIND, overwrite=overwrite)


def write_values(folder: Publication, view: FeatureView, rows: DataFrame) -> None:
    """Write the values of a view aside."""
    rows.write.option("compression", "zstd").parquet(folder.aside(view.title))


def publish_features(folder: Publication, views: Sequence[FeatureView], *, metadata: TableName) -> OfflineManifest:
    """Publish the values that were written aside. Files that the manifest does not name are removed."""
    found = []
    for view in views:
        files = folder.files(view.title, into=view.title)
        rows = sum(file.rows for file in files)
        found.append(OfflineView(view=view.title, fields=dict(view.fields), rows=rows, files=tuple(files)))
    named = {file.path for one in found for file in one.files}
    folder.move_in({path: path for path in named})
    manifest = OfflineManifest(
        metadata_table=str(metadata), views=tuple(found), created=created(), code_version=code_version()
    )
    folder.publish(manifest.to_json(), files=named)
    return manifest
