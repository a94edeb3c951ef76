"""The operator's side: the dataset service and its client, the embedded servers, the set-up and the demo.

Nothing imports this package but tests and benchmarks. This module and the set-up need the standard library
alone, because the set-up runs before anything is installed.
"""

from formats.origin import VERSION as __version__

__all__ = ["__version__"]
