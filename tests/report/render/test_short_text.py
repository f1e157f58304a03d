"""The default text of `aotlens inspect`: what matters of a large model on two screens."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import aotlens
from aotlens.model import Diagnostic, Report, Target
from aotlens.render.text.diagnostics import diagnostic_list
from aotlens.render.text.layout import WIDTH, Page, to_text
from aotlens.render.text.report import TWO_SCREENS, Shown, report_text
from aotlens.render.text.targets import main_targets
from tests.report.sample import sample_report, span, training_target

SHORT = Page(is_full=False)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.batch_norm = nn.LayerNorm(width), nn.BatchNorm1d(width)
        self.attention = nn.Linear(width, 3 * width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.attention(self.norm(x)).chunk(3, dim=-1)
        weights = torch.softmax(query @ key.transpose(-1, -2), dim=-1)
        x = x + nn.functional.dropout(weights @ value, 0.1)
        hidden = nn.functional.gelu(self.up(x))
        return x + self.batch_norm(self.down(hidden).transpose(1, 2)).transpose(1, 2)


class Model(nn.Module):
    """Twelve layers that return the states of each, as models of libraries do."""

    def __init__(self, width: int = 16, layers: int = 12) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, 64)

    def forward(self, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
        x, states = self.embedding(tokens), []
        for block in self.blocks:
            x = block(x)
            states.append(x)
        return self.head(x), states


@pytest.fixture(scope="module")
def report() -> Report:
    return aotlens.inspect(Model(), torch.zeros(2, 8, dtype=torch.int64))


@pytest.mark.rotates
def test_twelve_layers_fit_on_two_screens(report: Report) -> None:
    lines = report_text(report).splitlines()
    assert len(lines) <= TWO_SCREENS == 100
    assert max(map(len, lines)) <= WIDTH
    assert len(report_text(report, Shown(is_full=True)).splitlines()) > 2 * TWO_SCREENS


def test_what_is_on_the_two_screens(report: Report) -> None:
    """Diagnostics, then what is changed, then the values of all layers as one row."""
    found = Diagnostic("AL801", "hint", "smaller", None)
    text = report_text(replace(report, targets=(replace(report.targets[0], diagnostics=(found,)),)))
    order = [text.index(part) for part in ("AL801", "Inputs", "Outputs", "Saved", "Memory", "Wrapper")]
    assert order == sorted(order)
    assert "blocks.0.batch_norm.running_mean and 11 more" in text
    assert "blocks.0–11" in text
    assert "not needed" not in text
    assert "Programs" not in text


def test_small_values_are_counted(report: Report) -> None:
    partition = report.targets[0].partition
    assert partition is not None
    (large, *_) = (value for value in partition.saved if value.bytes)
    huge = replace(large, node="huge", name="huge", bytes=1000 * partition.saved_bytes)
    saved = (huge, *partition.saved)
    target = replace(
        report.targets[0],
        partition=replace(partition, saved=saved, saved_bytes=1001 * partition.saved_bytes),
    )
    text = report_text(replace(report, targets=(target,)))
    rows = text[text.index("Saved for backward") : text.index("alive anyway")].splitlines()
    small = [value for value in partition.saved if value.bytes]
    assert len(rows) == 5  # heading, the large value in two lines, the count, and the start of what is free
    assert rows[3].startswith(f"  and {len(small)} smaller values, ")


def test_of_many_graphs_the_largest_are_shown() -> None:
    block = training_target()
    assert block.partition is not None
    targets = tuple(
        replace(
            block,
            name=f"part{number}",
            qualname=f"part{number}",
            partition=replace(block.partition, saved_bytes=number),
            diagnostics=(),
        )
        for number in range(40)
    )
    assert main_targets(targets) == (38, 39)
    text = report_text(replace(sample_report(), targets=targets))
    assert len(text.splitlines()) <= TWO_SCREENS
    assert [name in text for name in ("── part38 ", "── part39 ", "── part37 ")] == [True, True, False]
    assert "Other graphs  38; SCRIPT::NAME shows one, --full shows all\n" in text


def test_of_one_function_compiled_again_the_largest_is_shown() -> None:
    block = training_target()
    assert block.partition is not None
    other: Target = replace(block, name="other", qualname="other", partition=None)
    smaller = replace(block, partition=replace(block.partition, saved_bytes=1))
    assert main_targets((smaller, block, other)) == (1, 2)


def test_diagnostics_the_worst_first_and_alike_ones_once() -> None:
    here, there = span("x + self.down(gated)"), span("cache.mul_(0.9)")
    hint = Diagnostic("AL801", "hint", "smaller", there)
    found = [
        hint,
        *(Diagnostic("AL301", "information", f"layer {number} keeps much", here) for number in range(12)),
        Diagnostic("AL402", "error", "is not supported", there),
        *(replace(hint, code=f"AL30{number}", message="another") for number in range(2, 7)),
    ]
    lines = to_text(diagnostic_list(found, SHORT)).splitlines()
    heads = [line.split(": ")[1].split()[0] for line in lines if ": AL" in line and "more diag" not in line]
    assert heads == ["AL402", "AL301", "AL801", "AL302", "AL303"]
    assert "    = 11 more of this kind here" in lines
    assert lines[-1] == "  and 3 more diagnostics: AL304, AL305, AL306 (--full shows more)"
