"""What other programs open: graphs for Model Explorer, traces for Perfetto."""

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema

from aotlens.model import Report
from aotlens.render.model_explorer import DRAWN_STAGES, RECOMPUTED_STYLE, SAVED_STYLE, model_explorer_text
from aotlens.render.perfetto import perfetto_text
from tests.report.dynamo_sample import sample_dynamo
from tests.report.sample import sample_report, training_target

FOLDER = Path(__file__).parent

Event = dict[str, Any]


def _follows(data: object, schema: str) -> None:
    text = (FOLDER / f"{schema}.schema.json").read_text(encoding="utf-8")
    jsonschema.validate(data, json.loads(text), jsonschema.Draft202012Validator)


def _collection(report: Report) -> Any:
    data = json.loads(model_explorer_text(report, "model.py"))
    _follows(data, "model_explorer")
    return data


def _graph(identifier: str) -> dict[str, Any]:
    graph = next(graph for graph in _collection(sample_report())["graphs"] if graph["id"] == identifier)
    return {node["id"]: node for node in graph["nodes"]}


def _attributes(node: dict[str, Any]) -> dict[str, str]:
    return {row["key"]: row["value"] for row in node["attrs"]}


def test_each_stage_is_a_graph_with_all_its_nodes() -> None:
    expected = [
        (f"{target.name} {name}", len(stage.nodes))
        for target in sample_report().targets
        for name in DRAWN_STAGES
        if (stage := target.stage(name)) is not None
    ]
    graphs = _collection(sample_report())["graphs"]
    assert [(graph["id"], len(graph["nodes"])) for graph in graphs] == expected
    assert {name for name, _ in expected} >= {
        "Block forward",
        "Block backward",
        "Block joint",
        "score inference",
    }


def test_two_captures_of_one_function_are_graphs_of_their_own() -> None:
    target = sample_report().targets[1]
    graphs = _collection(replace(sample_report(), targets=(target, target)))["graphs"]
    assert [graph["id"] for graph in graphs] == ["score inference", "score (2) inference"]


def test_edges_lead_to_nodes_of_the_graph() -> None:
    for graph in _collection(sample_report())["graphs"]:
        names = {node["id"] for node in graph["nodes"]}
        sources = {edge["sourceNodeId"] for node in graph["nodes"] for edge in node["incomingEdges"]}
        assert sources
        assert sources <= names


def test_a_saved_node_is_coloured_with_its_reason_and_line() -> None:
    partition = training_target().partition
    assert partition is not None
    nodes = _graph("Block forward")
    saved = [row for row in partition.saved if row.node in nodes]
    assert saved
    for row in saved:
        assert nodes[row.node]["style"] == SAVED_STYLE
        assert _attributes(nodes[row.node])["saved for backward"].endswith(f": {row.reason}")
    backward = _graph("Block backward")
    recomputed = [row.node for row in partition.recomputed if row.node in backward]
    assert recomputed
    assert all(backward[name]["style"] == RECOMPUTED_STYLE for name in recomputed)
    plain = [node for name, node in nodes.items() if "style" not in node]
    assert plain


def test_a_node_shows_its_source_and_shape() -> None:
    softmax = _graph("score inference")["_softmax"]
    assert (softmax["label"], softmax["namespace"]) == ("_softmax", "")
    source = _attributes(softmax)["source"]
    assert "sample_model.py:" in source
    assert source.endswith("return logits.softmax(-1)")
    (output,) = softmax["outputsMetadata"]
    assert {"key": "shape", "value": "f32[32, 10]"} in output["attrs"]


def test_layers_are_nested_groups_and_inputs_their_own() -> None:
    target = training_target()
    stages = tuple(
        replace(stage, nodes=tuple(replace(node, layer="blocks.3") for node in stage.nodes))
        for stage in target.stages
    )
    (graph, *_) = _collection(Report("", "", "", (replace(target, stages=stages),)))["graphs"]
    assert {node["namespace"] for node in graph["nodes"]} == {"inputs", "blocks/3"}


def _events(report: Report) -> list[Event]:
    data = json.loads(perfetto_text(report))
    _follows(data, "trace_events")
    events: list[Event] = data["traceEvents"]
    return events


def _tracks(events: list[Event]) -> dict[str, list[Event]]:
    """The slices by the name of their track."""
    names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["name"] == "thread_name"
    }
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[names[event["pid"], event["tid"]]].append(event)
    return tracks


def test_stages_lie_end_to_end_with_their_measured_durations() -> None:
    slices = _tracks(_events(sample_report()))["Block"]
    assert {each["name"]: each["dur"] / 1000 for each in slices} == training_target().timings_ms
    ends = [each["ts"] + each["dur"] for each in slices]
    assert [each["ts"] for each in slices] == [0.0, *ends[:-1]]


def test_the_memory_curve_is_a_counter_over_the_nodes() -> None:
    memory = training_target().memory
    assert memory is not None
    events = _events(replace(sample_report(), targets=(training_target(),)))
    counted = [event["args"]["bytes"] for event in events if event["ph"] == "C"]
    assert counted == [live_bytes for _, live_bytes in memory.curve]
    slices = _tracks(events)["nodes"]
    assert [each["name"] for each in slices] == [name for name, _ in memory.curve]
    phases = [each["args"]["phase"] for each in slices]
    assert phases == ["forward"] * memory.forward_nodes + ["backward"] * (len(slices) - memory.forward_nodes)
    assert any("sample_model.py:" in each["args"].get("source", "") for each in slices)


def test_the_peak_lists_what_is_alive() -> None:
    memory = training_target().memory
    assert memory is not None
    (peak,) = [
        event
        for event in _events(replace(sample_report(), targets=(training_target(),)))
        if event["ph"] == "i"
    ]
    assert sum(peak["args"].values()) == sum(value.bytes for value in memory.live_at_peak)


def test_compilations_are_nested_slices_with_the_guard_that_failed() -> None:
    dynamo = sample_dynamo()
    tracks = _tracks(_events(Report("2.13.0", "3.11.2", "why x", dynamo=dynamo)))
    function = next(each for each in dynamo.functions if each.recompilations)
    slices = tracks[f"compilations of {function.qualname}"]
    assert [each["name"] for each in slices[1::3]] == ["Dynamo"] * len(function.compilations)
    for whole, front, back in zip(slices[::3], slices[1::3], slices[2::3], strict=True):
        assert whole["ts"] == front["ts"]
        assert back["ts"] + back["dur"] <= whole["ts"] + whole["dur"] + 1e-6
    guards = [each["args"].get("guard that failed") for each in slices[::3]]
    assert guards == [None if each.cause is None else each.cause.guard for each in function.compilations]


def test_an_empty_report_is_an_empty_trace() -> None:
    assert _events(Report("2.13.0", "3.11.2", "x")) == []
    assert _collection(Report("2.13.0", "3.11.2", "x"))["graphs"] == []
