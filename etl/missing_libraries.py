"""What a job says where a library is not installed: one line, not a traceback."""

import sys
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

# Libraries of other extras than "spark".
_EXTRAS = {"s3fs": "s3", "imagehash": "looks"}


def explain_in_jobs() -> None:
    """Explain missing libraries if this program is a job. Jobs import `etl` before anything that may be missing."""
    if Path(sys.argv[0]).parent.name == "jobs":
        sys.excepthook = _explain


def _explain(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        sys.__excepthook__(kind, error, trace)
        return
    library = error.name.partition(".")[0]
    mend = f"Do: pip install 'imagestrata[{_EXTRAS.get(library, 'spark')}]'"
    if sys.version_info >= (3, 12) and find_spec("pyspark") is None:
        mend = "Spark 3.5 supports Python up to 3.11. Do: in an environment with Python 3.11, " + mend[4:]
    script = Path(sys.argv[0]).name
    sys.stderr.write(f"{script}: Wanted the library {library}. Found: it is not installed. {mend}\n")
