"""Python imports this at start-up of each process of a measured program, before the program.

Invariant: it imports neither torch nor a library, and does nothing in a process that the harness did not
start.
"""

import os

if os.environ.get("CORPUS_SCRIPT"):
    import corpus_observer

    from corpus import torchvision_ops

    corpus_observer.install()
    torchvision_ops.install()
