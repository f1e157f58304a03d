"""Exports: what a graph without a wrapper cannot hold."""

from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._functorch import config

import aotlens
from aotlens import CompileOptions
from tests.unsupported.example import EAGER, Example, collector

EXAMPLES: list[Example] = []
shows = collector(EXAMPLES)


class Model(nn.Module):
    """A layer with a loss; the examples override `forward`."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Any:
        return (self.layer(x).sum(),)


BATCH = torch.ones(2, 3)


@shows("export-functional-rng")
def with_functional_rng() -> None:
    with config.patch(functionalize_rng_ops=True):
        aotlens.aot_export_module(Model(), [BATCH], trace_joint=False)


@shows("export-duplicated-inputs")
def one_tensor_twice() -> None:
    class Adds(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor]:
            x.add_(1)
            return (x * y,)

    x = torch.ones(3)
    aotlens.aot_export_module(Adds(), [x, x], trace_joint=False)


@shows("export-aliased-inputs")
def inputs_on_one_storage() -> None:
    class Adds(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor]:
            x.add_(1)
            return (x * y,)

    base = torch.ones(4)
    aotlens.aot_export_module(Adds(), [base[:3], base[1:]], trace_joint=False)


@shows("export-metadata-mutation")
def argument_transposed_in_place() -> None:
    class Transposes(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor]:
            x.t_()
            return (x * 2,)

    aotlens.aot_export_module(Transposes(), [torch.ones(2, 3)], trace_joint=False)


@shows("export-input-with-grad")
def parameter_that_is_written_to() -> None:
    class Decays(Model):
        def forward(self, x: Tensor) -> Any:
            with torch.no_grad():
                self.layer.weight.mul_(0.9)
            return (self.layer(x).sum(),)

    aotlens.aot_export_module(Decays(), [BATCH], trace_joint=True, output_loss_index=0)


@shows("export-free-variable")
def weight_from_outside() -> None:
    weight = torch.ones(2, requires_grad=True)
    aotlens.aot_export_joint_simple(lambda x: [x * weight], [torch.ones(2)], trace_joint=False)


@shows("export-subclass")
def wrapper_as_an_argument() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    both = TwoTensor(torch.ones(2), torch.ones(2))
    aotlens.aot_export_joint_simple(lambda x: [x * 2], [both], trace_joint=False)


@shows("export-side-effect")
def tensor_that_is_stored() -> None:
    seen: list[Tensor] = []

    def remember(x: Tensor) -> list[Tensor]:
        seen.append(x * 2)
        return [x * 3]

    aotlens.aot_export_joint_simple(remember, [torch.ones(2)], trace_joint=False)


@shows("export-joint-inputs")
def tensor_instead_of_a_list() -> None:
    x: Any = torch.ones(2)
    aotlens.aot_export_joint_simple(lambda x: [x * 2], x, trace_joint=False)


@shows("export-joint-nested-inputs")
def list_in_the_arguments() -> None:
    aotlens.aot_export_joint_simple(lambda xs: [xs[0] * 2], [[torch.ones(2)]], trace_joint=False)


@shows("export-joint-outputs")
def result_instead_of_a_list() -> None:
    aotlens.aot_export_joint_simple(lambda x: x * 2, [torch.ones(2)], trace_joint=False)


@shows("export-joint-nested-outputs")
def list_in_the_results() -> None:
    aotlens.aot_export_joint_simple(lambda x: [[x * 2]], [torch.ones(2)], trace_joint=False)


@shows("export-joint-mutation")
def argument_that_is_written_to() -> None:
    aotlens.aot_export_joint_simple(lambda x: [x.add_(1) * 2], [torch.ones(2)], trace_joint=False)


@shows("export-joint-alias")
def view_as_a_result() -> None:
    aotlens.aot_export_joint_simple(lambda x: [x.view(1, 2)], [torch.ones(2)], trace_joint=False)


@shows("export-no-loss-index")
def joint_without_a_loss() -> None:
    aotlens.aot_export_module(Model(), [BATCH], trace_joint=True)


@shows("export-output-type")
def loss_in_a_dictionary() -> None:
    class Named(Model):
        def forward(self, x: Tensor) -> Any:
            return {"loss": self.layer(x).sum()}

    aotlens.aot_export_module(Named(), [BATCH], trace_joint=True, output_loss_index=0)


@shows("export-loss-without-grad")
def loss_that_is_detached() -> None:
    class Detached(Model):
        def forward(self, x: Tensor) -> Any:
            return (self.layer(x).sum().detach(),)

    aotlens.aot_export_module(Detached(), [BATCH], trace_joint=True, output_loss_index=0)


@shows("export-loss-shape")
def loss_for_each_row() -> None:
    class Rows(Model):
        def forward(self, x: Tensor) -> Any:
            return (self.layer(x),)

    aotlens.aot_export_module(Rows(), [BATCH], trace_joint=True, output_loss_index=0)


@shows("export-other-gradient")
def prediction_beside_the_loss() -> None:
    class Both(Model):
        def forward(self, x: Tensor) -> Any:
            prediction = self.layer(x)
            return prediction.sum(), prediction

    aotlens.aot_export_module(Both(), [BATCH], trace_joint=True, output_loss_index=0)


@shows("export-parameter-without-gradient")
def parameter_that_is_not_used() -> None:
    class Unused(Model):
        def __init__(self) -> None:
            super().__init__()
            self.other = nn.Parameter(torch.ones(2))

    aotlens.aot_export_module(Unused(), [BATCH], trace_joint=True, output_loss_index=0)


@shows("export-pre-dispatch-joint")
def joint_before_dispatch() -> None:
    aotlens.aot_export_module(Model(), [BATCH], trace_joint=True, pre_dispatch=True, output_loss_index=0)


@shows("export-serializable")
def callable_as_text() -> None:
    with ExitStack() as stack:
        joint = aotlens.aot_export_joint_with_descriptors(stack, nn.Linear(3, 1), (BATCH,))
        aotlens.aot_compile_joint_with_descriptors(joint, serializable=True)


@shows("export-of-side-effect")
def module_text_with_an_item() -> None:
    seen: dict[str, Tensor] = {}

    def remember(x: Tensor) -> Tensor:
        seen["last"] = x * 2
        return x * 3

    aotlens.export(remember, torch.ones(2), options=EAGER)


@shows("export-inductor-setting")
def module_text_with_cpp_wrapper() -> None:
    options = CompileOptions(inductor_config=(("cpp_wrapper", True),))
    aotlens.export(lambda x: x * 2, torch.ones(2), options=options)


@shows("module-rebinds-tensor")
def buffer_that_is_replaced() -> None:
    class Averages(nn.Module):
        mean: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x: Tensor) -> tuple[Tensor]:
            self.mean = (self.mean + x) / 2
            return (x - self.mean,)

    aotlens.aot_export_module(Averages(), [torch.ones(3)], trace_joint=False)


@shows("export-frozen-storage")
def a_write_to_what_dropout_returns() -> None:
    class Drops(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor]:
            dropped = nn.functional.dropout(x, 0.0)
            return (dropped.mul_(6),)

    aotlens.aot_export_module(Drops(), (torch.ones(2),), trace_joint=False, pre_dispatch=True)


@shows("export-of-process-value")
def result_in_a_class_of_this_process() -> None:
    class Pair(NamedTuple):
        first: Tensor
        second: Tensor

    aotlens.export(lambda x: Pair(x, x * 2), torch.ones(2))
