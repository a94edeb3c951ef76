"""How a job says in one line why it failed."""

import os
import re
import sys

NO_JAVA = (
    "Wanted Spark to start on Java 17. Found: it did not start; its own messages are above. "
    f"JAVA_HOME is {os.environ.get('JAVA_HOME') or 'not set'}. Set it to a Java 17, or run `make setup` again."
)


def failed(name: str, message: str) -> int:
    """Print one line that says why a job failed; returns the exit code."""
    print(f"{name}: {message}", file=sys.stderr, flush=True)
    return 1


def not_installed(error: ModuleNotFoundError) -> str:
    """Which library of the extra `spark` is missing, and how to install it."""
    library = (error.name or "").partition(".")[0]
    return f"Wanted the library {library}. Found: it is not installed. Run: pip install 'imagestrata[spark]'"


def spark_error(error: Exception) -> str:
    """One line for an error of Spark: our own message if an executor raised it, else the innermost cause."""
    text = str(error)
    return NO_JAVA if "JAVA_GATEWAY_EXITED" in text else executor_error(text) or f"Spark failed. {_cause(error)}"


def executor_error(text: str) -> str | None:
    """Our own message in the traces of an error that an executor raised; None if there is none."""
    found = re.findall(r"^(?:etl|formats|schemas)\.errors\.\w+: (.+)$", text, re.MULTILINE)
    return found[-1] if found else None


def _cause(error: Exception) -> str:
    """The innermost cause of one of Spark's own errors, as one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return f"Found: {(causes or lines or [type(error).__name__])[-1 if causes else 0]}"
