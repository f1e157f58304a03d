"""The shared programs through `aot_function` and `aot_module` themselves."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import aotlens
from tests.engine.judging import judge
from tests.engine.test_programs import name_of
from tests.programs import PROGRAMS, Program

pytestmark = pytest.mark.filterwarnings("ignore")  # programs warn as eager warns


def entry_point(fn: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
    make: Any = aotlens.aot_module if isinstance(fn, torch.nn.Module) else aotlens.aot_function
    return make(fn, aotlens.nop)


CHANGES_MORE = ("left_behind", "containers")
CHOSEN = [program for program in PROGRAMS if program.name.startswith(CHANGES_MORE)]
CHOSEN += [program for program in PROGRAMS if not program.name.startswith(CHANGES_MORE)][::4]
"""What reaches beyond its result is where these are apart from the direct frontend; a sample of the rest."""


@pytest.mark.parametrize("program", CHOSEN, ids=name_of)
def test_as_eager(program: Program) -> None:
    judge(program, entry_point)
