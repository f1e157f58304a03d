"""`python -m aotlens.worker`: the server process; its client is on stdin and stdout."""

import sys

from aotlens.worker.start import main

sys.exit(main())
