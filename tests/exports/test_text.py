"""What an exported module's text holds, and what is refused by name."""

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import aotlens
from aotlens.codegen.graph_adapter import GraphAdapter
from aotlens.codegen.standalone_code import WAIT_FOR_KERNELS, standalone_graph
from aotlens.errors import UnsupportedError
from tests.exports.facts import difference, facts

NOTHING_AROUND = GraphAdapter((), (), (), (), (), ())


def loaded(text: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "exported"}
    exec(text, namespace)
    return namespace


TENSORS = (
    torch.randn(100, 7),  # more numbers than anybody reads
    torch.randn(3, 40).t(),
    torch.randn(2, 1).expand(2, 5),
    torch.tensor([1 + 2j, float("nan")]),
    torch.randn(2, 3, dtype=torch.complex64).conj(),
    torch.tensor([0.1, -0.0, float("inf")], dtype=torch.bfloat16),
    torch.empty(0, 3),
    torch.randn(4, requires_grad=True),
)


@pytest.mark.parametrize("tensor", TENSORS, ids=lambda tensor: f"{tensor.dtype}{list(tensor.shape)}")
def test_a_tensor_from_outside_is_made_again(tensor: Tensor) -> None:
    def times_outside(x: Tensor) -> Tensor:
        return x * tensor

    x = torch.randn(tensor.shape)
    call = loaded(aotlens.export(times_outside, x))["call"]
    assert difference(facts(call, call, (x,)), facts(times_outside, times_outside, (x,)), 0.0) is None


def test_tensors_of_one_memory_lie_in_one_memory() -> None:
    whole = torch.arange(6.0)
    first, last = whole[:4], whole[2:]

    def write_one_read_other(x: Tensor) -> Tensor:
        first.add_(x)
        return last * x

    x = torch.ones(4)
    namespace = loaded(aotlens.export(write_one_read_other, x))
    assert namespace["call"](x).tolist() == [3.0, 4.0, 4.0, 5.0]
    assert first.tolist() == [0.0, 1.0, 2.0, 3.0]  # the process that exports keeps its own


class Scaled(nn.Module):
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        return x * self.scale


def test_a_module_is_bound_to_the_text() -> None:
    namespace = loaded(aotlens.export(Scaled(), torch.ones(2)))
    other = Scaled()
    other.scale.data.fill_(5.0)
    result = namespace["bind"](other)(torch.ones(2))
    result.sum().backward()
    assert namespace["OWNED"] == ("scale", "calls")
    assert other.scale.grad is not None
    assert (result.tolist(), other.scale.grad.item(), int(other.calls)) == ([5.0, 5.0], 2.0, 1)


class Pair(NamedTuple):
    one: Tensor
    two: Tensor


def test_a_class_that_can_be_imported_is_imported() -> None:
    def pair(x: Tensor) -> Pair:
        return Pair(x + 1, x + 2)

    text = aotlens.export(pair, torch.ones(1))
    assert "needs torch, and `tests.exports.test_text` for `Pair`." in text
    assert type(loaded(text)["call"](torch.ones(1))) is Pair


def test_what_only_this_process_has_is_refused_by_name() -> None:
    class Here(NamedTuple):
        one: Tensor

    def local_class(x: Tensor) -> Here:
        return Here(x + 1)

    def module_argument(x: Tensor, layer: nn.Module) -> Tensor:
        return layer(x)

    x = torch.ones(2)
    with pytest.raises(UnsupportedError, match=r"export of `local_class`, which needs containers of classes"):
        aotlens.export(local_class, x)
    with pytest.raises(UnsupportedError, match="the very module `Identity` that it was given"):
        aotlens.export(module_argument, x, nn.Identity())


