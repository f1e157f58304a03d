"""`python -m corpus`."""

import sys

from corpus.app import main

if __name__ == "__main__":
    sys.exit(main())
