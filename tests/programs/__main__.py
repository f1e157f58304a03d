"""`python -m tests.programs`."""

import sys

from tests.every_way import main

if __name__ == "__main__":
    sys.exit(main())
