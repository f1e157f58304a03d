"""Collect what the user's code prints, at both ends.

Invariant: memory is bounded whatever is written, and a cut says how much is missing.
"""

HEAD_BYTES = 64 * 1024
TAIL_BYTES = 64 * 1024


class HeadAndTail:
    """Collects bytes; of a long output it keeps the first and the last `64 KiB`."""

    def __init__(self, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._cut_bytes = 0

    def write(self, data: bytes) -> None:
        room = self._head_bytes - len(self._head)
        self._head += data[:room] if room > 0 else b""
        self._tail += data[max(room, 0) :]
        excess = len(self._tail) - self._tail_bytes
        if excess > self._tail_bytes:  # trim in large steps, so that many small writes stay cheap
            del self._tail[:excess]
            self._cut_bytes += excess

    def text(self) -> str:
        """Return the collected text, with one line where the middle is missing."""
        excess = max(len(self._tail) - self._tail_bytes, 0)
        cut_bytes = self._cut_bytes + excess
        if cut_bytes == 0:
            return (self._head + self._tail).decode("utf-8", "replace")
        head = self._head.decode("utf-8", "replace")
        tail = self._tail[excess:].decode("utf-8", "replace")
        return f"{head}\n... {cut_bytes:,} bytes of output cut here ...\n{tail}"
