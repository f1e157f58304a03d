"""Selected values: the totals before the files are written are the totals of a run with the files."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from aotlens.model.codec import decode
from aotlens.model.edits import edited
from aotlens.model.report import Report, Target, Totals, WhatIf
from aotlens.session.trace import trace
from aotlens.view.partition.selection import (
    change_of,
    policy_file_text,
    policy_option,
    selective_checkpoint_text,
    selective_saves,
)
from aotlens.view.tabs.selection import checkpoint_fix, file_offers, offer_lines
from aotlens.worker.client import WorkerClient
from aotlens.worker.protocol import TraceOptions, TraceRequest

LIMIT_S = 150.0
SCRIPT = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def feed(self, x):
        return self.down(torch.nn.functional.gelu(self.up(x)))

    def forward(self, x):
        return x + self.feed(self.norm(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(8) for _ in range(2)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return (x * x.sigmoid()).mean()


if __name__ == "__main__":
    torch.manual_seed(0)
    net = torch.compile(Net())
    net(torch.randn(16, 8)).backward()
"""


def traced(script: Path, options: TraceOptions, texts: tuple[tuple[str, str], ...] = ()) -> Report:
    request = TraceRequest(str(script), options=options, texts=texts)
    outcome = trace(request, lambda stage, detail: None)
    assert outcome.failure is None, outcome.failure
    return decode(outcome.report)


def net_script(folder: Path) -> tuple[Path, Target]:
    script = folder / "net.py"
    script.write_text(SCRIPT)
    (target,) = traced(script, TraceOptions()).targets
    return script, target


def answered(script: Path, change: str) -> Target:
    (target,) = traced(script, TraceOptions(what_if=(change,), only_what_if=True)).targets
    return target


def selected(target: Target) -> frozenset[str]:
    """Recompute what the two large layers save, and save what is recomputed at the end."""
    assert target.partition is not None
    large = {value.node for value in target.partition.saved if value.node.startswith("addmm")}
    return frozenset({*large, "sigmoid"})


def answer_for(script: Path, target: Target, nodes: frozenset[str]) -> WhatIf:
    assert target.partition is not None
    partition = answered(script, change_of(target.partition, nodes)).partition
    assert partition is not None
    (answer,) = partition.what_if
    return answer


def totals(target: Target) -> Totals:
    assert target.partition is not None
    assert target.memory is not None
    flops = sum(value.flops for value in target.partition.recomputed)
    return Totals(target.partition.saved_bytes, flops, target.memory.peak_bytes)


@pytest.mark.rotates
def test_an_answer_has_only_totals_and_matches_its_target(tmp_path: Path) -> None:
    script, target = net_script(tmp_path)
    answer = answered(script, "save:sigmoid")
    assert (answer.qualname, answer.inputs) == (target.qualname, target.inputs)
    assert answer.partition is not None
    assert (answer.stages, answer.kernels, answer.partition.saved) == ((), (), ())
    assert [each.change for each in answer.partition.what_if] == ["save:sigmoid"]


@pytest.mark.rotates
def test_a_run_with_the_written_policy_has_the_totals_of_the_selection(tmp_path: Path) -> None:
    script, target = net_script(tmp_path)
    nodes, partition = selected(target), target.partition
    assert partition is not None
    answer = answer_for(script, target, nodes)
    assert answer.before == totals(target)
    assert answer.after != answer.before
    option = policy_option(partition, nodes, "net_policy.py")
    assert option == "min-cut,net_policy.py::keep"
    file = tmp_path / "net_policy.py"
    file.write_text(policy_file_text(partition, nodes, script.name, option))
    policy = option.replace("net_policy.py", str(file))
    (again,) = traced(script, TraceOptions(policy=policy)).targets
    assert totals(again) == answer.after


