"""`python -m aotlens` is the `aotlens` command."""

import sys

from aotlens.cli import main

sys.exit(main())
