"""Diffs of edited files."""

from aotlens.model.edits import unified_diff


def test_the_header_of_a_diff_has_one_slash_before_an_absolute_path() -> None:
    header = unified_diff("/tmp/train.py", "a = 1\n", "a = 2\n").splitlines()[:2]
    assert header == ["--- a/tmp/train.py", "+++ b/tmp/train.py"]
