"""``python -m imagestrata`` is the command ``imagestrata``."""

import sys

from imagestrata.cli import main

if __name__ == "__main__":
    sys.exit(main())
