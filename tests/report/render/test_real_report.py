"""What the engine reports about the sample model follows the schema, reads back, and prints."""

import json
from pathlib import Path

import jsonschema
import pytest
import torch

import aotlens
from aotlens.model import Report, Site, dumps, loads
from aotlens.model.schema import schema
from aotlens.model.spans import text_of
from aotlens.model.stage_changes import PROGRAM_STAGES, check_stage
from aotlens.render.text.report import report_text
from tests.report.sample_model import Block, score


@pytest.fixture(scope="module")
def report() -> Report:
    """`Block` in training, its cache a non-leaf that carries a gradient; `score` in inference."""
    cache = torch.zeros(32, 16, requires_grad=True) * 1
    block = aotlens.inspect(Block(), torch.ones(32, 16), cache)
    scored = aotlens.inspect(score, torch.ones(32, 16), torch.ones(16, 10))
    return Report(block.torch, block.python, block.command, (*block.targets, *scored.targets))


@pytest.mark.rotates
def test_follows_the_schema(report: Report) -> None:
    jsonschema.validate(json.loads(dumps(report)), schema(), jsonschema.Draft202012Validator)


def test_reads_back(report: Report) -> None:
    assert loads(dumps(report)) == report


def test_mutations_are_found_where_they_stand(report: Report) -> None:
    block = report.targets[0]
    found = {entry.name: (entry.mutation_type, [site.text for site in entry.sites]) for entry in block.inputs}
    assert found["cache"] == ("mutated_out_graph", ["cache.mul_(0.9)"])
    assert found["steps"] == ("mutated_in_graph", ["self.steps += 1"])
    assert [diagnostic.code for diagnostic in block.diagnostics] == ["AL101"]


def transposed(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    x.t_()
    x.sin_()
    return x.sum()


def test_a_changed_shape_is_reported_at_the_operation_that_changes_it() -> None:
    target = aotlens.inspect(transposed, torch.ones(4, 8)).targets[0]
    entry = target.inputs[0]
    assert {site.text for site in entry.sites} == {"x.mul_(2)", "x.t_()", "x.sin_()"}
    assert [site.text for site in entry.metadata_sites] == ["x.t_()"]
    spans = {diagnostic.code: diagnostic.span for diagnostic in target.diagnostics}
    assert (changed := spans["AL103"]) is not None
    assert text_of(changed) == "x.t_()"


def test_aliases_are_found(report: Report) -> None:
    """The view of `hidden` is an alias that nobody sees: its base does not leave the function."""
    types = [entry.output_type for entry in report.targets[0].outputs]
    assert types == ["non_alias", "unsafe_view_alias", "alias_of_input"]


def test_every_site_holds_its_text(report: Report) -> None:
    sites: list[Site] = []
    for target in report.targets:
        sites += [site for entry in target.inputs for site in entry.sites]
        sites += [site for entry in target.outputs for site in entry.sites]
    assert len(sites) > 4
    for site in sites:
        assert text_of(site.span) == site.text
        assert Path(site.span.file).name == "sample_model.py"


def test_every_node_has_a_place_or_a_reason(report: Report) -> None:
    for target in report.targets:
        for stage in target.stages:
            lost = [node.name for node in stage.nodes if not node.spans and not node.reason]
            assert lost == [], (target.name, stage.name)


def test_every_stage_may_be_asked_for(report: Report) -> None:
    """`inspect --stage` refuses all others before it traces."""
    found = {stage.name for target in report.targets for stage in target.stages}
    assert found == {*PROGRAM_STAGES} - {"joint_passes"}
    for name in (*PROGRAM_STAGES, "wrapper", "kernels", "cuda-graph", "captured..wrapper"):
        check_stage(name)


def test_prints(report: Report) -> None:
    text = report_text(report)
    assert "copied back" in text
    assert "AL101" in text
