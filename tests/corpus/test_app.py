"""A stopped run goes on where it ended, and a result counts for what it was measured with."""

from dataclasses import replace
from pathlib import Path

import pytest

from corpus import app, store
from corpus.measure import Limits
from corpus.program import Program, read_program
from corpus.published import read_rows
from corpus.records import Measured
from corpus.store import Key, Store, key_of
from tests.corpus.made import measured


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two programs in a folder of their own, and the names of those that are measured."""
    programs = []
    for name in ("first", "second"):
        path = tmp_path / "recipes" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'"""The {name}."""\n# corpus: mode=training\n')
        programs.append(read_program(path))
    ran: list[str] = []

    def find(patterns: tuple[str, ...] = ()) -> list[Program]:
        return [program for program in programs if not patterns or program.path.stem in patterns]

    def measure(program: Program, limits: Limits) -> Measured:
        ran.append(program.path.stem)
        key = key_of(program)
        return replace(
            measured(verify_exit=int(program.path.stem == "second")),
            program=program.name,
            program_digest=key.program_digest,
            engine=key.engine,
            versions=key.versions,
        )

    monkeypatch.setattr(app, "find_programs", find)
    monkeypatch.setattr(app, "measure", measure)
    monkeypatch.setattr(app, "compile_bytecode", lambda: None)
    monkeypatch.setattr(store, "engine_digest", lambda: "engine 1")
    return ran


def start(folder: Path, *words: str) -> int:
    files = {"--results": "results", "--page": "page.md", "--rows": "rows.json"}
    return app.main([*words, *(word for name, file in files.items() for word in (name, str(folder / file)))])


def test_what_has_a_result_is_not_run_again(
    corpus: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(tmp_path, "--only", "first") == 0
    (tmp_path / "rows.json").unlink()  # as after a run that was stopped before it wrote the page
    assert start(tmp_path, "--jobs", "1") == 1
    assert corpus == ["first", "second"]
    printed = capsys.readouterr().out.splitlines()
    assert printed[2:] == [
        "recipes/first: has a result",
        "recipes/second: 0 s, verify: exit 1: MISMATCH net: gradient",
        "recipes/second: verify: exit 1: MISMATCH net: gradient (no reason in notes.toml)",
        f"2 programs have a row in {tmp_path / 'page.md'}, 1 pass each check",
    ]
    page = (tmp_path / "page.md").read_text()
    assert "2 of 2 programs were run." in page
    assert start(tmp_path, "--fresh", "--only", "first") == 0
    assert corpus == ["first", "second", "first"]


def test_a_failure_with_a_reason_does_not_fail_the_run(
    corpus: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = tmp_path / "notes.toml"
    notes.write_text('"recipes/second" = "Inductor rounds otherwise."')
    monkeypatch.setattr(app, "NOTES", notes)
    assert start(tmp_path) == 0
    assert "recipes/second: verify: exit 1: MISMATCH net: gradient\n" in capsys.readouterr().out


def test_a_row_of_another_engine_is_outdated_and_one_of_another_program_does_not_count(
    corpus: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outdated = "rows of another engine or other libraries: 1; --outdated measures them again"
    start(tmp_path, "--only", "first")
    assert outdated not in capsys.readouterr().out
    monkeypatch.setattr(store, "engine_digest", lambda: "engine 2")
    start(tmp_path, "--only", "first")
    assert corpus == ["first"]
    assert outdated in capsys.readouterr().out
    start(tmp_path, "--only", "first", "--outdated")
    assert corpus == ["first", "first"]
    start(tmp_path, "--only", "first", "--outdated")
    assert corpus == ["first", "first"]
    (tmp_path / "recipes" / "first.py").write_text('"""Changed."""\n# corpus: mode=training\n')
    start(tmp_path, "--only", "first")
    assert corpus == ["first", "first", "first"]


def test_a_damaged_result_counts_as_absent(corpus: list[str], tmp_path: Path) -> None:
    start(tmp_path, "--only", "first")
    (tmp_path / "results" / "recipes" / "first.json").write_text('{"program": "recipes/first"')
    (tmp_path / "rows.json").unlink()
    start(tmp_path, "--only", "first")
    assert corpus == ["first", "first"]


def test_the_page_alone_runs_nothing(corpus: list[str], tmp_path: Path) -> None:
    assert start(tmp_path, "--page-only") == 0
    assert corpus == []
    assert "0 of 2 programs were run. `not run` marks the other 2;" in (tmp_path / "page.md").read_text()


def test_published_rows_fill_the_page_of_another_machine(corpus: list[str], tmp_path: Path) -> None:
    start(tmp_path, "--only", "first")
    page = (tmp_path / "page.md").read_text()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "rows.json").write_text((tmp_path / "rows.json").read_text())
    assert start(elsewhere, "--page-only") == 0
    assert (elsewhere / "page.md").read_text() == page
    assert start(elsewhere) == 1
    assert corpus == ["first", "second"]
    assert "2 of 2 programs were run." in (elsewhere / "page.md").read_text()
    start(elsewhere, "--only", "first", "--fresh")
    assert corpus == ["first", "second", "first"]


def test_an_older_result_of_this_machine_does_not_replace_a_newer_row(
    corpus: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(tmp_path, "--only", "first")
    monkeypatch.setattr(store, "engine_digest", lambda: "engine 2")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    start(elsewhere, "--only", "first")
    published = (elsewhere / "rows.json").read_text()
    (tmp_path / "rows.json").write_text(published)
    start(tmp_path, "--only", "first")
    start(tmp_path, "--page-only")
    assert (tmp_path / "rows.json").read_text() == published
    start(tmp_path, "--page-only", "--only", "first")
    assert (tmp_path / "rows.json").read_text() != published


def test_a_changed_program_has_no_published_row(corpus: list[str], tmp_path: Path) -> None:
    start(tmp_path, "--only", "first")
    (tmp_path / "results" / "recipes" / "first.json").unlink()
    (tmp_path / "recipes" / "first.py").write_text('"""Changed."""\n# corpus: mode=inference\n')
    program = read_program(tmp_path / "recipes" / "first.py")
    assert read_rows(tmp_path / "rows.json", [program]) == {}


def test_a_missing_package_is_named(
    corpus: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recipes" / "needy.py"
    path.write_text('"""Needs much."""\n# corpus: mode=training needs=no-such-package\n')
    program = read_program(path)
    line = app.run_one(program, Store(tmp_path / "results"), Limits(), fresh=False)
    assert line == "recipes/needy: not run, no-such-package is not installed"


def test_a_result_of_other_versions_is_stale(corpus: list[str], tmp_path: Path) -> None:
    start(tmp_path, "--only", "first")
    program = read_program(tmp_path / "recipes" / "first.py")
    kept = Store(tmp_path / "results")
    assert kept.current(program, key_of(program)) is not None
    other = Key(program.digest, "engine 1", {"torch": "9.9"})
    assert kept.current(program, other) is None
