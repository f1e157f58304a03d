"""Write a table into a page of the documentation, between two markers."""

from pathlib import Path

__all__ = ["write_table"]


def write_table(page: Path, begin: str, end: str, text: str) -> None:
    """Replace the text between the markers.  Raises SystemExit if the page lacks one of them."""
    before, has_begin, rest = page.read_text(encoding="utf-8").partition(begin)
    _, has_end, after = rest.partition(end)
    if not has_begin or not has_end:
        raise SystemExit(f"{page} has no {begin} … {end}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
