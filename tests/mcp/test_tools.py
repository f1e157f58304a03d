"""Each tool over the protocol, in this process, with a fake worker."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from aotlens.mcp.reports import MOST_REPORTS
from aotlens.mcp.server import make_server
from aotlens.mcp.session import Session
from aotlens.mcp.tools import TOOLS
from aotlens.model import Report, dumps
from aotlens.model.failure import Failure
from aotlens.model.report import Verdict
from aotlens.worker.protocol import TraceOptions
from tests.mcp.fake_client import (
    FakeWorker,
    answer,
    error,
    make_older,
    results,
    session_in,
    text,
    with_client,
)
from tests.report.dynamo_sample import sample_dynamo
from tests.report.sample import sample_report

INSPECT: tuple[str, dict[str, Any]] = ("inspect", {"target": "model.py", "run_user_code": True})


@pytest.fixture
def worker() -> FakeWorker:
    return FakeWorker(sample_report(), output="hello\n")


@pytest.fixture
def session(tmp_path: Path, worker: FakeWorker) -> Session:
    (tmp_path / "model.py").write_text("x = 1\n")
    make_older(tmp_path / "model.py")
    return session_in(tmp_path, worker)


def _tools(session: Session) -> dict[str, types.Tool]:
    async def use(client: Client) -> types.ListToolsResult:
        return await client.list_tools()

    return {tool.name: tool for tool in with_client(session, use).tools}


def test_schemas_are_valid(session: Session) -> None:
    tools = _tools(session)
    assert list(tools) == [tool.name for tool in TOOLS]
    for tool in tools.values():
        assert tool.output_schema is not None
        for schema in (tool.input_schema, tool.output_schema):
            jsonschema.Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object"


def test_a_tool_that_may_run_user_code_says_so(session: Session) -> None:
    running = {row.name for row in TOOLS if row.may_run_user_code}
    for name, tool in _tools(session).items():
        assert ("run_user_code" in tool.input_schema["properties"]) == (name in running)
        assert ("run_user_code: true" in str(tool.description)) == (name in running)
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is False
        assert tool.annotations.open_world_hint == (name in running)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("inspect", {"target": "model.py"}),
        ("why", {"script": "model.py"}),
        ("fit", {"script": "model.py"}),
        ("verify", {"target": "model.py"}),
        ("what-if", {"target": "model.py", "changes": ["recompute:hidden"]}),
        ("diff", {"git": "main", "target": "model.py"}),
    ],
)
def test_nothing_is_run_without_consent(
    session: Session, worker: FakeWorker, tool: str, arguments: dict[str, Any]
) -> None:
    assert error(session, tool, **arguments) == (
        "this would run model.py as `python` does, with your rights; pass `run_user_code: true` if it may run"
    )
    assert worker.asked == []


def test_inspect_answers_briefly(session: Session, worker: FakeWorker) -> None:
    inspected = answer(session, "inspect", target="model.py::Block", run_user_code=True, policy="save:hidden")
    assert worker.asked == [("model.py", "Block", TraceOptions(policy="min-cut,save:hidden", gpu_texts=()))]
    assert (inspected["report"], inspected["output"], inspected["details"]) == ("trace-1", "hello\n", [])
    block, score = sample_report().targets
    assert [(row["name"], row["inputs"], row["kernels"]) for row in inspected["targets"]] == [
        ("Block", len(block.inputs), len(block.kernels)),
        ("score", len(score.inputs), len(score.kernels)),
    ]
    assert "── Block" in inspected["summary"]
    assert [row["code"] for row in inspected["diagnostics"]] == [row.code for row in block.diagnostics]


@pytest.mark.parametrize("name", ["inspect", "verify"])
def test_answers_follow_their_schema(session: Session, name: str) -> None:
    tool = _tools(session)[name]
    assert tool.output_schema is not None
    data = answer(session, name, target="model.py", run_user_code=True)
    jsonschema.validate(data, tool.output_schema, jsonschema.Draft202012Validator)


def test_the_text_of_an_answer_is_the_same_json(session: Session) -> None:
    (result,) = results(session, INSPECT)
    assert json.loads(text(result)) == result.structured_content


def test_parts_and_a_stage_of_an_earlier_report(session: Session, worker: FakeWorker) -> None:
    details = {"report": "trace-1", "parts": ["partition"], "stage": "forward", "rows": 1}
    _, result = results(session, INSPECT, ("inspect", details))
    (block,) = result.structured_content["details"]
    saved = sample_report().targets[0].partition
    assert saved is not None
    assert [row["bytes"] for row in block["partition"]["saved"]] == [max(row.bytes for row in saved.saved)]
    assert [stage["name"] for stage in block["stages"]] == ["forward"]
    assert {f"Block.partition.saved: 1 of {len(saved.saved)} rows", "targets: 1 of 2 rows"} <= set(
        result.structured_content["left_out"]
    )
    assert len(worker.asked) == 1


def test_the_module_text_is_a_part_of_its_own(session: Session) -> None:
    text_of = {"report": "trace-1", "parts": ["source"]}
    _, steps, source = results(
        session, INSPECT, ("inspect", {"report": "trace-1", "parts": ["wrapper"]}), ("inspect", text_of)
    )
    wrapper = sample_report().targets[0].wrapper
    assert wrapper is not None
    shown = steps.structured_content["details"][0]["wrapper"]
    assert (shown["source"], len(shown["steps"])) == ("", len(wrapper.steps))
    assert any("wrapper.source" in row for row in steps.structured_content["left_out"])
    assert source.structured_content["details"][0]["wrapper"]["source"] == wrapper.source


def test_an_unknown_stage_is_named_with_those_that_there_are(session: Session) -> None:
    message = error(session, "inspect", target="model.py", run_user_code=True, stage="middle")
    assert message.startswith("no stage middle; this report has captured, ")


def test_a_saved_report_is_read_without_running_anything(
    session: Session, worker: FakeWorker, tmp_path: Path
) -> None:
    (tmp_path / "r.json").write_text(dumps(sample_report()))
    assert answer(session, "inspect", report="r.json")["targets"][0]["name"] == "Block"
    assert worker.asked == []


def test_why_reads_a_saved_report(session: Session, tmp_path: Path) -> None:
    report = Report("2.13.0", "3.11.2", "why model.py", dynamo=sample_dynamo())
    (tmp_path / "why.json").write_text(dumps(report))
    explained = answer(session, "why", report="why.json", rows=1)
    assert len(explained["functions"]) == 1
    assert explained["compile_seconds"]["total"] == sample_dynamo().compile_seconds.total
    assert "graph break" in explained["summary"]


def test_a_log_is_read_as_a_report(session: Session, worker: FakeWorker, tmp_path: Path) -> None:
    log = next((Path(__file__).parents[1] / "trace" / "logs").rglob("*.log*"))
    (tmp_path / log.name).write_bytes(log.read_bytes())
    assert answer(session, "inspect", report=log.name)["summary"]
    assert answer(session, "why", report=log.name)["summary"]
    assert worker.asked == []


@pytest.mark.rotates
def test_only_the_last_reports_are_held(session: Session) -> None:
    calls = [INSPECT] * (MOST_REPORTS + 1)
    *_, first, last = results(
        session, *calls, ("inspect", {"report": "trace-1"}), ("inspect", {"report": "trace-2"})
    )
    assert text(first).startswith("no report trace-1: it is neither a file nor one of the last 16")
    assert not last.is_error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "pass either `target`, which runs a script, or `report`, which reads one"),
        ({"target": "m.py", "report": "r.json"}, "pass either `target`, which runs a script, or `report`"),
        (
            {"target": "m.py", "verbose": True},
            "inspect has no argument verbose; it takes target, run_user_code",
        ),
        ({"target": "m.py", "rows": "many"}, 'inspect: rows should be a whole number, found "many"'),
        ({"target": "m.py", "parts": ["all"]}, "inspect: parts[0] should be one of inputs, outputs"),
        ({"target": "::f", "run_user_code": True}, "'::f' is not SCRIPT or SCRIPT::name"),
        ({"target": "m.py", "run_user_code": True}, "no such file: m.py"),
        ({"target": "../m.py", "run_user_code": True}, "../m.py is outside of "),
        ({"report": "/etc/hosts"}, "/etc/hosts is outside of "),
        ({"target": "model.py", "run_user_code": True, "gpu": "z80"}, "unknown GPU 'z80'"),
        ({"target": "model.py", "run_user_code": True, "policy": "best"}, "no partition policy 'best'"),
    ],
)
def test_mistakes_are_the_commands_errors(
    session: Session, worker: FakeWorker, arguments: dict[str, Any], message: str
) -> None:
    assert error(session, "inspect", **arguments).startswith(message)
    assert worker.asked == []


def test_a_failed_trace_is_an_error_with_the_users_traceback(session: Session, worker: FakeWorker) -> None:
    worker.report = None
    worker.failure = Failure("user", "model.py:2: NameError: y", "Traceback: line 2\n")
    assert error(session, "inspect", target="model.py", run_user_code=True) == (
        "model.py:2: NameError: y\nTraceback: line 2\nThe script printed:\nhello\n"
    )


def test_an_unknown_tool_is_an_error_of_the_protocol(session: Session) -> None:
    async def use(client: Client) -> str:
        with pytest.raises(MCPError) as raised:
            await client.call_tool("guess", {})
        return str(raised.value)

    assert with_client(session, use).startswith("no tool guess; there are inspect, why")


def test_a_fault_of_ours_is_an_answer_too(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_reports", None)
    assert error(session, "inspect", report="r.json").startswith("internal error: AttributeError: ")


def test_verify_is_equal_only_if_all_were_compared(session: Session, worker: FakeWorker) -> None:
    block, score = sample_report().targets
    equal, unknown = Verdict("equal", "2 values"), Verdict("not verified", "was not called")
    both = (replace(block, verified=equal), replace(score, verified=unknown))
    worker.report = replace(sample_report(), targets=both)
    verified = answer(session, "verify", target="model.py", run_user_code=True)
    assert [(row["name"], row["outcome"]) for row in verified["verdicts"]] == [
        ("score", "not verified"),
        ("Block", "equal"),
    ]
    assert verified["all_equal"] is False
    assert worker.asked[0][2].verify

    worker.report = replace(worker.report, targets=both[:1])
    assert answer(session, "verify", target="model.py", run_user_code=True)["all_equal"] is True
    worker.report = replace(worker.report, incomplete="the script failed: no data")
    assert answer(session, "verify", target="model.py", run_user_code=True)["all_equal"] is False


def test_what_if_answers_each_change(session: Session, worker: FakeWorker) -> None:
    asked = {"target": "model.py", "run_user_code": True}
    answered = answer(session, "what-if", **asked, changes=["recompute:hidden"])
    assert worker.asked[0][2].what_if == ("recompute:hidden",)
    partition = sample_report().targets[0].partition
    assert partition is not None
    assert [(row["name"], len(row["changes"])) for row in answered["targets"]] == [
        ("Block", len(partition.what_if))
    ]
    assert "shrink" in error(session, "what-if", **asked, changes=["shrink:hidden"])
    assert error(session, "what-if", **asked, changes=[]).startswith("`changes` is empty")


def test_diff_of_two_reports(session: Session, worker: FakeWorker, tmp_path: Path) -> None:
    block, score = sample_report().targets
    assert block.partition is not None
    smaller = replace(block, partition=replace(block.partition, saved_bytes=0))
    (tmp_path / "a.json").write_text(dumps(replace(sample_report(), targets=(block,))))
    (tmp_path / "b.json").write_text(dumps(replace(sample_report(), targets=(smaller, score))))
    change = answer(session, "diff", before="a.json", after="b.json")
    assert (change["is_empty"], change["added"], change["removed"]) == (False, ["score"], [])
    assert change["targets"][0]["after"]["saved_bytes"] == 0
    assert answer(session, "diff", before="a.json", after="a.json")["is_empty"] is True
    assert worker.asked == []
    assert error(session, "diff", before="a.json") == (
        "pass `before` and `after`, which are read, or `git` and `target`, which run"
    )


def test_a_cancelled_call_stops_its_trace(session: Session, worker: FakeWorker) -> None:
    worker.silent = True

    async def cancelled() -> None:
        async with Client(make_server(session)) as client:
            with pytest.raises(MCPError):
                await client.call_tool(*INSPECT, read_timeout_seconds=0.2)
            async with asyncio.timeout(60):
                while not worker.cancelled:
                    await asyncio.sleep(0.01)

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(session.root.folder)
        asyncio.run(cancelled())
    assert worker.cancelled == 1


def test_progress_is_passed_on(session: Session) -> None:
    heard: list[str | None] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async def use(client: Client) -> types.CallToolResult:
        return await client.call_tool(*INSPECT, progress_callback=progress)

    with_client(session, use)
    assert heard == ["capture step"]
