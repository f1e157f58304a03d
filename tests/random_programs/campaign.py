"""Many random programs: drawn in chunks, each under a seed of its own, judged over several processes.

Invariant: chunk K of seed N draws the same programs in every run, so a stopped run goes on with the chunks
that it lacks.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Flaky

from tests.random_programs.judging import Judgement, judge
from tests.random_programs.recipes import Recipe, recipes
from tests.random_programs.writing import write
from tests.shards import Row

CHUNK = 25
"""Programs."""
SHRINKING = 400
"""Programs tried while one that fails is made smaller."""


class WrongError(Exception):
    """A program that does not do what it does in eager."""


@dataclass
class Chunk:
    """The programs of one seed, and what became of them."""

    seed: int
    number: int
    folder: Path
    counts: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    kept: list[str] = field(default_factory=list)
    """Files of programs that are wrong."""

    def row(self) -> Row:
        """Judges them all."""
        while (left := CHUNK - self.counts.total()) > 0:
            _Attempt(self, left).run()
        return {
            "verdict": "wrong" if self.kept else "fine",
            "reason": "",
            "counts": dict(self.counts),
            "refusals": dict(self.refusals),
            "kept": self.kept,
        }

    def count(self, judgement: Judgement) -> None:
        self.counts[judgement.word] += 1
        if judgement.word == "unsupported":
            self.refusals[judgement.told.partition(";")[0][:90]] += 1

    def keep(self, text: str, judgement: Judgement) -> None:
        """Writes the program down, with what is wrong above it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{self.seed}_{self.number}_{len(self.kept)}.py"
        told = "\n".join(f"# {line}" for line in judgement.told.splitlines())
        path.write_text(f"# python -m tests.random_programs {path}\n# {judgement.word}:\n{told}\n{text}")
        self.kept.append(str(path))


class _Attempt:
    """Draws until the chunk is full, or a program fails and has been made smaller."""

    def __init__(self, chunk: Chunk, left: int) -> None:
        self._chunk = chunk
        self._left = left
        self._wrong: tuple[str, Judgement] | None = None
        self._tried = 0

    def run(self) -> None:
        number = 1_000_003 * self._chunk.seed + 1_009 * self._chunk.number + self._left
        draw = settings(
            max_examples=self._left,
            database=None,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        )
        before = self._chunk.counts.total()
        try:
            seed(number)(draw(given(recipes())(self._one)))()
        except (WrongError, Flaky):
            assert self._wrong is not None  # it was raised for one
            self._chunk.keep(*self._wrong)
        if self._chunk.counts.total() == before:
            self._chunk.counts["nothing to run"] += self._left

    def _one(self, recipe: Recipe) -> None:
        text = write(recipe)
        is_wrong = self._is_as_wrong(text) if self._wrong is not None else self._is_wrong(text)
        if is_wrong:  # raised at one place, by which hypothesis knows that it is one failure
            raise WrongError

    def _is_wrong(self, text: str | None) -> bool:
        if self._chunk.counts.total() >= CHUNK:
            return False
        if text is None:
            self._chunk.counts["nothing to run"] += 1
            return False
        judgement = judge(text)
        self._chunk.count(judgement)
        self._wrong = (text, judgement) if judgement.wrong else None
        return judgement.wrong

    def _is_as_wrong(self, text: str | None) -> bool:
        """Any program that is wrong in the same way is as good; after enough tries the smallest stands."""
        assert self._wrong is not None  # or nothing would be made smaller
        self._tried += 1
        if text is None or self._tried > SHRINKING:
            return False
        judgement = judge(text)
        if judgement.word != self._wrong[1].word:
            return False
        if len(text) <= len(self._wrong[0]):
            self._wrong = text, judgement
        return True
