"""Edits that may lower the peak, as text: the diff of each kind on a small training script."""

import contextlib
from dataclasses import replace
from typing import Any

import pytest
import torch

from aotlens.fit.advice.edits.checkpoints_once import FUNCTION as CHECKPOINT_ONCE
from aotlens.fit.advice.edits.chunked_loss import FUNCTION
from aotlens.fit.advice.edits.optimizers import EIGHT_BIT, eight_bit_suggestion
from aotlens.fit.advice.edits.step_in_backward import FUNCTION as STEP_IN_BACKWARD
from aotlens.fit.advice.jobs import NameFact, NamesOutcome
from aotlens.fit.advice.rules import Script
from aotlens.model.fit import Fit, FitMoment, KindBytes, PhasePeak

TEXT = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4), nn.ReLU())
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x):
        x = self.features(x)
        for block in self.blocks:
            x = x + block(x)
        return x


model = torch.compile(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
x, y = torch.randn(6, 4), torch.randn(6, 4)
for step in range(9):
    prediction = model(x)
    loss = (prediction - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
NAMES = NamesOutcome(
    "train.py",
    25,
    (
        NameFact("x", "tensor", "Tensor", (6, 4)),
        NameFact("y", "tensor", "Tensor", (6, 4)),
        NameFact("prediction", "tensor", "Tensor", (6, 4), requires_grad=True),
        NameFact("loss", "tensor", "Tensor", requires_grad=True),
        NameFact("optimizer", "optimizer", "AdamW"),
    ),
)


def script(text: str = TEXT, device: str = "cpu") -> Script:
    return Script({"train.py": text}, NAMES, Fit(100, FitMoment("backward"), device=device))


def changed_lines(*kinds: str, of: Script) -> list[str]:
    """Make the first proposal of each kind, and return the lines that are new."""
    proposals = of.proposals()
    chosen = tuple(next(each for each in proposals if each.kind == kind) for kind in kinds)
    texts = of.with_edits(chosen)
    assert texts is not None
    before = of.texts["train.py"].splitlines()
    return [line for line in texts["train.py"].splitlines() if line not in before]


def with_title(title: str, text: str) -> str:
    """Return the text after the edit of that title."""
    made = script(text)
    (chosen,) = (each for each in made.proposals() if each.title == title)
    texts = made.with_edits((chosen,))
    assert texts is not None
    return texts["train.py"]


def test_a_call_in_a_loop_over_modules_is_checkpointed() -> None:
    assert changed_lines("checkpoint", of=script()) == [
        "from torch.utils.checkpoint import checkpoint",
        "            x = x + checkpoint(block, x, use_reentrant=False)",
    ]


def test_buffers_are_updated_by_the_first_forward_only() -> None:
    namespace: dict[str, Any] = {"torch": torch, "contextlib": contextlib}
    exec(CHECKPOINT_ONCE, namespace)
    x = torch.randn(6, 4)
    values = []
    for run in (lambda module: module(x), lambda module: namespace["checkpoint_once"](module, x)):
        torch.manual_seed(0)
        linear = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(4, 4))
        module = torch.nn.Sequential(linear, torch.nn.BatchNorm1d(4), torch.nn.Tanh())
        run(module).sum().backward()
        gradients = [parameter.grad for parameter in module.parameters()]
        values.append([*gradients, *module.buffers()])
    assert all(torch.equal(*pair) for pair in zip(*values, strict=True))


def test_a_checkpoint_that_keeps_buffers_is_another_series() -> None:
    fit = Fit(100, FitMoment("backward"), by_kind=(KindBytes("buffer", 8),))
    checkpoints = [
        each
        for each in Script({"train.py": TEXT}, NAMES, fit).proposals()
        if each.kind == "checkpoint" and "`block`" in each.title
    ]
    assert [each.series for each in checkpoints] == ["", f"once {checkpoints[0].group}"]
    assert "checkpoint_once(block, x)" in [edit.text for edit in checkpoints[1].edits]


def test_compiled_functions_get_a_memory_budget() -> None:
    assert changed_lines("memory budget", of=script()) == [
        'model = torch.compile(Net(), backend="aotlens", options={"memory_budget": 0.5})'
    ]


def test_options_of_the_user_stay() -> None:
    text = TEXT.replace("torch.compile(Net())", 'torch.compile(Net(), options={"fallback_random": True})')
    (line,) = changed_lines("memory budget", of=script(text))
    options = '{"memory_budget": 0.5, "fallback_random": True}'
    assert line == f'model = torch.compile(Net(), options={options}, backend="aotlens")'


def test_an_optimizer_becomes_fused_and_on_a_gpu_updates_parameters_one_by_one() -> None:
    constructor = "optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, "
    assert changed_lines("fused optimizer", of=script()) == [f"{constructor}fused=True)"]
    assert changed_lines("foreach=False", of=script(device="cuda")) == [f"{constructor}foreach=False)"]
    assert "foreach=False" not in {each.kind for each in script().proposals()}


def test_an_optimizer_of_another_package_updates_parameters_one_by_one() -> None:
    lion = NameFact("optimizer", "optimizer", "Lion", options=("lr", "foreach"))
    text = TEXT.replace("torch.optim.AdamW(", "Lion(")
    names = replace(NAMES, names=(*NAMES.names[:-1], lion))
    edited = Script({"train.py": text}, names, Fit(100, FitMoment("backward")))
    line = "optimizer = Lion(model.parameters(), lr=0.1, foreach=False)"
    assert changed_lines("foreach=False", of=edited) == [line]
    without = replace(names, names=(*NAMES.names[:-1], replace(lion, options=("lr",))))
    unable = Script({"train.py": text}, without, Fit(100, FitMoment("backward")))
    assert "foreach=False" not in {each.kind for each in unable.proposals()}


def test_forward_values_are_deleted_before_the_backward() -> None:
    assert changed_lines("del", of=script()) == ["    del prediction"]


def test_autocast_ends_with_the_loss() -> None:
    assert changed_lines("autocast", of=script()) == [
        '    with torch.autocast("cpu", dtype=torch.bfloat16):',
        "        prediction = model(x)",
        "        loss = (prediction - y).square().mean()",
    ]


def test_edits_of_the_same_lines_are_made_one_after_the_other() -> None:
    lines = changed_lines("del", "autocast", "gradient accumulation", of=script())
    assert lines == [
        "    loss_total = 0",
        "    for x_part, y_part in zip(x.chunk(2), y.chunk(2)):",
        '        with torch.autocast("cpu", dtype=torch.bfloat16):',
        "            prediction = model(x_part)",
        "            loss = (prediction - y_part).square().mean()",
        "            del prediction",
        "        (loss * len(x_part) / len(x)).backward()",
        "        loss_total += loss.detach() * len(x_part) / len(x)",
        "    loss = loss_total",
    ]


def test_a_value_that_is_read_after_the_backward_stays() -> None:
    kinds = {each.kind for each in script(TEXT + "    print(prediction.shape)\n").proposals()}
    assert "del" not in kinds


def test_values_of_a_step_are_deleted_at_its_end() -> None:
    assert changed_lines("del at the end", of=script()) == ["    del loss, prediction"]
    read_later = script(TEXT + "print(loss)\n")
    assert changed_lines("del at the end", of=read_later) == ["    del prediction"]
    both = changed_lines("del", "del at the end", of=script())
    assert both == ["    del prediction", "    del loss"]


def test_rows_that_are_read_after_the_backward_are_concatenated() -> None:
    lines = changed_lines("gradient accumulation", of=script(TEXT + "    print(prediction.shape)\n"))
    assert lines == [
        "    loss_total = 0",
        "    prediction_rows = []",
        "    for x_part, y_part in zip(x.chunk(2), y.chunk(2)):",
        "        prediction = model(x_part)",
        "        loss = (prediction - y_part).square().mean()",
        "        (loss * len(x_part) / len(x)).backward()",
        "        loss_total += loss.detach() * len(x_part) / len(x)",
        "        prediction_rows.append(prediction.detach())",
        "    loss = loss_total",
        "    prediction = torch.cat(prediction_rows)",
    ]


def test_the_optimizer_updates_within_the_backward() -> None:
    assert changed_lines("step in backward", of=script())[-1] == "step_in_backward(optimizer)"
    clipped = TEXT.replace("    optimizer.step()", "    nn.utils.clip_grad_norm_(model.parameters(), 1)")
    assert "step in backward" not in {each.kind for each in script(clipped).proposals()}


def test_updates_within_the_backward_train_the_same() -> None:
    names: dict[str, Any] = {}
    exec(STEP_IN_BACKWARD, names)

    def trained(*, is_in_backward: bool) -> tuple[torch.Tensor, ...]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
        groups: list[dict[str, Any]] = [
            {"params": model[0].parameters(), "lr": 0.2},
            {"params": model[1].parameters()},
        ]
        optimizer = torch.optim.AdamW(groups, lr=0.1)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        if is_in_backward:
            names["step_in_backward"](optimizer)
        for _ in range(3):
            model(torch.randn(5, 3)).square().mean().backward()
            assert is_in_backward == (model[0].weight.grad is None)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        assert len(optimizer.state_dict()["state"]) == 4
        return tuple(model.parameters())

    assert all(map(torch.equal, trained(is_in_backward=True), trained(is_in_backward=False)))


def test_an_evaluation_that_records_gradients_runs_without_them() -> None:
    names = replace(NAMES, names=(*NAMES.names, NameFact("model", "module", "Net")))
    text = TEXT + "    error = (model(x) - y).abs().mean()\n"
    evaluated = Script({"train.py": text}, names, Fit(100, FitMoment("forward")))
    assert changed_lines("no_grad", of=evaluated) == [
        "    with torch.no_grad():",
        "        error = (model(x) - y).abs().mean()",
    ]
    assert "no_grad" not in {each.kind for each in script().proposals()}


def test_an_evaluation_runs_in_parts_of_the_batch() -> None:
    text = TEXT + "    with torch.no_grad():\n        print(model(x).sum())\n"
    names = replace(NAMES, names=(*NAMES.names, NameFact("model", "module", "Net")))
    phases = (PhasePeak("evaluation", 100, 3),)
    evaluated = Script({"train.py": text}, names, Fit(100, FitMoment("evaluation"), phases=phases))
    assert changed_lines("evaluation", of=evaluated) == [
        "        print(torch.cat([model(part) for part in x.chunk(4)]).sum())"
    ]


def test_zero_grad_moves_to_before_the_forward_or_after_the_step() -> None:
    made = script()
    texts = [made.with_edits((each,)) for each in made.proposals() if each.kind == "zero_grad"]
    orders = [
        [
            line.strip()
            for line in each["train.py"].splitlines()[20:]
            if "optimizer." in line or "model(x)" in line
        ]
        for each in texts
        if each is not None
    ]
    zero, forward, step = "optimizer.zero_grad()", "prediction = model(x)", "optimizer.step()"
    assert orders == [[zero, forward, step], [forward, step, zero]]


def test_activations_of_a_gpu_wait_in_the_hosts_memory() -> None:
    assert (
        changed_lines("offload", of=script(device="cuda"))[0]
        == "    with torch.autograd.graph.save_on_cpu():"
    )
    assert "offload" not in {each.kind for each in script().proposals()}


LANGUAGE_MODEL = """\
import torch


class Model(torch.nn.Module):
    def forward(self, tokens, targets):
        x = self.layers(tokens)
        logits = self.head(self.norm(x))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
"""


def test_head_and_loss_are_computed_in_chunks() -> None:
    lines = changed_lines("chunked loss", of=script(LANGUAGE_MODEL))
    assert lines[-1] == (
        "        return chunked_cross_entropy(self.head, self.norm(x), targets.flatten(), ignore_index=-1)"
    )
    read_twice = LANGUAGE_MODEL.replace("        return", "        print(logits)\n        return")
    assert "chunked loss" not in {each.kind for each in script(read_twice).proposals()}


def test_the_chunked_loss_is_the_loss() -> None:
    names: dict[str, Any] = {"torch": torch}
    exec(FUNCTION, names)
    torch.manual_seed(0)
    head, hidden = torch.nn.Linear(4, 9), torch.randn(3, 5, 4)
    targets = torch.randint(0, 9, (3, 5))
    targets[0, :2] = -1
    expected = torch.nn.functional.cross_entropy(
        head(hidden).flatten(0, 1), targets.flatten(), ignore_index=-1
    )
    torch.testing.assert_close(names["chunked_cross_entropy"](head, hidden, targets, -1), expected)


@pytest.mark.parametrize(
    ("imported", "written", "edited"),
    [
        (
            "import torch",
            "torch.optim.AdamW(model.parameters(), lr=0.1)",
            "AdamW8bit(model.parameters(), lr=0.1)",
        ),
        (
            "from torch import optim",
            "optim.Adam(model.parameters(), 0.1)",
            "Adam8bit(model.parameters(), 0.1)",
        ),
        ("from torch.optim import AdamW", "AdamW(model.parameters())", "AdamW8bit(model.parameters())"),
        (
            "import torch.optim as to",
            "to.AdamW(model.parameters(), foreach=True, lr=0.1, fused=None)",
            "AdamW8bit(model.parameters(), lr=0.1)",
        ),
        ("from transformers import AdamW", "AdamW(model.parameters())", None),
        ("from torch import optim", "optim.SGD(model.parameters())", None),
        ("import torch", "torch.optim.AdamW(model.parameters(), maximize=True)", None),
        ("import torch", "torch.optim.AdamW(model.parameters(), **options)", None),
    ],
)
def test_adam_gets_8_bit_state_where_it_is_torchs_with_options_of_both(
    imported: str, written: str, edited: str | None
) -> None:
    text = TEXT.replace("import nn\n", f"import nn\n{imported}\n")
    of = with_eight_bit(text.replace("torch.optim.AdamW(model.parameters(), lr=0.1)", written))
    if edited is None:
        assert EIGHT_BIT not in {each.kind for each in of.proposals()}
    else:
        lines = ["import torchao.optim", f"optimizer = torchao.optim.{edited}"]
        assert changed_lines(EIGHT_BIT, of=of) == lines
        assert not next(each for each in of.proposals() if each.kind == EIGHT_BIT).is_exact


def with_eight_bit(text: str) -> Script:
    """Return the script where torchao is installed."""
    names = replace(NAMES, has_eight_bit=True)
    return Script({"train.py": text}, names, Fit(100, FitMoment("backward")))


def test_8_bit_state_excludes_other_kernels_and_goes_with_updates_in_the_backward() -> None:
    of = with_eight_bit(TEXT)
    lines = changed_lines("step in backward", EIGHT_BIT, of=of)
    assert lines[-2:] == [
        "optimizer = torchao.optim.AdamW8bit(model.parameters(), lr=0.1)",
        "step_in_backward(optimizer)",
    ]
    groups = {each.group for each in of.proposals() if each.kind in (EIGHT_BIT, "fused optimizer")}
    assert len(groups) == 1


def test_each_of_several_optimizers_gets_8_bit_state_in_any_order() -> None:
    of = with_eight_bit(f"{TEXT}other = torch.optim.AdamW(model.parameters())\n")
    first, second = (each for each in of.proposals() if each.kind == EIGHT_BIT)
    for chosen in ((first, second), (second, first)):
        texts = of.with_edits(chosen)
        assert texts is not None
        assert texts["train.py"].count("= torchao.optim.AdamW8bit(") == 2


def test_8_bit_state_is_suggested_where_it_is_much_of_the_peak_and_no_edit_is_possible() -> None:
    state = (KindBytes("optimizer state", 400, "exp_avg"), KindBytes("optimizer state", 400, "exp_avg_sq"))
    fit = Fit(1000, FitMoment("optimizer"), by_kind=state)
    suggestion = eight_bit_suggestion(fit, NAMES)
    assert suggestion is not None
    assert (suggestion.new_peak_bytes, suggestion.is_tested, suggestion.edits) == (408, False, ())
    assert suggestion.compared.endswith("`torchao.optim` is not installed")
    installed = eight_bit_suggestion(fit, replace(NAMES, has_eight_bit=True))
    assert installed is not None
    assert "not installed" not in installed.compared
    assert eight_bit_suggestion(Fit(100_000, FitMoment("optimizer"), by_kind=state), NAMES) is None
    own = NameFact("optimizer", "optimizer", "AdamW8bit")
    assert eight_bit_suggestion(fit, replace(NAMES, names=(own,))) is None
