"""Operating system calls of the server and its children.

Invariant: no process that a trace started outlives the server, and no child reads the server's pipes.
"""

import mmap
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

__all__ = [
    "child_pids",
    "default_memory_limit_bytes",
    "end_tree",
    "resident_bytes",
    "take_over_stdio",
    "tree",
]


def take_over_stdio() -> tuple[int, int]:
    """Return descriptors for the client's pipes; other prints go to stderr, other reads see the end.

    A single byte of foreign text between protocol lines would break the protocol, and native libraries write
    to descriptor 1 without `sys.stdout`.
    """
    reading, writing = os.dup(0), os.dup(1)  # dup makes them private: programs we start do not inherit them
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return reading, writing


def end_tree(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process that has its own group, and what it started, on any system."""
    if sys.platform == "win32":
        command = ["taskkill", "/F", "/T", "/PID", str(process.pid)]
        subprocess.run(command, capture_output=True, check=False)  # fails if it has ended already
    elif hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):  # macOS denies this for an ended process
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def child_pids(pid: int) -> tuple[int, ...]:
    """Return the direct children of a process; empty without /proc."""
    pids: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            pids += (int(child) for child in (task / "children").read_text().split())
    except OSError:  # the process ended meanwhile, or this kernel does not list children
        return tuple(pids)
    return tuple(pids)


def tree(pid: int) -> tuple[int, ...]:
    """Return a process and all its descendants."""
    return (pid, *(descendant for child in child_pids(pid) for descendant in tree(child)))


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process and its descendants; 0 without /proc.

    Address space (RLIMIT_AS) is no measure for torch, which reserves far more than it touches.
    """
    return sum(_resident_bytes(process) for process in tree(pid))


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * mmap.PAGESIZE
    except (OSError, IndexError):
        return 0


def default_memory_limit_bytes() -> int:
    """Return three quarters of the memory of this machine, or of the container."""
    if not hasattr(os, "sysconf"):  # not a POSIX system: only the user's own limit applies
        return sys.maxsize
    machine_bytes = os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE
    return min(machine_bytes, _container_bytes() or machine_bytes) * 3 // 4


def _container_bytes() -> int | None:
    try:
        text = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
