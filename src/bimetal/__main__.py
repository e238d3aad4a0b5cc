"""``python -m bimetal`` is the command ``bimetal``."""

from __future__ import annotations

import sys

from bimetal.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
