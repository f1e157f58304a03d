"""A recipe as the text of a Python module, which is what runs, is judged, and is kept where it fails.

Promise: the text defines `fn` (or the module class `fn`), `make_args()` and `OPTIONS`; it works in eager.
"""

import re
import textwrap
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from tests.programs.program import Program, grown
from tests.random_programs.grammar import STATE
from tests.random_programs.recipes import ROWS, Recipe, Statement

HEADER = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.programs.program import Fixed, leaf, plain, tape
from tests.random_programs.functions import *

"""

MODULE = """\
class fn(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.bias = nn.Parameter(torch.randn(4))
        self.register_buffer("state", torch.randn(4, 4))
        self.register_buffer("other", {other})
        self.register_buffer("count", torch.zeros(()))
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.train({training})

"""


def write(recipe: Recipe) -> str | None:
    """The program's text; None where none of its statements fits, or eager cannot run it."""
    names = [f"a{index}" for index in range(len(recipe.arguments) + len(recipe.shared))]
    before = _before(recipe)
    if not _gives_arguments(recipe, before):
        return None
    with torch.enable_grad():  # and as it was afterwards, whatever the statements leave
        kept, known = _kept(recipe, before, names)
    if not kept:
        return None
    results = [known[-1 - back % len(known)] for back in recipe.results]
    text = before + _function(recipe, names, kept, results)
    return text if _runs(text, recipe.dynamic) else None


def _gives_arguments(recipe: Recipe, before: str) -> bool:
    """Whether one argument can come from another as the recipe says."""
    space = _loaded(before + ("        pass\n" if recipe.of_module else ""))
    for sizes in (nullcontext, grown) if recipe.dynamic else (nullcontext,):
        with sizes():
            if not _tried("make_args()", space):
                return False
    return True


def program(text: str, name: str) -> Program:
    """The program that a text defines."""
    space = _loaded(_asking_first(text))
    fn = space["fn"]
    make: Callable[[], Any] = fn if isinstance(fn, type) else lambda: fn
    return Program(name, fn, make, space["make_args"], frozenset(), nullcontext, None, None, frozenset())


def options(text: str) -> dict[str, Any]:
    """How a text's program is compiled."""
    return dict(_loaded(text)["OPTIONS"])


def _before(recipe: Recipe) -> str:
    """Everything above the function."""
    chosen = {"dynamic": recipe.dynamic, "policy": recipe.policy}
    given = recipe.arguments
    if recipe.of_module and recipe.dynamic:  # its features stay, and are not taken for the rows that grow
        given = tuple(text.replace("4, 4", "6, Fixed(4)") for text in given)
    lines = [f"t{index} = {text}" for index, text in enumerate(given)]
    order = [f"t{index}" for index in range(len(lines))]
    order += [how.format(t=f"t{of % len(lines)}") for of, how in recipe.shared]
    turn = recipe.turned % len(order)
    lines.append(f"return ({', '.join(order[turn:] + order[:turn])},)")
    body = textwrap.indent("\n".join(lines), "    ")
    text = f"{HEADER}OPTIONS = {chosen}\n\n\ndef make_args():\n{body}\n\n\n"
    if recipe.of_module:
        other = "self.state[1:]" if recipe.turned % 2 else "torch.randn(4, 4)"
        text += MODULE.format(other=other, training=recipe.training)
    return text


def _function(recipe: Recipe, names: list[str], statements: list[str], results: list[str]) -> str:
    lines = [*statements, f"return ({', '.join(results)},)"]
    if not recipe.of_module:
        return f"def fn({', '.join(names)}):\n" + textwrap.indent("\n".join(lines), "    ") + "\n"
    head = f"    def forward(self, {', '.join(names)}):\n"
    return head + textwrap.indent("\n".join(lines), "        ") + "\n"


def _kept(recipe: Recipe, before: str, names: list[str]) -> tuple[list[str], list[str]]:
    """The statements that eager can run one after the other, and the values that are there at the end."""
    spaces = []
    for grow in (False, True) if recipe.dynamic else (False,):
        space = _loaded(before + ("        pass\n" if recipe.of_module else ""))
        if recipe.of_module:
            space["self"] = space["fn"]()
        with grown() if grow else nullcontext():
            space |= dict(zip(names, space["make_args"](), strict=True))
        spaces.append(space)
    kept, known = [], list(names)
    for number, statement in enumerate(recipe.statements):
        line, made = _line(statement, number, known)
        if statement.kind == "in place" and _overlaps(statement, known, spaces[0]):
            continue
        if all(_tried(statement.under + line, space) for space in spaces):
            kept.append(statement.under + line)
            known += [made] if made else []
    return kept, known


def _overlaps(statement: Statement, known: list[str], space: dict[str, Any]) -> bool:
    """Whether a write would read what it writes through another view: in what order is left open."""
    one = space[known[-1 - statement.first % len(known)]]
    other = space[known[-1 - statement.second % len(known)]]
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    shares = one.untyped_storage()._cdata == other.untyped_storage()._cdata
    geometry = [(value.size(), value.stride(), value.storage_offset()) for value in (one, other)]
    return shares and geometry[0] != geometry[1]


def _line(statement: Statement, number: int, known: list[str]) -> tuple[str, str | None]:
    """The line, and the name that it binds, if any."""
    rows = ROWS[statement.kind]
    text = rows[statement.row % len(rows)].format(
        v=known[-1 - statement.first % len(known)],
        w=known[-1 - statement.second % len(known)],
        m=STATE[statement.second % len(STATE)],
    )
    if statement.kind in ("in place", "binding"):
        return text, None
    return f"v{number} = {text}", f"v{number}"


def _tried(line: str, space: dict[str, Any]) -> bool:
    try:
        exec(_asking_first(line), space)
    except (RuntimeError, IndexError, ValueError, TypeError, AttributeError, NotImplementedError):
        return False
    return True


def _asking_first(text: str) -> str:
    """Where a view gets a hook whose history autograd refuses to tell, torch ends the process: ask before."""
    return HOOKED.sub(r"\1.grad_fn, \1.register_hook(", text)


HOOKED = re.compile(r"(\w+)\.register_hook\(")


def _runs(text: str, dynamic: bool) -> bool:
    """Whether eager runs it twice, on other sizes too where those may change."""
    space = _loaded(_asking_first(text))
    fn = space["fn"]() if isinstance(space["fn"], type) else space["fn"]
    for sizes in (nullcontext, grown) if dynamic else (nullcontext, nullcontext):
        with sizes():
            args = space["make_args"]()
        try:
            with torch.enable_grad():
                results = fn(*args)
        except (RuntimeError, IndexError, ValueError, TypeError, AttributeError, NotImplementedError):
            return False
        if not all(isinstance(result, torch.Tensor) for result in results):
            return False
    return True


def _loaded(text: str) -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "random_program"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(text, space)
    return space
