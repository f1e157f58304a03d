"""Files and lines of another machine, in the open workspace."""

from pathlib import Path

import pytest

from aotlens.errors import UserError
from aotlens.trace.graphs.records import Line
from aotlens.trace.source.relocation import Located, current_lines, relocate
from aotlens.trace.source.workspace import PathMapping, Workspace, common_suffix, parse_mapping

FILE = "/home/ada/train/models/gpt.py"
TEXT = """\
class Block:
    def forward(self, x):
        x = self.norm(x)
        return x + self.up(x)


class Head:
    def project(self, x):
        x = self.norm(x)
        return self.out(x)
"""


def _line(number: int, code: str, function: str = "forward") -> Line:
    return Line(FILE, number, function, code)


def _places(text: str, *lines: Line) -> list[Located]:
    located = relocate(text, lines)
    return [located[line] for line in lines]


def _write(path: Path, text: str = TEXT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path.resolve()


def test_a_line_with_its_logged_text_is_the_same() -> None:
    assert _places(TEXT, _line(4, "return x + self.up(x)")) == [Located(4, "same")]


def test_a_line_that_moved_is_found_by_its_text() -> None:
    assert _places("\n\n" + TEXT, _line(4, "return x + self.up(x)")) == [Located(6, "moved")]


def test_a_repeated_line_goes_with_its_function_or_its_neighbours() -> None:
    norm = "x = self.norm(x)"
    shifted = "# new\n" + TEXT
    assert _places(shifted, _line(9, norm, "project")) == [Located(10, "moved")]
    repeated = "def forward(a):\n    a.sin()\n    a.cos()\n    a.sin()\n"
    first, second, between = _line(2, "a.sin()"), _line(4, "a.sin()"), _line(3, "a.cos()")
    located = relocate("#\n#\n#\n" + repeated, [first, second, between])
    assert [located[line].line for line in (first, between, second)] == [5, 6, 7]


def test_a_repeated_line_without_a_clear_place_is_changed() -> None:
    assert _places("x = x\ny\nx = x\ny\n\n", _line(5, "x = x", "nowhere")) == [Located(5, "changed")]


def test_a_line_that_is_gone_is_changed_and_one_without_text_is_unchecked() -> None:
    assert _places(TEXT, _line(4, "return x")) == [Located(4, "changed")]
    assert _places(TEXT, _line(4, "", "nowhere")) == [Located(4, "unchecked")]


def test_a_definition_is_found_by_its_name() -> None:
    assert _places(TEXT, _line(2, "", "Block.forward")) == [Located(2, "unchecked")]
    assert _places("#\n" + TEXT, _line(8, "", "Head.project")) == [Located(9, "moved")]
    assert _places(TEXT * 2, _line(50, "", "project")) == [Located(50, "unchecked")]  # there are two
    two = "#\n" + TEXT + "def project():\n    return 0\n"
    defined, _ = _places(two, _line(8, "", "project"), _line(10, "return self.out(x)"))
    assert defined == Located(9, "moved")


def test_lines_of_a_cache_hit_are_joined_with_the_current_ones_by_their_text() -> None:
    stale, gone = Line("old.py", 9, "forward", "y = x.sin()"), Line("old.py", 12, "forward", "y = x.exp()")
    twice = Line("old.py", 20, "other", "z = y * 2")
    current = [
        Line("moved.py", 14, "forward", "y = x.sin()"),
        Line("moved.py", 30, "forward", "z = y * 2"),
        Line("moved.py", 40, "forward", "z = y * 2"),
    ]
    assert current_lines([stale, gone, twice, current[0]], current) == {
        stale: current[0],
        gone: None,
        twice: None,
        current[0]: current[0],
    }


def test_the_longest_common_suffix_decides(tmp_path: Path) -> None:
    _write(tmp_path / "other" / "gpt.py")
    here = _write(tmp_path / "src" / "models" / "gpt.py")
    assert Workspace(tmp_path).find(FILE, {4: "return x + self.up(x)"}) == here
    assert common_suffix(("/", "a", "b", "c.py"), ("/", "x", "b", "c.py")) == 2


def test_of_equal_suffixes_the_file_with_the_logged_lines_is_taken_else_none(tmp_path: Path) -> None:
    _write(tmp_path / "a" / "gpt.py", "pass\n")
    here = _write(tmp_path / "b" / "gpt.py")
    assert Workspace(tmp_path).find("/elsewhere/gpt.py", {4: "return x + self.up(x)"}) == here
    assert Workspace(tmp_path).find("/elsewhere/gpt.py", {}) is None


def test_another_file_of_the_same_name_is_not_taken(tmp_path: Path) -> None:
    _write(tmp_path / "gpt.py", "pass\n")
    assert Workspace(tmp_path).find("/elsewhere/gpt.py", {4: "return x + self.up(x)"}) is None


def test_a_mapping_comes_before_the_suffix_and_windows_paths_are_understood(tmp_path: Path) -> None:
    _write(tmp_path / "models" / "gpt.py")
    mapped = _write(tmp_path / "new" / "gpt.py")
    mapping = PathMapping("C:\\work\\models", tmp_path / "new")
    workspace = Workspace(tmp_path, (mapping,))
    assert workspace.find("C:\\work\\models\\gpt.py", {}) == mapped
    assert workspace.find("D:\\x\\models\\gpt.py", {}) == (tmp_path / "models" / "gpt.py").resolve()


@pytest.mark.parametrize("file", ["../../etc/gpt.py", "/etc/passwd", "gpt.py\0", "", "/", "models/gpt.txt"])
def test_paths_that_lead_elsewhere_give_no_file(file: str, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "workspace", (PathMapping("../..", tmp_path),))
    _write(tmp_path / "etc" / "gpt.py")
    assert workspace.find(file, {}) is None


def test_a_mapping_has_two_folders(tmp_path: Path) -> None:
    assert parse_mapping(f"/home/ada={tmp_path}") == PathMapping("/home/ada", tmp_path.resolve())
    with pytest.raises(UserError, match="write OLD=NEW"):
        parse_mapping("/home/ada")
    with pytest.raises(UserError, match="is not a folder here"):
        parse_mapping("/home/ada=/no/such/folder")
