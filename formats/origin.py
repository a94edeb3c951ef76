"""The version of this software, and when and by which version a file was written."""

from datetime import UTC, datetime

# The one place of the version. It is code, not metadata: it is right in a checkout, a wheel and a zip for executors.
VERSION = "0.2.0"


def created() -> str:
    """The current time in UTC, to the second, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def code_version() -> str:
    """The version that manifests record."""
    return VERSION
