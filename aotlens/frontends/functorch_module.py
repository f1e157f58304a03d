"""functorch's ways to compile a module: one graph for each mode of its layers, or parameters as arguments."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import signature as parameters_of
from typing import Any

import torch

from aotlens.frontends.dynamo import compile_for_dynamo
from aotlens.frontends.functorch import POSITIONAL, Decompositions, Entries, compile_options
from aotlens.options import Backend, CompileOptions, PartitionFunction
from aotlens.partition.graph_modules import default_partition
from aotlens.torch_api.dynamo.state import is_dynamo_compiling
from aotlens.torch_api.fake.tensors import FakeTensor

__all__ = ["aot_autograd", "aot_module", "aot_module_simplified", "compiled_module"]


class TrainingModes:
    """Whether each submodule is in train mode; ten times cheaper than walking over the submodules."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._walk()

    def _walk(self) -> None:
        self._parts = list(self._module.modules())
        hanging = (part._modules for part in self._parts if part._modules)
        self._children = [(names, tuple(names.values())) for names in hanging]

    def current(self) -> tuple[bool, ...]:
        for names, children in self._children:
            if tuple(names.values()) != children:
                self._walk()
                break
        return tuple([part.training for part in self._parts])


class AOTModule(torch.nn.Module):
    """A module compiled at its first call, and again when a submodule switches between train and eval."""

    def __init__(self, module: torch.nn.Module, options: CompileOptions) -> None:
        super().__init__()
        self.orig_module = module
        self._options = options
        self._modes = TrainingModes(module)
        self._by_modes: dict[tuple[bool, ...], Callable[..., Any]] = {}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        modes = self._modes.current()
        call = self._by_modes.get(modes)
        if call is None:
            call = self._by_modes[modes] = Entries(self.orig_module, self._options).function()
        return call(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        """Copies compile their own module: the code compiled here mutates this module's buffers."""
        return {**self.__dict__, "_by_modes": {}, "_modes": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._modes = TrainingModes(self.orig_module)


def aot_module(mod: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
    """Compile `mod`, with its parameters and buffers as inputs of the graphs; takes the arguments of
    `aot_function`."""
    arguments = {**dict(zip(POSITIONAL, args, strict=False)), **kwargs}
    return AOTModule(mod, compile_options(**arguments))


def aot_module_simplified(  # noqa: PLR0913 (functorch's signature)
    mod: torch.nn.Module,
    args: Sequence[Any],
    fw_compiler: Backend,
    bw_compiler: Backend | None = None,
    partition_fn: PartitionFunction = default_partition,
    decompositions: Decompositions | None = None,
    keep_inference_input_mutations: bool = False,
    inference_compiler: Backend | None = None,
    compiler_config_extra: Any = None,
    ignore_shape_env: bool = False,
    disable_functionalization: bool = False,
    pre_grad_passes: Callable[..., Any] | None = None,
    compile_region_name: str | None = None,
) -> Callable[..., Any]:
    """Compile `mod` at once for flat arguments, real or fake; the result takes them and returns a tuple."""
    options = compile_options(**locals())
    if pre_grad_passes is not None and isinstance(mod, torch.fx.GraphModule):
        mod = pre_grad_passes(mod, args)
    if isinstance(mod, torch.fx.GraphModule) and is_dynamo_compiling() and not _are_real(args):
        return _as_module(compile_for_dynamo(mod, args, options), mod)
    entries = Entries(mod, replace(options, flat_result=True))
    entries.compile(tuple(args), {}, None if _are_real(args) else "the fake example arguments")

    return _as_module(entries.function(), mod)


def _as_module(forward: Any, mod: torch.nn.Module) -> Any:
    """Add the module methods that optimisers use to the callable."""
    forward.zero_grad = mod.zero_grad
    forward.named_parameters = mod.named_parameters
    forward.named_buffers = mod.named_buffers
    return forward


def aot_autograd(**kwargs: Any) -> Callable[..., Any]:
    """Return a backend for `torch.compile` from compilers, with the arguments of `aot_module_simplified`.

    `decompositions` may be a function that returns the table.

    Raises:
        TypeError: a name that `aot_module_simplified` does not take, or no `fw_compiler`.
    """
    parameters_of(aot_module_simplified).bind(None, (), **kwargs)
    table = kwargs.get("decompositions")

    def compiler_fn(gm: Any, example_inputs: Any, **_: Any) -> Callable[..., Any]:
        arguments = {**kwargs, "decompositions": table() if callable(table) else table}
        return compile_for_dynamo(gm, example_inputs, compile_options(**arguments))

    return compiler_fn


def _are_real(args: Sequence[Any]) -> bool:
    return not any(isinstance(arg, (FakeTensor, torch.SymInt, torch.SymFloat)) for arg in args)


compiled_module = aot_module
