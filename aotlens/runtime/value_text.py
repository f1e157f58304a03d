"""Values and captured tensors as expressions that create them again, for a standalone module.

Invariant: the created value equals the original bit for bit, or the export is rejected.
"""

import base64
import dataclasses
import sys
import zlib
from enum import Enum
from typing import Any

import torch
from torch import fx

from aotlens.capture.records import CapturedInput
from aotlens.ir.tensor_text import constant_text
from aotlens.runtime.module_text import TextBuilder
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.torch_api.operators import pytree

TENSOR_HELPER = """
def tensor_from(text, dtype, size, stride):
    data = bytearray(zlib.decompress(base64.b85decode(text)))
    flat = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
    return flat.view(dtype).as_strided(size, stride)
"""
"""Module text: a tensor from its memory's bytes."""

PLAIN = (torch.dtype, torch.layout, torch.memory_format)
NUMBERS_AND_TEXTS = (bool, int, float, complex, str, bytes)


class NoTextError(Exception):
    """No expression makes the value in another process."""


class ValueWriter:
    """Writes expressions, and before each the imports and helpers that it needs."""

    def __init__(self) -> None:
        self.modules: dict[str, str] = {}
        """Imported modules other than torch's, each with the name that is imported."""
        self._written: set[str] = set()

    def text(self, builder: TextBuilder, value: Any) -> str | None:
        """Return the expression for a value; None if there is none."""
        try:
            return self._text(builder, value)
        except NoTextError:
            return None

    def _text(self, builder: TextBuilder, value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return self._tensor(builder, value)
        if isinstance(value, torch.Generator):
            return self._generator(builder, value)
        if isinstance(value, fx.GraphModule):
            return self._hook(builder, value)
        if isinstance(value, type):
            return self._named(builder, value)
        if isinstance(value, (set, frozenset)):
            members = sorted(self._text(builder, item) for item in value)
            return f"{type(value).__name__}([{', '.join(members)}])"
        if type(value) is dict:
            keys = [self._text(builder, key) for key in value]
            items = [self._text(builder, item) for item in value.values()]
            return f"{{{', '.join(map(': '.join, zip(keys, items, strict=True)))}}}"
        if type(value) in (tuple, list):
            listed = ", ".join([self._text(builder, item) for item in value])
            return f"[{listed}]" if type(value) is list else f"({listed}{',' if len(value) == 1 else ''})"
        if value is None or isinstance(value, PLAIN) or type(value) in NUMBERS_AND_TEXTS:
            return _plain(value)
        return self._object(builder, value)

    def _tensor(self, builder: TextBuilder, value: torch.Tensor) -> str:
        """Return a plain tensor or a parameter with its values, strides and `requires_grad`."""
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout != torch.strided:
            raise NoTextError
        if value.is_quantized or value.device.type == "meta":
            raise NoTextError
        text = self._values(builder, value.detach().resolve_conj().resolve_neg())
        if value.device.type != "cpu":
            text = f"{text}.to({str(value.device)!r})"
        if isinstance(value, torch.nn.Parameter):
            return f"torch.nn.Parameter({text}, requires_grad={value.requires_grad})"
        return f"{text}.requires_grad_()" if value.requires_grad else text

    def _values(self, builder: TextBuilder, value: torch.Tensor) -> str:
        on_cpu = value.cpu()
        short = constant_text(on_cpu) if on_cpu.is_contiguous() and on_cpu.numel() <= SHORT else None
        if short is not None:
            return short
        self._once(builder, "import base64", "import zlib", TENSOR_HELPER)
        size, stride = tuple(value.shape), tuple(value.stride())
        flat = on_cpu.contiguous() if value.numel() == 0 else _flat_storage(on_cpu)
        data = flat.contiguous().view(torch.uint8).numpy().tobytes()
        text = base64.b85encode(zlib.compress(data, 9)).decode()
        return f"tensor_from({_wrapped(text)}, {value.dtype}, {size}, {stride})"

    def _generator(self, builder: TextBuilder, value: torch.Generator) -> str:
        if value.device.type != "cpu":
            raise NoTextError
        self._once(builder, GENERATOR_HELPER)
        return f"generator_at({self._tensor(builder, value.get_state())})"

    def _hook(self, builder: TextBuilder, value: fx.GraphModule) -> str:
        """Return a hook on saved tensors, which the graphs contain: the caller's must have the same code."""
        tensors = (*value.named_parameters(), *value.named_buffers())
        parts = [f"{name!r}: {self._tensor(builder, tensor.detach())}" for name, tensor in tensors]
        self._once(builder, HOOK_HELPER)
        return f"SameHook({value.code!r}, {{{', '.join(parts)}}})"

    def _object(self, builder: TextBuilder, value: Any) -> str:
        """Return an object of an importable class, made from its fields."""
        if isinstance(value, (torch.Size, torch.device)):
            return f"torch.Size({tuple(value)})" if isinstance(value, torch.Size) else f"torch.{value!r}"
        if isinstance(value, pytree.TreeSpec):
            return self._spec(builder, value)
        if type(value).__name__ == "DeviceMesh" and type(value).__module__.startswith("torch."):
            return self._mesh(builder, value)
        kind = self._named(builder, type(value))
        if isinstance(value, Enum):
            return f"{kind}.{value.name}"
        fields = _constructor_fields(value)
        if fields is None:
            raise NoTextError
        parts = [f"{name}={self._text(builder, item)}" for name, item in fields.items()]
        return f"{kind}({', '.join(parts)})"

    def _spec(self, builder: TextBuilder, spec: Any) -> str:
        """Return how containers nest, including the user's own classes."""
        tree = "torch.utils._pytree"
        if spec.is_leaf():
            return f"{tree}.treespec_leaf()"
        kind, context = self._named(builder, spec.type), self._text(builder, spec.context)
        children = [self._spec(builder, child) for child in spec.children()]
        return f"{tree}.TreeSpec({kind}, {context}, [{', '.join(children)}])"

    def _mesh(self, builder: TextBuilder, value: Any) -> str:
        self._once(builder, "import torch.distributed.device_mesh")
        names = value.mesh_dim_names
        arguments = f"{value.device_type!r}, {value.mesh.tolist()}, mesh_dim_names={names!r}"
        return f"torch.distributed.device_mesh.DeviceMesh({arguments})"

    def _named(self, builder: TextBuilder, kind: type) -> str:
        """Return a class by its name, imported if that is possible in another process."""
        module, name = kind.__module__, kind.__qualname__
        if module == "builtins":
            return name
        loaded = sys.modules.get(module)
        if loaded is None or getattr(loaded, "__spec__", None) is None or "." in name:
            raise NoTextError
        if getattr(loaded, name, None) is not kind:
            raise NoTextError
        if module.partition(".")[0] != "torch":
            self.modules.setdefault(module, name)
        self._once(builder, f"from {module} import {name}")
        return name

    def _once(self, builder: TextBuilder, *texts: str) -> None:
        for text in texts:
            if text not in self._written:
                self._written.add(text)
                builder.add(*text.splitlines(), *([""] if text.startswith("\n") else []))


SHORT = 64
"""The most elements that are written as numbers; larger tensors are written as bytes."""

GENERATOR_HELPER = """
def generator_at(state):
    generator = torch.Generator()
    generator.set_state(state)
    return generator
"""


HOOK_HELPER = """
class SameHook:
    def __init__(self, code, tensors):
        self.code, self.tensors = code, tensors

    def __eq__(self, other):
        if getattr(other, "code", None) != self.code:
            return False
        found = {**dict(other.named_parameters()), **dict(other.named_buffers())}
        same = (torch.equal(found[name], tensor) for name, tensor in self.tensors.items() if name in found)
        return found.keys() == self.tensors.keys() and all(same)

    __hash__ = None
"""


def _plain(value: Any) -> str:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f"float('{value}')"
    return repr(value)


def _flat_storage(value: torch.Tensor) -> torch.Tensor:
    """Return everything between the tensor's first and last element."""
    last = sum((size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True))
    return value.as_strided((last + 1,), (1,))


def _wrapped(text: str) -> str:
    """Return a long text as several adjacent string literals."""
    width = 100
    if len(text) <= width:
        return repr(text)
    parts = (repr(text[start : start + width]) for start in range(0, len(text), width))
    return "(\n    " + "\n    ".join(parts) + "\n)"


def _constructor_fields(value: Any) -> dict[str, Any] | None:
    """Return the arguments for the constructor of the value's class; None if unknown."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    if dataclasses.is_dataclass(value):
        return {item.name: getattr(value, item.name) for item in dataclasses.fields(value) if item.init}
    return _fields_from_repr(value)


def _fields_from_repr(value: Any) -> dict[str, Any] | None:
    """Return the fields that `repr` shows: `Shard(dim=0)`, `Partial(sum)`."""
    name, _, inside = repr(value).removesuffix(")").partition("(")
    names = [part.partition("=")[0].strip() for part in inside.split(",") if part]
    if name != type(value).__name__:
        return None
    if len(names) == 1 and "=" not in inside:  # one field, of which only the value is shown
        names = [key for key in dir(type(value)) if getattr(value, key, None) == names[0]]
    if not all(hasattr(value, key) for key in names):
        return None
    fields = {key: getattr(value, key) for key in names}
    try:
        same = type(value)(**fields) == value
    except TypeError:
        return None
    return fields if same else None


class Bindings:
    """The names of one module text that are bound when it is loaded."""

    def __init__(self, standalone: bool = False) -> None:
        self.bound: dict[str, Any] = {}
        """Values by name, for the loader of the text."""
        self.value_writer = ValueWriter() if standalone else None
        """None if the values themselves are wanted, not equal ones."""

    def bind(self, builder: TextBuilder, name: str, value: Any, note: str) -> None:
        """Write the line that makes the value, or `note` if it is bound."""
        text = self.value_writer.text(builder, value) if self.value_writer is not None else None
        if text is not None:
            builder.add(f"{name} = {text}" if text != name else "")
            return
        self.bound[name] = value
        builder.add(f"# {name}: {note}, bound when this module is loaded")

    @property
    def stands_alone(self) -> bool:
        return self.value_writer is not None


CapturedTensors = list[tuple[str, CapturedInput]]


def write_captured_tensors(
    builder: TextBuilder, bindings: Bindings, captured_tensors: CapturedTensors
) -> None:
    """Write each tensor with its value at export, below a comment with the user's name for it."""
    writer = _CapturedTensorText(builder, bindings, captured_tensors)
    for name, captured_input in captured_tensors:
        value: Any = captured_input.free_tensor
        note = (
            f"# {name}: `{captured_input.slot.name}` as it was at export; assign another tensor to it before "
            "a call"
        )
        if value.grad_fn is not None and value._base is None:
            note = f"# {name}: `{captured_input.slot.name}` as it was at export, without its autograd graph"
        builder.add(note)
        writer.write(name, value)


class _CapturedTensorText:
    def __init__(self, builder: TextBuilder, bindings: Bindings, captured_tensors: CapturedTensors) -> None:
        self._builder = builder
        self._bindings = bindings
        self._written: dict[int, str] = {}
        """Names of the tensors written so far, by identity."""
        self._name_of_storage: dict[int, str] = {}
        """Names of storages that several tensors share."""
        storages = [
            captured_input.free_tensor.untyped_storage()._cdata
            for _, captured_input in captured_tensors
            if _is_plain(captured_input.free_tensor)
        ]
        self._shared = {storage for storage in storages if storages.count(storage) > 1}

    def write(self, name: str, value: Any) -> None:
        self._written[id(value)] = name
        base = value._base if not value.is_inference() else None
        if base is not None and base.dtype == value.dtype and _is_plain(value):
            source, size, stride = self._base(name, base), tuple(value.shape), tuple(value.stride())
            source += ".detach()" if base.requires_grad and not value.requires_grad else ""
            text = f"{source}.as_strided({size}, {stride}, {value.storage_offset()})"
            self._builder.add(f"{name} = {_with_signs(text, value, base)}")
        elif _is_plain(value) and value.untyped_storage()._cdata in self._shared:
            storage = f"{self._whole_storage(name, value)}.untyped_storage()"
            geometry = f"{value.storage_offset()}, {tuple(value.shape)}, {tuple(value.stride())}"
            text = _with_signs(f"torch.empty(0, dtype={value.dtype}).set_({storage}, {geometry})", value)
            if isinstance(value, torch.nn.Parameter):
                text = f"torch.nn.Parameter({text}, requires_grad={value.requires_grad})"
            elif value.requires_grad:
                text += ".requires_grad_()"
            self._builder.add(f"{name} = {text}")
        else:
            self._bindings.bind(self._builder, name, value, "a captured tensor")

    def _base(self, name: str, base: Any) -> str:
        base_name = self._written.get(id(base))
        if base_name is None:
            base_name = f"{name}_base"
            self.write(base_name, base)
        return base_name

    def _whole_storage(self, name: str, value: torch.Tensor) -> str:
        """Return the name of the whole storage, writing it on first use."""
        storage = value.untyped_storage()
        storage_name = self._name_of_storage.get(storage._cdata)
        if storage_name is None:
            storage_name = self._name_of_storage[storage._cdata] = f"{name}_memory"
            whole = torch.empty(0, dtype=torch.uint8, device=value.device).set_(storage)
            self._bindings.bind(self._builder, storage_name, whole, "memory of the user's tensors")
        return storage_name


def _with_signs(text: str, value: torch.Tensor, base: torch.Tensor | None = None) -> str:
    """Return the text of a tensor with the conjugate and negative bits that differ from its source's."""
    if value.is_conj() != (base is not None and base.is_conj()):
        text = f"{text}.conj()"
    if value.is_neg() != (base is not None and base.is_neg()):
        text = f"torch._neg_view({text})"
    return text


def _is_plain(value: Any) -> bool:
    kinds = (torch.Tensor, torch.nn.Parameter)
    return type(value) in kinds and type(value) is not FakeTensor and value.layout == torch.strided
