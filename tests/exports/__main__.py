"""`python -m tests.exports`."""

import sys

from tests.exports.every_program import main

if __name__ == "__main__":
    sys.exit(main())
