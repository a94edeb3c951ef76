"""Features of a whole table as Parquet: a folder for each view, and a manifest, which is written last.

::

    features/
      sharpness@v2/part-*.parquet    id: 16 bytes, sequence, event_timestamp, created_timestamp, sharpness
      _features.json                 the file that readers trust
"""

import re
from collections.abc import Sequence

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from etl.attempt import Attempt
from formats.origin import code_version, created
from schemas import SchemaError, SplitFile, TableName
from schemas.features import FeatureView, ViewName
from schemas.offline import NAME, OfflineManifest, OfflineView

_PART = re.compile(r"\.?part-.*\.parquet(\.crc)?")


class OfflineOutput(Attempt):
    """The output of features as Parquet."""

    def __init__(self, address: str, *, overwrite: bool) -> None:
        """Prepare the folder. Raises `OutputExistsError` unless it is free, or ``overwrite`` may replace it."""
        super().__init__(address, what="features")
        otherwise = "use another folder with --offline"
        self._check_free(
            old="folder of features", manifests=[NAME], is_ours=self._is_ours, overwrite=overwrite, otherwise=otherwise
        )

    def _is_ours(self, name: str) -> bool:
        if name == NAME or name.startswith(f".{NAME}."):
            return True
        try:
            is_view = ViewName.parse(name).version is not None
        except SchemaError:
            return False
        return is_view and all(_PART.fullmatch(file) for file in self._storage.files(name))

    def write(self, view: FeatureView, rows: DataFrame) -> None:
        """Write the values of a view aside."""
        rows.write.option("compression", "zstd").parquet(self.aside(view.title))

    def publish(self, views: Sequence[FeatureView], *, metadata: TableName) -> OfflineManifest:
        """Move the files into the folder, and write the manifest last. Files that it does not name are removed."""
        found = []
        for view in views:
            files = []
            for path in sorted(self._storage.files(f"{self._attempt}/{view.title}")):
                if _PART.fullmatch(path) and path.endswith(".parquet"):
                    with self._storage.open(f"{self._attempt}/{view.title}/{path}") as file:
                        rows = pq.read_metadata(file).num_rows
                    self._storage.move(f"{self._attempt}/{view.title}/{path}", f"{view.title}/{path}")
                    files.append(SplitFile(f"{view.title}/{path}", rows))
            found.append(
                OfflineView(
                    view=view.title,
                    fields=dict(view.fields),
                    rows=sum(file.rows for file in files),
                    files=tuple(files),
                )
            )
        manifest = OfflineManifest(
            metadata_table=str(metadata), views=tuple(found), created=created(), code_version=code_version()
        )
        named = {file.path for one in found for file in one.files}
        self._storage.settle(sorted(named))
        self._storage.publish_text(NAME, manifest.to_json())
        self._remove_stale()
        for folder in self._storage.names():
            for old in self._storage.files(folder) if self._is_ours(folder) and folder != NAME else ():
                if f"{folder}/{old}" not in named:
                    self._storage.remove(f"{folder}/{old}")
        return manifest
