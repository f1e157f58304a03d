"""Which releases of Python and torch one run of CI takes: each Python once.

As many runs as there are releases of torch take all pairs.

`python scripts/release/matrix.py TURN` prints `pairs=[{"python": …, "torch": …}, …]` for a workflow's output.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from aotlens.torch_versions import NEWEST, OLDEST

PYTHONS = ("3.11", "3.12", "3.13")
RELEASES = tuple(f"{OLDEST[0]}.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1))


def pairs(turn: int) -> list[dict[str, str]]:
    """Return one pair for each Python, with different releases of torch."""
    return [
        {"python": python, "torch": RELEASES[(turn + 2 * index) % len(RELEASES)]}
        for index, python in enumerate(PYTHONS)
    ]


if __name__ == "__main__":
    print(f"pairs={json.dumps(pairs(int(sys.argv[1])))}")
