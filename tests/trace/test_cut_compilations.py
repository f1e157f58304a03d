"""Compilations of a log that say less than others: one in which the log stops, one that reaches the limit."""

from pathlib import Path

from aotlens.model.dynamo import DynamoFunction
from aotlens.render.text.why import why_text
from aotlens.trace.build import build_report
from aotlens.trace.facts import CompilationFacts
from aotlens.trace.logs.reader import open_trace
from aotlens.trace.phases import seconds_by_phase
from tests.trace.log_text import compiled, record

METRICS = {
    "co_name": "f",
    "co_filename": "/home/u/net.py",
    "co_firstlineno": 3,
    "entire_frame_compile_time_s": 1.5,
}
LIMIT = {
    "fail_reason": "Dynamo recompile limit exceeded: recompile_limit",
    "entire_frame_compile_time_s": 0.1,
}


def functions_of(folder: Path, text: str) -> tuple[tuple[DynamoFunction, ...], str]:
    (folder / "a.log").write_text(text)
    report = build_report(open_trace(folder / "a.log"), "test")
    assert report.dynamo is not None
    return report.dynamo.functions, why_text(report)


def compilation(number: int, metrics: dict[str, object] | None) -> str:
    where = compiled() | {"frame_id": 0, "frame_compile_id": number}
    start = record("dynamo_start", {"stack": []}, None, **where)
    again = record("recompile_reasons", {}, "0/0: L['k'] == 1", **where) if number else ""
    ended = "" if metrics is None else record("compilation_metrics", metrics, None, **where)
    return start + again + ended


def test_a_compilation_in_which_the_log_stops_did_not_end(tmp_path: Path) -> None:
    stopped = dict(METRICS)
    functions, text = functions_of(tmp_path, compilation(0, stopped) + compilation(1, None))
    ended = {entry.id: entry.has_ended for function in functions for entry in function.compilations}
    assert ended == {"0/0": True, "0/1": False}
    assert "1 compilation did not end" in text.splitlines()[0]
    assert " 0.0 ms" not in text


def test_the_attempt_that_reaches_the_limit_belongs_to_its_function(tmp_path: Path) -> None:
    """Its metrics name no function."""
    functions, text = functions_of(tmp_path, compilation(0, dict(METRICS)) + compilation(1, dict(LIMIT)))
    (function,) = functions
    assert (function.name, function.limit_hit, function.eager_calls) == ("f", True, None)
    assert "an unknown number" in " ".join(text.split())


def test_an_end_whose_begin_the_log_lacks_closes_no_phase(tmp_path: Path) -> None:
    """The time after it belongs to the phase around it."""
    events = (("B", "dynamo", 1), ("E", "inductor_compile", 2_000_001), ("E", "dynamo", 5_000_001))
    texts = (f'{{\n"name": "{name}",\n"ts": {at}.0,\n"ph": "{kind}"\n}}' for kind, name, at in events)
    logged = "".join(record("chromium_event", {}, text, **compiled()) for text in texts)
    (tmp_path / "a.log").write_text(compilation(0, dict(METRICS)) + logged)
    (process,) = open_trace(tmp_path / "a.log").processes
    (seconds,) = (seconds_by_phase(CompilationFacts(compiled_once)) for compiled_once in process.compilations)
    assert sum(seconds.values()) == 5.0
