"""Our own files are never the user's, also where the environment is behind a symbolic link."""

from pathlib import Path

import pytest

from tests.command import ROOT, python

CODE = """
import sys
sys.path.insert(0, {folder!r})
from aotlens.capture.provenance import frames
from aotlens.ir import origin
assert frames.__file__.startswith({folder!r}), frames.__file__
print(frames.is_user_file(frames.__file__), frames.is_user_file(origin.__file__))
"""


@pytest.mark.rotates
def test_files_behind_a_link_are_ours(tmp_path: Path) -> None:
    (tmp_path / "environment").symlink_to(ROOT)

    ended = python("-c", CODE.format(folder=str(tmp_path / "environment")))

    assert (ended.out, ended.err) == ("False False\n", "")
