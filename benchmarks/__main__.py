"""`python -m benchmarks [NAME…]`: run the benchmarks, each in its own process, then update the tables of
`benchmarks/README.md`.
"""

import subprocess
import sys

from benchmarks.tables import write_readme

NAMES = ("imports", "overhead", "latency", "partition", "memory", "peak", "growth", "correctness")
BY_NAME = ("editor", "fake", "gpu", "logs", "reuse", "tui")
"""Benchmarks that run only by name."""


def main() -> None:
    names = sys.argv[1:] or NAMES
    known = (*NAMES, *BY_NAME)
    unknown = sorted(set(names) - set(known))
    if unknown:
        sys.exit(f"no benchmark called {', '.join(unknown)}; there are: {', '.join(known)}")
    for name in names:
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False)
        if done.returncode:
            sys.exit(f"benchmarks.{name} failed with exit code {done.returncode}")
    write_readme()


if __name__ == "__main__":
    main()
