"""Draw the extension's icon, editors/vscode/images/icon.png: a graph of three nodes over its memory curve."""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

SIZE, SAMPLES = 256, 3
FILE = Path(__file__).resolve().parents[2] / "editors" / "vscode" / "images" / "icon.png"
BACK, LINE, NODE, BAR = (27, 30, 40), (125, 140, 170), (255, 183, 77), (100, 181, 246)
NODES = ((78, 66), (178, 66), (128, 132))
EDGES = ((0, 2), (1, 2))
BARS = ((48, 26), (76, 44), (104, 60), (132, 52), (160, 34), (188, 18))
"""Left edge and height of each bar of the memory curve."""


def colour(x: float, y: float) -> tuple[int, int, int, int]:
    """Return the colour of a point."""
    edge = 40
    dx, dy = max(edge - x, x - (SIZE - edge), 0), max(edge - y, y - (SIZE - edge), 0)
    if dx * dx + dy * dy > edge * edge:
        return (*BACK, 0)
    if any((x - left) ** 2 + (y - top) ** 2 < 20**2 for left, top in NODES):
        return (*NODE, 255)
    if any(_is_near(x, y, NODES[start], NODES[end]) for start, end in EDGES):
        return (*LINE, 255)
    if any(left <= x < left + 20 and 226 - height <= y < 226 for left, height in BARS):
        return (*BAR, 255)
    return (*BACK, 255)


def _is_near(x: float, y: float, start: tuple[int, int], end: tuple[int, int]) -> bool:
    dx, dy = end[0] - start[0], end[1] - start[1]
    along = max(0.0, min(1.0, ((x - start[0]) * dx + (y - start[1]) * dy) / (dx * dx + dy * dy)))
    return (x - start[0] - along * dx) ** 2 + (y - start[1] - along * dy) ** 2 < 4.5**2


def rows() -> Iterator[bytes]:
    """Yield the rows of pixels, each the mean of its samples."""
    offsets = [(step + 0.5) / SAMPLES for step in range(SAMPLES)]
    for y in range(SIZE):
        row = bytearray(b"\0")
        for x in range(SIZE):
            points = [colour(x + across, y + down) for across in offsets for down in offsets]
            row += bytes(sum(channel) // len(points) for channel in zip(*points, strict=True))
        yield bytes(row)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def main() -> None:
    head = struct.pack(">IIBBBBB", SIZE, SIZE, 8, 6, 0, 0, 0)
    image = zlib.compress(b"".join(rows()), 9)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", image) + chunk(b"IEND", b"")
    FILE.write_bytes(data)
    print(f"wrote {FILE.name}, {len(data)} bytes")


if __name__ == "__main__":
    main()
