"""Programs are described by their header alone, and a header that is wrong is named."""

from pathlib import Path

import pytest

from corpus.program import GROUPS, PROGRAMS, HeaderError, Program, find_programs, read_program


def write(folder: Path, header: str, name: str = "net.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'"""Train a net."""\n{header}\nraise AssertionError("executed")\n')
    return path


def test_every_word_of_a_header(tmp_path: Path) -> None:
    header = "# corpus: mode=training needs=peft,timm processes=2 args=--lr 0.1 'a b' steps=12 tolerance=1e-3"
    path = write(tmp_path, header)
    expected = Program(
        path, "Train a net.", "training", ("peft", "timm"), 2, ("--lr", "0.1", "a b"), 12, 1e-3
    )
    assert read_program(path) == expected


def test_what_a_header_leaves_out(tmp_path: Path) -> None:
    path = write(tmp_path, "# corpus: mode=inference")
    assert read_program(path) == Program(path, "Train a net.", "inference")


def test_an_empty_list_of_packages(tmp_path: Path) -> None:
    assert read_program(write(tmp_path, "# corpus: mode=inference needs= steps=8")).needs == ()


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("# nothing", "no line `# corpus: mode=training` (or inference)"),
        ("# corpus: mode=both", "mode must be training or inference, not both"),
        (
            "# corpus: training",
            "unknown in the header: training; known: args, mode, needs, processes, steps, ",
        ),
        ("# corpus: mode=training step=8", "unknown in the header: step; known: args, mode, needs, "),
        ("# corpus: mode=training steps=few", "invalid literal for int() with base 10: 'few'"),
    ],
)
def test_wrong_headers(tmp_path: Path, header: str, message: str) -> None:
    path = write(tmp_path, header)
    with pytest.raises(HeaderError) as raised:
        read_program(path)
    assert str(raised.value).startswith(f"{path}: {message}")


def test_programs_by_pattern(tmp_path: Path) -> None:
    for name in ("vision/a.py", "recipes/b.py", "recipes/ab.py", "recipes/_shared.py"):
        write(tmp_path, "# corpus: mode=inference", name)
    found = {
        patterns: [program.name for program in find_programs(patterns, tmp_path)]
        for patterns in ((), ("a*",), ("recipes/*",), ("b", "vision/*"))
    }
    assert found == {
        (): ["recipes/ab", "recipes/b", "vision/a"],
        ("a*",): ["recipes/ab", "vision/a"],
        ("recipes/*",): ["recipes/ab", "recipes/b"],
        ("b", "vision/*"): ["recipes/b", "vision/a"],
    }


def test_every_program_of_the_corpus_has_a_header() -> None:
    files = sorted(path.stem for path in PROGRAMS.rglob("*.py"))
    assert sorted(program.path.stem for program in find_programs()) == files
    assert {program.group for program in find_programs()} <= set(GROUPS)
