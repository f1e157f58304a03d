"""Reports survive JSON whole, and bad ones are refused by the key at fault."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aotlens.errors import ReportError, UserError
from aotlens.model import SCHEMA, Input, Report, Site, Target, decode, dumps, encode, loads
from aotlens.model.codec import stage_json
from aotlens.model.cuda_graphs import CudaGraph
from tests.report.sample import sample_report


@pytest.mark.parametrize("indent", [None, 2])
def test_round_trip(indent: int | None) -> None:
    report = sample_report()
    assert loads(dumps(report, indent)) == report


FIGURES = st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False), max_size=3)


@pytest.mark.rotates
@given(
    st.builds(
        Target,
        inputs=st.lists(st.from_type(Input), max_size=2).map(tuple),
        stages=st.just(()),
        kernels=st.just(()),
        variables=st.just(()),
        timings_ms=FIGURES,
    )
)
@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
def test_any_target_survives(target: Target) -> None:
    report = Report("2.13.0", "3.11.2", "x", (target,))
    assert loads(dumps(report)) == report


def test_text_is_deterministic() -> None:
    assert dumps(sample_report()) == dumps(loads(dumps(sample_report())))


def test_a_node_is_one_line() -> None:
    lines = dumps(sample_report()).splitlines()
    nodes = [
        line for line in lines if line.startswith(" " * 12 + '{"name": "addmm_1", "op": "call_function"')
    ]
    assert len(nodes) == 4
    assert all(line.rstrip(",").endswith("}") for line in nodes)


def test_encoded_data_is_json() -> None:
    data = encode(sample_report())
    assert json.loads(json.dumps(data)) == data


@pytest.mark.parametrize(
    ("stage", "keys"),
    [
        ("kernels", ["gpu_totals", "gpu_lines", "kernels", "gpu_assumptions", "gpu_error", "cuda_graph"]),
        ("wrapper", ["wrapper"]),
        ("cuda-graph", ["cuda_graph"]),
    ],
)
def test_one_part_of_a_report(stage: str, keys: list[str]) -> None:
    report = sample_report()
    graph = CudaGraph("recorded", {"forward": "recorded"})
    report = replace(report, targets=tuple(replace(one, cuda_graph=graph) for one in report.targets))
    part = json.loads(stage_json(report, stage))["targets"][0]
    whole = json.loads(dumps(report))["targets"][0]
    assert part == {key: whole[key] for key in ["name", "qualname", *keys]}
    with pytest.raises(UserError, match=f"no stage '{stage}'"):
        stage_json(Report("2.13.0", "3.11", "x"), stage)


def test_from_is_a_json_key() -> None:
    targets = encode(sample_report())["targets"]
    assert isinstance(targets, list)
    first = targets[0]["stages"][0]["nodes"][0]
    assert first["from"] == ["up_weight"]
    assert "from_" not in first


def test_unknown_keys_are_ignored() -> None:
    data = encode(sample_report()) | {"weather": "fine"}
    assert decode(data) == sample_report()


def test_symbolic_sizes_and_defaults() -> None:
    report = decode({"schema": SCHEMA, "torch": "2.13.0", "python": "3.11", "command": "x"})
    assert report == Report("2.13.0", "3.11", "x")


def test_minor_additions_of_the_schema_are_read() -> None:
    data = encode(sample_report()) | {"schema": "aotlens.report/1.7"}
    assert decode(data).targets == sample_report().targets


def _with(path: tuple[str | int, ...], value: object) -> dict[str, object]:
    data = encode(sample_report())
    where: object = data
    for step in path[:-1]:
        where = where[step]  # type: ignore[index]
    where[path[-1]] = value  # type: ignore[index]
    return data


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("torch",), 3, "bad report: torch should be a string, found 3"),
        (("targets",), {}, "bad report: targets should be a list, found {}"),
        (
            ("targets", 0, "span", "line"),
            True,
            "bad report: targets[0].span.line should be a whole number, found true",
        ),
        (
            ("targets", 0, "mode"),
            "dream",
            'bad report: targets[0].mode should be one of training, inference; found "dream"',
        ),
        (("targets", 0, "span"), {"file": "a.py"}, 'bad report: targets[0].span lacks the key "line"'),
        (
            ("targets", 0, "inputs", 1, "tensor", "shape", 0),
            None,
            (
                "bad report: targets[0].inputs[1].tensor.shape[0] should be a whole number or a string,"
                " found null"
            ),
        ),
        (
            ("targets", 0, "wrapper", "steps", 0, "lines"),
            [1],
            "bad report: targets[0].wrapper.steps[0].lines should have 2 entries, found 1",
        ),
        (
            ("targets", 0, "timings_ms", "joint"),
            "x",
            "bad report: targets[0].timings_ms['joint'] should be a number, found \"x\"",
        ),
        (
            ("schema",),
            "aotlens.report/2",
            (
                'report of a newer schema: found "aotlens.report/2", '
                'this aotlens reads up to "aotlens.report/1"; update aotlens'
            ),
        ),
        (("schema",), "pytest/1", 'not a report: schema is "pytest/1"; expected "aotlens.report/1"'),
    ],
)
def test_bad_reports_name_the_key(path: tuple[str | int, ...], value: object, message: str) -> None:
    with pytest.raises(ReportError) as caught:
        decode(_with(path, value))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{",
            "not a report: line 1, column 2 is not JSON (Expecting property name enclosed in double quotes)",
        ),
        ("[]", 'not a report: no key "schema"; expected a JSON object with schema "aotlens.report/1"'),
    ],
)
def test_what_is_no_report(text: str, message: str) -> None:
    with pytest.raises(ReportError) as caught:
        loads(text)
    assert str(caught.value) == message


def _sites(target: Target) -> list[Site]:
    inputs = [site for row in target.inputs for site in row.sites]
    return inputs + [site for row in target.outputs for site in row.sites]


def test_sample_spans_hold_their_text() -> None:
    for target in sample_report().targets:
        for site in _sites(target):
            line = Path(site.span.file).read_text(encoding="utf-8").splitlines()[site.span.line - 1].encode()
            assert line[site.span.col : site.span.end_col].decode() == site.text


def test_sample_grows() -> None:
    stage = sample_report(nodes=1000).targets[0].stage("backward")
    assert stage is not None
    assert len(stage.nodes) > 1000
