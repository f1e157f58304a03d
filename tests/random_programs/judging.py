"""One random program compared with eager."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import aotlens
from aotlens.options import CompileOptions
from aotlens.verify.compare import Difference
from aotlens.verify.observe import observe_alone
from tests.engine.checking import check, prepared
from tests.programs import Program
from tests.random_programs.writing import options, program

Word = Literal["as eager", "unsupported", "fails in eager too", "differs", "crashed"]
WRONG: frozenset[Word] = frozenset({"differs", "crashed"})
REFUSED_WRITES = ("being modified inplace", "is being used in an in-place operation")
"""Phrases of eager's errors about a caller's write to a result that is a view."""
REFUSED_BACKWARD = "and is not supported here: "
"""A phrase of the error of a compiled backward that lacks the case which it names."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a program fared."""

    word: Word
    told: str = ""
    """What differs, or the refusal; empty where nothing does."""

    @property
    def wrong(self) -> bool:
        return self.word in WRONG


def judge(text: str, name: str = "random") -> Judgement:
    """Compile and compare; whatever is raised is the answer.

    Which base autograd remembers of a view that was given other memory is not compared: it shares none.
    """
    chosen = options(text)
    case = program(text, name)
    try:
        told = ".data" not in text and ".set_(" not in text
        compiler = partial(_compiled, chosen)
        outcome = check(case, compiler, grow=chosen["dynamic"], writes_are_told=told)
    except Exception as error:  # noqa: BLE001 (a crash of the engine is what is looked for)
        return Judgement("crashed", f"{type(error).__name__}: {error}")
    if outcome.refusal is not None:
        fails = _fails_in_eager(case)
        return Judgement("fails in eager too" if fails else "unsupported", str(outcome.refusal))
    moved = ".data = " in text or ".set_(" in text
    different = [one for one in outcome.differences if _counts(one) and not (moved and one.kind == "view")]
    unsupported = [one for one in different if _is_unsupported_backward(one)]
    found = list(dict.fromkeys(str(one) for one in different if one not in unsupported))
    if found:
        return Judgement("differs", "\n".join(found))
    return Judgement("unsupported", unsupported[0].actual) if unsupported else Judgement("as eager")


def _compiled(chosen: dict[str, Any], fn: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
    return aotlens.compile(fn, options=CompileOptions(backend="eager", **chosen))


def _counts(difference: Difference) -> bool:
    """Whether a caller can be hurt: a write that eager refuses, and that works here, hurts nobody."""
    if difference.is_harmless:
        return False
    refuses = any(phrase in difference.expected for phrase in REFUSED_WRITES)
    return not (difference.kind == "backward error" and difference.actual == "no error" and refuses)


def _is_unsupported_backward(difference: Difference) -> bool:
    return difference.kind == "backward error" and REFUSED_BACKWARD in difference.actual


def _fails_in_eager(case: Program) -> bool:
    eager = observe_alone(prepared(case)[0])
    return eager.failure is not None or eager.backward_failure is not None
