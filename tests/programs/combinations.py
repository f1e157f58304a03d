"""Every kind of input x every mutation x every output, and every pair of outputs on one intermediate.

The grids find what nobody thought of; cells that eager refuses stay in: the engine must refuse them too.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from torch import Tensor

from tests.programs.program import Cases, leaf, plain, tape

cases = Cases("combinations")

Step = Callable[[Tensor], Any]


def _under_no_grad(step: Step) -> Step:
    def quiet(x: Tensor) -> Any:
        with torch.no_grad():
            return step(x)

    return quiet


INPUTS: dict[str, Callable[[], Tensor]] = {
    "plain": lambda: plain(3, 4),
    "leaf": lambda: leaf(3, 4),
    "tape": lambda: tape(3, 4),
    "view": lambda: tape(5, 4)[1:4],
}

MUTATIONS: dict[str, Step] = {
    "kept": lambda x: None,
    "mul": lambda x: x.mul_(2),
    "mul_row": lambda x: x[1].mul_(2),
    "t": lambda x: x.t_(),
    "t_then_mul": lambda x: x.t_().mul_(2),
    "detached_mul": lambda x: x.detach().mul_(2),
    "no_grad_mul": _under_no_grad(lambda x: x.mul_(2)),
    "no_grad_then_mul": lambda x: (_under_no_grad(lambda y: y.add_(1))(x), x.mul_(2)),
}

OUTPUTS: dict[str, Step] = {
    "nothing": lambda x: None,
    "itself": lambda x: x,
    "view": lambda x: x[1:],
    "detached": lambda x: x.detach(),
    "no_grad_view": _under_no_grad(lambda x: x[1:]),
    "computed": lambda x: x.sin(),
    "no_grad_computed": _under_no_grad(lambda x: x.sin()),
    "view_and_computed": lambda x: (x.t(), x * x),
}

SHAPES: dict[str, Step] = {
    "itself": lambda made: made,
    "view": lambda made: made.view(-1),
    "row": lambda made: made[1],
    "detached": lambda made: made.detach(),
    "detached_row": lambda made: made.detach()[1],
    "piece": lambda made: made.unbind(0)[1],
    "no_grad_row": _under_no_grad(lambda made: made[1]),
}


def _step(mutation: Step, output: Step) -> Step:
    def step(x: Tensor) -> Any:
        mutation(x)
        return output(x)

    return step


def _pair(first: Step, second: Step) -> Step:
    def pair(x: Tensor) -> Any:
        made = x * 2
        return first(made), second(made)

    return pair


def _register(name: str, step: Step, make: Callable[[], Tensor]) -> None:
    step.__name__ = name
    cases(lambda: (make(),), "grid")(step)


for _input, _mutation, _output in product(INPUTS, MUTATIONS, OUTPUTS):
    _register(
        f"{_input}-{_mutation}-{_output}", _step(MUTATIONS[_mutation], OUTPUTS[_output]), INPUTS[_input]
    )

for _first, _second in product(SHAPES, SHAPES):
    _register(f"pair-{_first}-{_second}", _pair(SHAPES[_first], SHAPES[_second]), INPUTS["leaf"])
    _register(f"plain-pair-{_first}-{_second}", _pair(SHAPES[_first], SHAPES[_second]), INPUTS["plain"])
