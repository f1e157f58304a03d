"""Which quarter of the tests that take turns a run takes, and that consecutive commits take all."""

import subprocess
from pathlib import Path

import pytest

from tests.command import ROOT, forked
from tests.programs import PROGRAMS
from tests.quarters import ALL, QUARTERS, ROUNDS, VARIABLE, Quarter, choose, named_files


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=n", "-c", "user.email=n@example.com", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Two commits."""
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init", "-q")
    for number in range(2):
        git(folder, "commit", "-q", "--allow-empty", "-m", str(number))
    return folder


@pytest.mark.parametrize("turn", range(QUARTERS))
def test_each_case_is_in_one_quarter(turn: int) -> None:
    quarters = [Quarter(number, "") for number in range(QUARTERS)]
    for program in PROGRAMS:
        assert sum(quarter.takes(program.name, turn) for quarter in quarters) == 1
        assert Quarter(None, "").takes(program.name, turn)


def test_the_quarters_are_about_even() -> None:
    for number in range(QUARTERS):
        size = sum(Quarter(number, "").takes(program.name) for program in PROGRAMS)
        assert 0.2 < size / len(PROGRAMS) < 0.3


def test_turns_of_one_program_are_in_different_quarters() -> None:
    for number in range(QUARTERS):
        assert sum(Quarter(number, "").takes("mutation/add", turn) for turn in range(QUARTERS)) == 1


@pytest.mark.parametrize("rounds", [2, ROUNDS])
def test_each_costly_case_of_a_quarter_is_in_one_of_the_rounds(rounds: int) -> None:
    for number in range(QUARTERS):
        names = [program.name for program in PROGRAMS if Quarter(number, "").takes(program.name)]
        for name in names:
            assert sum(Quarter(number, "", turn).takes_costly(name, rounds) for turn in range(rounds)) == 1
            assert Quarter(None, "").takes_costly(name, rounds)
        taken = sum(Quarter(number, "").takes_costly(name, rounds) for name in names)
        assert 0.8 < rounds * taken / len(names) < 1.2


def test_consecutive_commits_take_consecutive_quarters(clone: Path) -> None:
    chosen = [choose(None, clone)]
    for number in range(2 * QUARTERS - 1):
        git(clone, "commit", "-q", "--allow-empty", "-m", f"next {number}")
        chosen.append(choose(None, clone))
    assert [quarter.number for quarter in chosen] == [2, 3, 0, 1, 2, 3, 0, 1]
    assert [quarter.round for quarter in chosen] == [0, 0, 1, 1, 1, 1, 2, 2]
    assert str(chosen[0]) == (
        "tests that take turns: quarter 2 of 0 to 3 (commit 2; --quarter all for everything)"
    )


def test_a_shallow_clone_goes_by_its_commit(clone: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth", "1", clone.as_uri(), "shallow")
    commit = git(clone, "rev-parse", "HEAD")
    chosen = choose(None, tmp_path / "shallow")
    assert (chosen.number, chosen.round, chosen.reason) == (
        int(commit, 16) % QUARTERS,
        int(commit, 16) // QUARTERS % ROUNDS,
        "the id of the commit, as the clone is shallow",
    )


def test_outside_git_the_quarter_is_fixed(tmp_path: Path) -> None:
    assert choose(None, tmp_path) == Quarter(0, "no git checkout")


def test_what_is_asked_for_goes_first(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    assert choose(None, clone) == Quarter(1, VARIABLE)
    assert choose("3", clone) == Quarter(3, "--quarter")
    assert choose("all", clone) == Quarter(None, "--quarter")


@pytest.mark.parametrize("text", ["4", "-1", "half"])
def test_no_quarter(text: str) -> None:
    with pytest.raises(ValueError, match=f"no quarter '{text}': choose 0 to 3, or all"):
        choose(text)


def test_a_marked_test_runs_in_one_quarter() -> None:
    quarters = [Quarter(number, "") for number in range(QUARTERS)]
    assert sum(quarter.runs("test_a_long_search") for quarter in quarters) == 1
    assert [quarter.runs("test_a_long_search", 2) for quarter in quarters] == [False, False, True, False]
    assert not any(quarter.runs("test_a_long_search", ALL, is_named=True) for quarter in quarters)
    assert all(Quarter(None, "").runs("test_a_long_search", turn) for turn in (None, 2, ALL))


def test_a_file_that_is_named_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("test_a.py", "test_b.py"):
        Path(name).touch()
    named = list(named_files([".", "test_a.py", "test_b.py::test_one[x]", "gone.py", "-x"]))
    assert named == [tmp_path / "test_a.py", tmp_path / "test_b.py"]
    assert all(Quarter(number, "").runs("test_one", is_named=True) for number in range(QUARTERS))


def collected(*words: str) -> set[str]:
    ended = forked("-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *words, cwd=ROOT)
    assert ended.code == 0, ended.out
    return {line for line in ended.out.splitlines() if line.startswith("tests/corpus/test_recipes.py::")}


def test_pytest_leaves_out_what_waits() -> None:
    file = "tests/corpus/test_recipes.py"
    named = collected(file)
    quarter = collected("tests/corpus", "--quarter", "1")
    assert set() < quarter < named
    assert collected(file, "--quarter", "1") == quarter
    assert collected("tests/corpus", "--quarter", ALL) == named