class Calls(TorchDispatchMode):
    """Counts the operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[str(func)] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.rotates
def test_the_selective_checkpoint_runs_again_exactly_what_is_not_saved(tmp_path: Path) -> None:
    script, target = net_script(tmp_path)
    assert target.partition is not None
    saved = selective_saves(target.partition, answer_for(script, target, frozenset({"addmm", "sigmoid"})))
    assert "sigmoid" in saved
    assert "addmm" not in saved
    text = selective_checkpoint_text(target, saved)
    assert text is not None
    names: dict[str, Any] = {}
    exec(text, names)
    own: dict[str, Any] = {"__name__": "net"}
    exec(SCRIPT, own)
    torch.manual_seed(0)
    net, x = own["Net"](), torch.randn(16, 8)
    net(x).backward()
    expected = [parameter.grad.clone() for parameter in net.parameters()]
    net.zero_grad()
    out = checkpoint(net, x, use_reentrant=False, context_fn=names["context_fn"])
    with Calls() as backward:
        out.backward()
    for parameter, gradient in zip(net.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    saved_calls = names["SAVED_CALLS"]
    assert saved_calls["aten.sigmoid.default"] == [0]
    assert 2 in saved_calls["aten.addmm.default"]
    assert 0 not in saved_calls["aten.addmm.default"]
    assert backward.calls["aten.sigmoid.default"] == 0
    assert backward.calls["aten.gelu.default"] == 2


@pytest.mark.rotates
def test_whole_calls_become_checkpoints_that_are_traced_on_a_copy(tmp_path: Path) -> None:
    script, target = net_script(tmp_path)
    nodes = selected(target)
    answer = answer_for(script, target, nodes)
    fix = checkpoint_fix(target, nodes, answer)
    assert fix is not None
    text = edited(SCRIPT, fix.edits)
    assert "from torch.utils.checkpoint import checkpoint\n" in text
    assert "checkpoint(" in text
    (tried,) = traced(script, TraceOptions(), ((os.path.abspath(script), text),)).targets
    assert script.read_text() == SCRIPT
    assert totals(tried).saved_bytes < totals(target).saved_bytes


@pytest.mark.rotates
def test_values_that_no_whole_call_saves_become_no_checkpoint(tmp_path: Path) -> None:
    script, target = net_script(tmp_path)
    nodes = frozenset({"addmm"})
    assert checkpoint_fix(target, nodes, answer_for(script, target, nodes)) is None


@pytest.mark.rotates
def test_each_file_says_how_it_is_used(tmp_path: Path) -> None:
    script, target = net_script(tmp_path)
    nodes = selected(target)
    offers = tuple(file_offers(target, nodes, answer_for(script, target, nodes), script))
    assert [(offer.title, offer.use) for offer in offers] == [
        ("Policy file net_policy.py", "aotlens inspect net.py --policy min-cut,net_policy.py::keep"),
        (
            "Selective checkpoint net_checkpoint.py",
            "checkpoint(module, …, use_reentrant=False, context_fn=context_fn)",
        ),
    ]
    assert [line.text for line in offer_lines(offers[0])][1:8] == [
        '+"""What net.py saves for the backward, as selected in aotlens.',
        "+",
        "+Use it:  aotlens inspect net.py --policy min-cut,net_policy.py::keep",
        '+"""',
        "+",
        '+SAVE = frozenset({"sigmoid"})',
        '+RECOMPUTE = frozenset({"addmm", "addmm_2"})',
    ]


@pytest.mark.rotates
def test_totals_while_selecting_come_from_the_graphs_in_memory(tmp_path: Path) -> None:
    script = tmp_path / "net.py"
    script.write_text(SCRIPT + '    print("ran")\n')
    with WorkerClient() as client:
        client.submit(TraceRequest(str(script), hold=True)).future.result(LIMIT_S)
        answers = [
            client.submit(
                TraceRequest(
                    str(script), hold=True, options=TraceOptions(what_if=(change,), only_what_if=True)
                )
            ).future.result(LIMIT_S)
            for change in ("save:sigmoid", "recompute:addmm,recompute:addmm_2,save:sigmoid", "save:nothing")
        ]
    assert [answer.output for answer in answers] == ["", "", ""]
    assert [answer.failure is None for answer in answers] == [True, True, False]
    (held,) = decode(answers[1].report).targets
    assert held == answered(script, "recompute:addmm,recompute:addmm_2,save:sigmoid")
    failure = answers[2].failure
    assert failure is not None
    assert failure.message.startswith("`save:nothing` names no value of the forward")
