"""Torch's own operator and module databases: each sample as eager, forward and backward.

A sample of both runs by default; `AOTLENS_ALL_OPS=1` runs everything.  What cannot be equal stands in
`NOT_COMPARABLE`, each with its reason.
"""

import itertools
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db

from aotlens.errors import UnsupportedError
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.verify.compare import compare
from aotlens.verify.first_call import observe_alone
from aotlens.verify.observe import Probe
from aotlens.verify.world import copies, world

pytestmark = pytest.mark.filterwarnings("ignore")  # the samples warn as eager warns

EVERYTHING = bool(os.environ.get("AOTLENS_ALL_OPS"))
OPERATORS = [op for op in op_db if torch.float32 in op.dtypes][:: 1 if EVERYTHING else 6]
MODULES = module_db[:: 1 if EVERYTHING else 6]
SAMPLES = 4 if EVERYTHING else 2
SEEDS = "its sample sets the seed inside the function, which a compiled call does not repeat"
UNINITIALISED = "its result is uninitialised memory"

NOT_COMPARABLE = {
    **dict.fromkeys(("empty", "empty_like", "empty_permuted", "empty_strided"), UNINITIALISED),
    **dict.fromkeys(("new_empty", "new_empty_strided"), UNINITIALISED),
    **dict.fromkeys(("bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial"), SEEDS),
    **dict.fromkeys(("normal", "rand_like", "randint", "randint_like", "randn", "randn_like"), SEEDS),
    **dict.fromkeys(("uniform", "pca_lowrank", "svd_lowrank", "nn.functional.rrelu"), SEEDS),
    **dict.fromkeys(("nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d"), SEEDS),
    **dict.fromkeys(("nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d"), SEEDS),
    **dict.fromkeys(("nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout"), SEEDS),
    **dict.fromkeys(("nn.functional.multi_head_attention_forward",), SEEDS),
    "nn.functional.scaled_dot_product_attention": SEEDS,
    "linalg.eig": "eager refuses the backward for some values, which a graph cannot see",
}


def judge_sample(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], dynamic: bool
) -> None:
    """The sample equals eager, or is refused by name; what eager refuses is not judged."""
    eager, compiled = copies(world(fn, args, kwargs))
    expected = observe_alone(eager, Probe(writes=False))
    if expected.failure is not None:
        return
    options = CompileOptions(backend="eager", dynamic=dynamic)
    try:
        call = compile_direct(compiled.fn, compiled.args, dict(compiled.kwargs), options).call
    except UnsupportedError:
        return
    differences = compare(observe_alone(compiled, Probe(writes=False), call), expected).differences
    assert not differences, "\n".join(map(str, differences))


@pytest.mark.parametrize("dynamic", [False, True] if EVERYTHING else [False])
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.formatted_name)
def test_operator(op: Any, dynamic: bool) -> None:
    if op.name in NOT_COMPARABLE:
        return

    def call(*args: Any, **kwargs: Any) -> Any:
        return op.op(*args, **kwargs)

    torch.manual_seed(0)
    samples = op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)
    for sample in itertools.islice(samples, SAMPLES):
        judge_sample(call, (sample.input, *sample.args), sample.kwargs, dynamic)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("info", MODULES, ids=lambda info: info.name)
def test_module(info: Any, training: bool) -> None:
    if issubclass(info.module_cls, torch.nn.modules.lazy.LazyModuleMixin):
        return
    torch.manual_seed(0)
    made = info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
    )
    for given in itertools.islice(made, SAMPLES):
        if given.forward_input is not None:
            construct = given.constructor_input
            module = info.module_cls(*construct.args, **construct.kwargs).train(training)
            judge_sample(module, tuple(given.forward_input.args), given.forward_input.kwargs, dynamic=False)
