"""Runs a function of the benchmarks in a separate process, which may use another environment.

    PYTHON -m benchmarks.harness.worker MODULE:FUNCTION ARGUMENTS

The module is below `benchmarks`, the arguments are a JSON list. The last line is what the function returns, as JSON.
Only the standard library and the module are imported, because PYTHON may not have the others.
"""

import json
import os
import sys
from importlib import import_module
from typing import NoReturn


def main() -> NoReturn:
    """Call the function and print its answer."""
    module, _, function = sys.argv[1].partition(":")
    work = getattr(import_module(f"benchmarks.{module}"), function)
    print(json.dumps(work(*json.loads(sys.argv[2]))), flush=True)
    sys.stderr.flush()
    os._exit(0)  # an epoch that was not read to its end has threads that wait; their cost is reported already


if __name__ == "__main__":
    main()
