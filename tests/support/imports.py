"""Finds out which libraries a program imports."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAVY = frozenset(
    ("PIL", "acsylla", "cassandra", "fastapi", "lightning", "nvidia", "pandas", "py4j", "pyarrow", "pyspark")
) | {"torch", "torchvision"}
"""Libraries that are slow to import, or start something."""


def heavy_imports(code: str) -> set[str]:
    """The heavy libraries that a program has imported when it ends. It runs in the root of the checkout."""
    told = f"{code}\nimport sys\nprint('IMPORTED', *{set(HEAVY)!r} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", told], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split()[1:])
