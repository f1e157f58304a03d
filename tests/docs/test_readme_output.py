"""The script that fills the documents' marked blocks."""

import pytest

from scripts.readme_output import BLOCK, ROOT, cut, filled, without_times

DOCUMENT = """before
<!-- output 1-2: aotlens rule -->
old
<!-- /output -->
after
"""


def test_a_block_keeps_its_marker_and_takes_the_lines_asked_for() -> None:
    outputs = {("aotlens rule", False): "AL101\nAL102\nAL103"}
    expected = """before
<!-- output 1-2: aotlens rule -->
```text
AL101
AL102
…
```
<!-- /output -->
after
"""
    assert expected == BLOCK.sub(lambda block: filled(block, outputs), DOCUMENT)


def test_filling_twice_changes_nothing() -> None:
    outputs = {("aotlens rule", False): "AL101\nAL102\nAL103"}
    once = BLOCK.sub(lambda block: filled(block, outputs), DOCUMENT)
    assert once == BLOCK.sub(lambda block: filled(block, outputs), once)


def test_cut_without_a_range_keeps_everything() -> None:
    assert cut("a\nb", None, None) == "a\nb"


def test_times_and_column_widths_do_not_count() -> None:
    assert without_times("capture   12.3 ms │ x") == without_times("capture 9 ms │ x")
    assert without_times("saved 12 KiB") != without_times("saved 13 KiB")


@pytest.mark.rotates
@pytest.mark.parametrize("document", ["README.md", "docs/cli.md", "docs/partition.md"])
def test_the_blocks_that_need_no_torch_are_current(document: str) -> None:
    """`python scripts/readme_output.py --check` compares all of them; it takes minutes."""
    blocks = [block for block in BLOCK.finditer((ROOT / document).read_text()) if is_quick(block["command"])]
    stale = [block["command"] for block in blocks if block.group() != filled(block, {})]
    assert stale == [], f"python scripts/readme_output.py {document}"


def is_quick(command: str) -> bool:
    return command.endswith("--help") or command.startswith(
        ("aotlens rule", "python scripts/docs/reason_codes.py")
    )
