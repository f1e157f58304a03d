"""Breaks inside libraries: at the user's line that called them, once for each."""

from pathlib import Path

from aotlens.model.dynamo import Break
from aotlens.trace.build import build_report
from aotlens.trace.logs.reader import open_trace
from tests.trace.log_text import ARTIFACT, compiled, record

USER, LIBRARY = "/home/ada/train.py", "/opt/lib/python3.11/site-packages/speed/fast.py"
REASON = """\
Graph break in user code at {file}:{line}
Graph Break Reason: Unsupported method call
  Explanation: Dynamo does not know how to trace method `log` of class `Logger`

User code traceback:
  File "{file}", line {line}, in {function}
    {code}
"""


def frame(file: int, line: int, name: str) -> dict[str, object]:
    return {"filename": file, "line": line, "name": name, "loc": f"{name}()"}


def log(functions: list[str]) -> str:
    """Return a log in which each function of the library was compiled and broke at one of its lines."""
    text = record("str", [USER, 1]) + record("str", [LIBRARY, 2])
    for number, name in enumerate(functions):
        stack = [frame(1, 29, "main"), frame(2, 7 + number, name)]
        reason = REASON.format(file=LIBRARY, line=50, function=name, code="logger.log()")
        text += record("dynamo_start", {"stack": stack}, None, **compiled(number))
        text += record("dynamo_graph_break_reason", ARTIFACT, reason, **compiled(number))
    return text


def breaks(folder: Path, text: str) -> tuple[Break, ...]:
    (folder / "a.log").write_text(text)
    dynamo = build_report(open_trace(folder / "a.log"), "test").dynamo
    assert dynamo is not None
    return dynamo.breaks


def test_a_break_in_a_library_is_at_the_users_call(tmp_path: Path) -> None:
    (entry,) = breaks(tmp_path, log(["step"]))
    assert (entry.span.file, entry.span.line, entry.text) == (USER, 29, "main()")
    (related,) = entry.related
    assert (related.span.file, related.span.line) == (LIBRARY, 50)
    assert related.message == "Dynamo stops here, in `step`"


def test_a_break_that_several_functions_of_a_library_have_counts_once(tmp_path: Path) -> None:
    assert len(breaks(tmp_path, log(["step", "step"]))) == 1
    assert len({entry.related for entry in breaks(tmp_path, log(["step", "forward"]))}) == 2
    same = log(["step", "forward"]).replace("in forward", "in step")
    assert len(breaks(tmp_path, same)) == 1


def test_a_break_in_the_users_code_has_no_other_line(tmp_path: Path) -> None:
    own = log(["step"]).replace(f'File "{LIBRARY}"', 'File "/home/ada/model.py"')
    (entry,) = breaks(tmp_path, own)
    assert (entry.span.file, entry.span.line, entry.related) == ("/home/ada/model.py", 50, ())


def test_breaks_of_every_process_in_a_folder_count_and_equal_functions_once(tmp_path: Path) -> None:
    for name, functions in (("a", ["write"]), ("b", ["write"]), ("c", ["other"])):
        (tmp_path / f"{name}.log").write_text(log(functions))
    dynamo = build_report(open_trace(tmp_path), "test").dynamo
    assert dynamo is not None
    assert [function.name for function in dynamo.functions] == ["write", "other"]
