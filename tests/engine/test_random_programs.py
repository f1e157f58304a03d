"""A sample of random programs, the same in every run; and that one which is wrong is found and kept.

`python -m tests.random_programs --count 10000 --seed N` draws many more.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

from tests.random_programs import campaign, judging
from tests.random_programs.campaign import Chunk
from tests.random_programs.judging import judge
from tests.random_programs.recipes import Recipe, recipes
from tests.random_programs.writing import write

pytestmark = pytest.mark.filterwarnings("ignore")  # programs warn as eager warns


@pytest.mark.rotates
@settings(
    max_examples=30,
    derandomize=True,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),  # the campaign makes smaller what fails
    suppress_health_check=list(HealthCheck),
)
@given(recipes())
def test_random_program_is_as_eager_or_refused(recipe: Recipe) -> None:
    text = write(recipe)
    assume(text is not None)
    assert text is not None
    judgement = judge(text)
    assert not judgement.wrong, f"{judgement.told}\n{text}"


def adding_one(chosen: object, fn: Callable[..., Any], args: object) -> Callable[..., Any]:
    """A compiler whose first result is wrong where it is no leaf."""

    def call(*inputs: Any) -> Any:
        first, *rest = fn(*inputs)
        return (first if first.is_leaf else first + 1, *rest)

    return call


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(campaign, "CHUNK", 8)
    monkeypatch.setattr(campaign, "SHRINKING", 30)
    return 8


@pytest.mark.rotates
def test_program_that_is_wrong_is_made_smaller_and_kept(
    monkeypatch: pytest.MonkeyPatch, small_chunks: int, tmp_path: Path
) -> None:
    monkeypatch.setattr(judging, "_compiled", adding_one)
    row = Chunk(seed=1, number=0, folder=tmp_path).row()
    assert row["verdict"] == "wrong"
    assert sum(row["counts"].values()) == small_chunks
    kept = min((Path(file).read_text() for file in row["kept"]), key=len)
    assert judge(kept).word == "differs"
    monkeypatch.undo()
    assert judge(kept).word == "as eager"


@pytest.mark.rotates
def test_same_seed_draws_the_same_programs(small_chunks: int, tmp_path: Path) -> None:
    rows = [Chunk(seed=3, number=1, folder=tmp_path).row() for _ in range(2)]
    assert rows[0] == rows[1]
