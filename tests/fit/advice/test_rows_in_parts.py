"""Edits that compute rows of a forward in parts, and compile blocks one by one: their text and training."""

from typing import Any

import pytest
import torch

from aotlens.fit.advice.edits.block_compilation import FUNCTION as COMPILE_BLOCKS
from aotlens.fit.advice.edits.rows_in_parts import FUNCTION
from aotlens.fit.advice.jobs import NameFact, NamesOutcome
from aotlens.fit.advice.rules import Script
from aotlens.model.fit import Fit, FitAllocation, FitMoment
from aotlens.model.source import Span

TEXT = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Codebook(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(4, 8)
        self.mlp = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
        self.first = nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    def forward(self, x, noise):
        x = checkpoint(self.first, x, use_reentrant=True)
        distances = torch.cdist(self.encode(x + noise), self.codes)
        # harder with each epoch
        weights = torch.softmax(-distances, -1)
        usage = weights.mean(0)
        return self.mlp(weights @ self.codes), usage


model = Codebook()
compiled = torch.compile(model, dynamic=False)
x = torch.randn(6, 4)
loss = compiled(x, x)[0].sum()
loss.backward()
"""
NAMES = NamesOutcome("train.py", 26, (NameFact("loss", "tensor", "Tensor", requires_grad=True),))


def fit_of(*sizes: tuple[int, int]) -> Fit:
    """A step whose lines save these bytes."""
    allocations = [
        FitAllocation(size, "saved activation", "forward", 1, 2, span=Span("train.py", line, 15, line, 16))
        for line, size in sizes
    ]
    return Fit(100, FitMoment("backward"), allocations=tuple(allocations))


def edited(title: str, text: str = TEXT) -> list[str]:
    """Return the new lines of a script with the edit of that title."""
    script = Script({"train.py": text}, NAMES, fit_of((15, 8), (17, 16), (19, 4)))
    (chosen,) = (each for each in script.proposals() if each.title == title)
    texts = script.with_edits((chosen,))
    assert texts is not None
    before = text.splitlines()
    return [line for line in texts["train.py"].splitlines() if line and line not in before]


HOW = "in 4 parts of the rows, each checkpointed"
FUNCTION_LINES = [line for line in FUNCTION.splitlines() if line]


def test_a_call_of_a_module_is_made_for_parts_of_its_rows() -> None:
    text = TEXT.replace("self.mlp(weights @ self.codes)", "self.mlp(weights)")
    assert edited(f"Call `self.mlp` in `Codebook.forward` {HOW}", text) == [
        "import torch.utils.checkpoint",
        *FUNCTION_LINES,
        "        return checkpoint_in_parts(self.mlp, weights), usage",
    ]


def test_an_assignment_with_those_that_only_it_needs_becomes_a_function_of_rows() -> None:
    assert edited(f"Compute `weights` in `Codebook.forward` {HOW}")[-6:] == [
        "        def rows_of_weights(noise, x):",
        "            distances = torch.cdist(self.encode(x + noise), self.codes)",
        "            # harder with each epoch",
        "            weights = torch.softmax(-distances, -1)",
        "            return weights",
        "        weights = checkpoint_in_parts(rows_of_weights, noise, x)",
    ]


def test_a_single_assignment_becomes_a_lambda() -> None:
    assert edited(f"Compute `distances` in `Codebook.forward` {HOW}")[-1] == (
        "        distances = checkpoint_in_parts("
        "lambda noise, x: torch.cdist(self.encode(x + noise), self.codes), noise, x)"
    )


def test_a_value_that_is_returned_becomes_a_lambda() -> None:
    text = TEXT.replace("self.mlp(weights @ self.codes)", "torch.relu(weights @ self.codes)")
    title = f"Compute what `Codebook.forward` returns as number 1 {HOW}"
    assert edited(title, text)[-1] == (
        "        return checkpoint_in_parts(lambda weights: torch.relu(weights @ self.codes), weights), usage"
    )


def test_a_checkpoint_is_made_for_one_part_after_the_other() -> None:
    title = "Checkpoint `self.first` in `Codebook.forward` in 4 parts of the rows, one after the other"
    assert edited(title) == [
        "        x = torch.cat([checkpoint(self.first, x_part, use_reentrant=True) for x_part in x.chunk(4)])"
    ]


@pytest.mark.parametrize("random", ["torch.rand_like(x)", "self.drop(x)", "attention(x, dropout_p=0.1)"])
def test_random_numbers_are_those_of_all_rows(random: str) -> None:
    text = TEXT.replace("# harder with each epoch", f"jitter = {random}")
    text = text.replace("-distances, -1", "jitter - distances, -1")
    (line,) = edited(f"Compute `weights` in `Codebook.forward` {HOW}", text)[-1:]
    value = "lambda distances, jitter: torch.softmax(jitter - distances, -1), distances, jitter"
    assert line == f"        weights = checkpoint_in_parts({value})"


def test_lines_that_save_most_come_first_and_others_not_at_all() -> None:
    proposals = Script({"train.py": TEXT}, NAMES, fit_of((15, 8), (17, 16))).proposals()
    names = [each.title.split("`")[1] for each in proposals if each.title.startswith("Compute")]
    assert names == ["weights", "distances"]


def test_parts_of_the_rows_have_the_values_and_gradients_of_all_rows() -> None:
    namespace: dict[str, Any] = {"torch": torch}
    exec(FUNCTION, namespace)
    torch.manual_seed(0)
    module, x, y = torch.nn.Linear(4, 3), torch.randn(6, 4), torch.randn(6, 3)
    gradients = []
    for run in (lambda f, *rows: f(*rows), namespace["checkpoint_in_parts"]):
        module.zero_grad()
        output = run(lambda x, y: module(x).tanh() * y, x, y)
        output.sum().backward()
        gradients.append([output, module.weight.grad, module.bias.grad])
    for whole, parts in zip(*gradients, strict=True):
        torch.testing.assert_close(parts, whole)


def test_modules_are_compiled_one_by_one_alone_and_with_updates_within_the_backward() -> None:
    text = TEXT.replace("x = torch.randn(6, 4)", "optimizer = torch.optim.SGD(model.parameters(), 1)")
    lines = edited("Compile the modules of `model` one by one", text)
    assert lines[-1] == "compiled = compile_blocks(model, dynamic=False)"
    assert all(line in lines for line in COMPILE_BLOCKS.splitlines() if line)
    update = "Let `optimizer` update each parameter within the backward, with the modules of `model` compiled"
    assert edited(f"{update} one by one", text)[-2:] == [lines[-1], "step_in_backward(optimizer)"]


def test_compiling_one_by_one_goes_into_what_has_lists_and_sequences() -> None:
    namespace: dict[str, Any] = {"torch": torch}
    exec(COMPILE_BLOCKS, namespace)
    block = torch.nn.Module()
    block.mlp = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.GELU())
    decoder, model = torch.nn.Module(), torch.nn.Module()
    decoder.blocks = torch.nn.ModuleList([block, torch.nn.Linear(2, 2)])
    model.decoder, model.stem = decoder, torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    model.head = torch.nn.Linear(2, 2)
    model.towers = torch.nn.ModuleDict({"left": torch.nn.Linear(2, 2)})
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    assert namespace["compile_blocks"](model, backend=backend, dynamic=False) is model
    compiled = [name for name, child in model.named_modules() if "forward" in vars(child)]
    assert compiled == ["decoder.blocks.0", "decoder.blocks.1", "stem.0", "stem.1", "head", "towers.left"]
    model.stem(torch.ones(3, 2))
    assert len(graphs) == 2, "one for each module of the sequence"


def test_reentrant_checkpoints_become_others() -> None:
    title = "Let the checkpoints run without a backward of their own (`use_reentrant=False`)"
    assert edited(title) == ["        x = checkpoint(self.first, x, use_reentrant=False)"]


def test_checkpoints_without_random_numbers_save_no_state_of_generators() -> None:
    title = (
        "Let the checkpoints save no state of random number generators, because they use no random numbers"
    )
    assert edited(title) == [
        "        x = checkpoint(self.first, x, use_reentrant=True, preserve_rng_state=False)"
    ]


def test_a_checkpoint_in_segments_gets_more_of_them() -> None:
    text = TEXT.replace("checkpoint(self.first, x", "checkpoint_sequential(self.first, 2, x")
    assert edited("Checkpoint `self.first` in 4 segments instead of 2 in `Codebook.forward`", text) == [
        "        x = checkpoint_sequential(self.first, 4, x, use_reentrant=True)"
    ]


def test_a_module_that_the_step_calls_is_checkpointed() -> None:
    facts = (*NAMES.names, NameFact("compiled", "module", "OptimizedModule", has_submodules=True))
    names = NamesOutcome(NAMES.file, NAMES.line, facts)
    titles = [each.title for each in Script({"train.py": TEXT}, names, fit_of()).proposals()]
    assert "Checkpoint `compiled(x, x)`: the backward runs its forward again" in titles
