"""The Spark side: transforms of DataFrames, and the edges that touch Cassandra and storage.

Errors::

    EtlError(Exception)          a job cannot go on; its message is the one line that its user reads
    ├── UnreachableError         Cassandra does not answer, or refuses us
    ├── SourceError              a folder holds nothing that can be ingested
    ├── ConflictError            rows are there already, from another source
    ├── TableError               a table is missing, empty, or has other columns or values than a job can use
    ├── WeightsError             class weights that do not fit the classes
    └── OutputExistsError        the place for the output is taken
"""

from etl.errors import (
    ConflictError,
    EtlError,
    OutputExistsError,
    SourceError,
    TableError,
    UnreachableError,
    WeightsError,
)
from etl.missing_libraries import explain_in_jobs

__all__ = [
    "ConflictError",
    "EtlError",
    "OutputExistsError",
    "SourceError",
    "TableError",
    "UnreachableError",
    "WeightsError",
]

explain_in_jobs()