SOURCE = """
# AOT ID: ['7_inference']
import torch
import tempfile
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.select_algorithm import extern_kernels

aten = torch.ops.aten
async_compile = AsyncCompile()
constant0 = None  # 1234

cpp_fused_add_0 = async_compile.cpp_pybinding(['float*'], r'''
cpp_fused_add_0 stays in a string
''')


async_compile.wait(globals())
del async_compile

class Runner:
    def __init__(self, partitions):
        self.partitions = partitions

    def recursively_apply_fns(self, fns):
        pass

    def call(self, args):
        arg0_1, = args
        args.clear()
        # [Provenance debug handles] cpp_fused_add_0:12
        cpp_fused_add_0(arg0_1, constant0)
        return (arg0_1.cpp_fused_add_0, )

runner = Runner(partitions=[])
call = runner.call
recursively_apply_fns = runner.recursively_apply_fns


def get_args():
    return []


if __name__ == "__main__":
    pass
"""

WRITTEN = """
forward_cpp_fused_add_0 = async_compile.cpp_pybinding(['float*'], r'''
cpp_fused_add_0 stays in a string
''')


def forward_graph(args):
    arg0_1, = args
    args.clear()
    forward_cpp_fused_add_0(arg0_1, forward_constant0)
    return (arg0_1.cpp_fused_add_0, )"""


def test_inductor_s_module_as_a_part_of_another() -> None:
    constant = torch.ones(1)
    graph = standalone_graph(SOURCE, "forward", "forward_graph", {"constant0": constant}, NOTHING_AROUND)
    assert "\n".join(graph.lines) == WRITTEN
    assert graph.shared == (
        "from torch._inductor.async_compile import AsyncCompile",
        "async_compile = AsyncCompile()",
    )
    assert dict(graph.constants) == {"forward_constant0": constant}
    assert graph.compiles
    assert WAIT_FOR_KERNELS == "async_compile.wait(globals())"


def test_inductor_s_text_runs_under_its_own_torch_alone() -> None:
    def doubled(x: Tensor) -> Tensor:
        return torch.ops.aten.sort.default(x)[0]

    text = aotlens.export(doubled, torch.ones(2), options=aotlens.CompileOptions("inductor"))
    assert loaded(text)["call"](torch.tensor([2.0, 1.0])).tolist() == [1.0, 2.0]
    release = ".".join(torch.__version__.split(".")[:2])
    with pytest.raises(ImportError, match=r"export it again with torch"):
        loaded(text.replace(f"'{release}.'", "'1.0.'"))


@pytest.mark.rotates
def test_settings_of_the_compiler_are_in_the_file() -> None:
    """And hold where others are set."""
    from torch._inductor import config
    from torch._inductor.codecache import CppPythonBindingsCodeCache

    asked = (("cpp.enable_floating_point_contract_flag", "fast"), ("cpp.simdlen", 0))
    options = aotlens.CompileOptions("inductor", inductor_config=asked)
    text = aotlens.export(lambda x: x.sin() * 2, torch.ones(8), options=options)
    seen = []

    class Compiler(CppPythonBindingsCodeCache):
        @classmethod
        def load_pybinding(cls, *_: Any) -> Any:
            seen.append((config.cpp.enable_floating_point_contract_flag, config.cpp.simdlen))

    with config.patch(compile_threads=1), pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch._inductor.async_compile.CppPythonBindingsCodeCache", Compiler)
        loaded(text)
    assert seen == [("fast", 0)]
    assert "pick_vec_isa" not in text


@pytest.mark.rotates
def test_a_setting_that_no_text_holds_is_refused_by_name() -> None:
    options = aotlens.CompileOptions("inductor", inductor_config=(("cpp_wrapper", True),))
    with pytest.raises(UnsupportedError, match="under Inductor's setting `cpp_wrapper`"):
        aotlens.export(lambda x: x.sin() * 2, torch.ones(8), options=options)


def test_symbols_have_the_same_names_whatever_ran_before() -> None:
    """A parameter under a fake mode leaves more behind in a process that sees its operators first."""
    options = aotlens.CompileOptions("eager", dynamic=True)
    texts = set()
    for warm in (True, False, True):
        if not warm:
            torch._subclasses.fake_tensor.FakeTensorMode.cache_clear()
        texts.add(aotlens.export(nn.Linear(3, 3), torch.ones(2, 3), options=options))
    assert len(texts) == 1
