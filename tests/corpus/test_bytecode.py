"""Timed processes find bytecode, whatever installed the libraries."""

from importlib.util import cache_from_source
from pathlib import Path

from corpus.bytecode import compile_bytecode


def test_files_without_bytecode_are_compiled(tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / "net.py").write_text("WIDTH = 4\n")
    (library / "later.py").write_text("def later[T](value: T, /: T\n")  # not Python, or not this one's
    compile_bytecode((library,))
    assert [Path(cache_from_source(str(library / f"{name}.py"))).exists() for name in ("net", "later")] == [
        True,
        False,
    ]
