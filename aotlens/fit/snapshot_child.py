"""Read a memory snapshot in its own process, which a memory limit may end.  Stdlib only.

`python -m aotlens.fit.snapshot_child FILE` writes the devices as JSON to stdout, or the reason to stderr with
exit code 2.
"""

import json
import subprocess
import sys
from dataclasses import asdict
from typing import Any

from aotlens.errors import UserError
from aotlens.fit.snapshot import read_snapshot
from aotlens.model.memory_snapshot import FailedAllocation, Holder, MemorySnapshot
from aotlens.view.quantities import human_bytes

__all__ = ["read_in_child"]

MEMORY_LIMIT_BYTES = 16 << 30
TIME_LIMIT_S = 600


def read_in_child(path: str) -> tuple[MemorySnapshot, ...]:
    """Like `read_snapshot`, with limited memory.

    Raises:
        UserError: as `read_snapshot`; also if reading exceeds the limits of memory or time.
    """
    command = [sys.executable, "-m", "aotlens.fit.snapshot_child", path]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{path}: reading it took longer than {TIME_LIMIT_S // 60} minutes") from error
    if done.returncode == 2:
        raise UserError(done.stderr.strip())
    if done.returncode:
        limit = human_bytes(MEMORY_LIMIT_BYTES)
        raise UserError(f"{path}: reading it ended the process; it may need more than the limit of {limit}")
    return tuple(_snapshot(entry) for entry in json.loads(done.stdout))


def _snapshot(entry: dict[str, Any]) -> MemorySnapshot:
    failure = entry.pop("failure")
    holders = tuple(Holder(**holder) for holder in entry.pop("holders"))
    return MemorySnapshot(**entry, holders=holders, failure=FailedAllocation(**failure) if failure else None)


def _limit_memory() -> None:
    """Limit the memory of this process; systems without such a limit only have the time limit."""
    try:
        import resource  # not on Windows
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))


def main(path: str) -> int:
    _limit_memory()
    try:
        devices = read_snapshot(path)
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    json.dump([asdict(device) for device in devices], sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
