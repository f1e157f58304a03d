"""The module text, the stages' text and the report's JSON, as golden files read in review."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from aotlens.compiled import Compiled
from aotlens.model.codec import dumps
from aotlens.model.report import Report
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from tests.engine import golden_functions as functions

Golden = Callable[[str, str], None]


def leaf(*shape: int) -> Tensor:
    return torch.ones(shape, requires_grad=True)


CASES: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    "running_total": lambda: (functions.running_total, (leaf(4), torch.ones(4))),
    "two_views": lambda: (functions.two_views, (leaf(3, 4),)),
    "updated_in_place": lambda: (functions.updated_in_place, (leaf(2, 3) * 1, torch.ones(3))),
    "plain_and_nested": lambda: (
        functions.plain_and_nested,
        ({"left": torch.ones(2), "right": torch.ones(2, 2)}, 3),
    ),
    "normalised": lambda: (functions.Normalised(), (torch.ones(5, 3),)),
}


def compiled(name: str, **options: Any) -> Compiled:
    function, args = CASES[name]()
    chosen = CompileOptions(backend="eager", observe_variables=True, **options)
    return compile_direct(function, args, {}, chosen)


@pytest.mark.parametrize("name", CASES)
def test_module_text(name: str, golden: Golden) -> None:
    golden(f"engine/{name}.txt", compiled(name).source)


@pytest.mark.rotates
def test_module_text_with_symbolic_sizes(golden: Golden) -> None:
    text = compiled("two_views", dynamic=True).source
    symbols = dict.fromkeys(re.findall(r"\bs\d+\b", text))
    for at, symbol in enumerate(symbols):
        text = re.sub(rf"\b{symbol}\b", f"s{at}", text)
    golden("engine/two_views_dynamic.txt", text)


def test_stage_texts(golden: Golden) -> None:
    stages = compiled("running_total").target().stages
    golden("engine/running_total_stages.txt", "\n".join(f"# {stage.name}\n{stage.text}" for stage in stages))


def test_report_json(golden: Golden) -> None:
    target = compiled("updated_in_place").target()
    text = dumps(Report("2.13.0", "3.11", "test", (target,)))
    text = re.sub(r'("\w[\w ]*": )\d+\.\d+', r"\g<1>0.0", text)
    folder = str(Path(functions.__file__).parent)
    golden("engine/updated_in_place.json", text.replace(folder, "tests/engine") + "\n")


def test_the_text_is_the_same_each_time() -> None:
    assert compiled("updated_in_place").source == compiled("updated_in_place").source
