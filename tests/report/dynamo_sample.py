"""Dynamo's facts by hand: a counter that recompiles, two breaks, a constant, a skipped function."""

from aotlens.model.dynamo import (
    Break,
    Cause,
    Compilation,
    CompileSeconds,
    Dynamo,
    DynamoFunction,
    LineSeconds,
    Seconds,
    Skipped,
    Specialisation,
)
from aotlens.model.source import Related, Span

__all__ = ["sample_dynamo", "span_at"]

FILE = "/project/net.py"


def span_at(line: int, col: int = 4, end_col: int = 20) -> Span:
    return Span(FILE, line, col, line, end_col)


def _compilation(number: int, cause: Cause | None = None, part: str = "", frame: int = 0) -> Compilation:
    return Compilation(f"{frame}/{number}", part, (), Seconds(0.5, 0.25, 0.75), cause)


def _step(old: int) -> Cause:
    span = span_at(12)
    return Cause(f"self.step == {old}", "number", "self.step", str(old), str(old + 1), span, None, "0/0")


def sample_dynamo() -> Dynamo:
    size = Cause("x.shape[0] == 4", "size", "x.shape[0]", "4", "5", span_at(13), None, "0/0")
    compilations = (
        _compilation(0),
        _compilation(1, _step(0)),
        _compilation(2, _step(1)),
        _compilation(3, size),
        _compilation(0, part="after line 14", frame=1),
    )
    breaks = (
        Break(
            span_at(14),
            "hidden.item()",
            "GB0124",
            "the value of a tensor is needed",
            "keep the 0-d tensor",
            "graph split",
            (Related(Span("/lib/site-packages/tools/text.py", 3, 0, 3, 4), "Dynamo stops here, in `show`"),),
            ("Net.forward", "helper"),
            ("0/0",),
            2,
            1,
            2 << 20,
        ),
        Break(span_at(16), "print(x)", "GB0059", "it cannot be traced", "remove it", "rest in eager"),
    )
    function = DynamoFunction(
        "Net",
        "Net.forward",
        span_at(11, 0, 30),
        None,
        compilations,
        breaks,
        (
            Specialisation("x.shape[1]", "8", "s1", "compared", "it holds for 8 alone", span_at(17), "x"),
            Specialisation("k", "3", "", "number", "a Python number is a constant", span_at(18), "x * k"),
        ),
        (Skipped("hidden", span_at(30), "a TorchDispatchMode is active", "leave the mode", True),),
    )
    lines = (LineSeconds(span_at(13), 2.0),)
    seconds = CompileSeconds(4.0, 4.0, {"Dynamo": 3.0, "guards": 1.0}, lines)
    return Dynamo((function,), seconds)
