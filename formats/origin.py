"""What manifests tell of their making: when, and by which version of this software."""

from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version


def created() -> str:
    """Now, in UTC and to the second, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def code_version() -> str:
    """The installed version of this software, or ``unknown`` where it is shipped as a zip."""
    try:
        return version("imagestrata")
    except PackageNotFoundError:
        return "unknown"
