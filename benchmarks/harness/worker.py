"""A function of the benchmarks in a separate process, perhaps in a separate environment.

    PYTHON -m benchmarks.harness.worker MODULE:FUNCTION ARGUMENTS

The module is below `benchmarks`, the arguments are a JSON list. The last line is what the function returns, as JSON.
Nothing but the standard library and the module is imported, as PYTHON may know no other.
"""

import json
import os
import sys
from importlib import import_module
from typing import NoReturn


def main() -> NoReturn:
    """Do what is ordered."""
    module, _, function = sys.argv[1].partition(":")
    work = getattr(import_module(f"benchmarks.{module}"), function)
    print(json.dumps(work(*json.loads(sys.argv[2]))), flush=True)
    sys.stderr.flush()
    os._exit(0)  # an epoch that is not read to its end has threads that wait; their cost is reported already


if __name__ == "__main__":
    main()
