"""Measurements made by hand, for tests that run nothing."""

from pathlib import Path

from corpus.program import Program
from corpus.records import Graphs, Line, Measured, NotCompiled, Ran, Run, TensorError, Values

PROGRAM = Program(Path("corpus/programs/recipes/net.py"), "Train a net.", "training")
REFUSED = NotCompiled("Net", "AL402", "unsupported", "`x | y` is not supported", "net.py:4")


def ran(texts: tuple[str, ...], step_s: float = 0.01, first_s: float = 2.0, exit_code: int = 0) -> Ran:
    """The first line after 1 s, the first step after `first_s` more, then a line every `step_s`."""
    times = [1.0, *(1.0 + first_s + step_s * index for index in range(len(texts) - 1))]
    lines = tuple(Line(text, 2 * time, time, time) for text, time in zip(texts, times, strict=False))
    return Ran(exit_code, False, 9.0, lines, "a traceback\nMISMATCH net: gradient\nlast words\n")


TEXTS = ("ready", *(f"step {index}: loss 0.{9 - index}" for index in range(6)))


def measured(
    ours: Ran | None = None,
    graphs: Graphs | None = Graphs(2, ()),  # noqa: B008 (a frozen record)
    error: float = 1e-6,
    verify_exit: int = 0,
    step_s: float = 0.01,
) -> Measured:
    """A program for which inductor is right, and what our engine does is given."""
    usual = ran(TEXTS)
    runs = (
        Run("eager", usual),
        Run("inductor", usual, 2000),
        Run("aotlens", ours or ran(TEXTS, step_s=2 * step_s, first_s=1.0), 1000),
        Run("inductor-warm", ran(TEXTS, first_s=0.5)),
        Run("aotlens-warm", ran(TEXTS, step_s=2 * step_s, first_s=0.25)),
        Run("aotlens-warm", ran(TEXTS, step_s=step_s, first_s=0.5)),
        Run("verify", ran(TEXTS, exit_code=verify_exit)),
    )
    values = {
        "inductor": Values((TensorError("weight", "float32", 2e-6),)),
        "aotlens": Values((TensorError("weight", "float32", error),)),
    }
    return Measured(PROGRAM.name, "digest", "engine", {"torch": "2.13.0"}, runs, graphs, values)
