"""Turn a target's name into something that can be called with arguments.

Invariant: a target with an example is called with it, and the script's main part does not run.  Any other
target is watched while the script runs, and captured with the arguments of its real calls.
"""

import ast
import difflib
import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import MethodType, ModuleType
from typing import Any

import torch

from aotlens.errors import ExampleError, TargetError
from aotlens.session.script.example_decorator import examples_of
from aotlens.session.script.examples import Arguments, decorated_arguments, text_arguments
from aotlens.session.script.source import Rewrite, Script
from aotlens.torch_api.operators import pytree
from aotlens.worker.targets import StaticTarget, find_targets

__all__ = ["Call", "Watch", "example_calls", "find_definition", "resolve", "watch_definition"]

_MARK = "__aotlens_watch__"


@dataclass(frozen=True, slots=True)
class Call:
    """A target with the arguments to trace it with."""

    qualname: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dynamic: bool = False


def find_definition(script: Script, qualname: str) -> StaticTarget:
    """Return the definition of that name; raises TargetError that lists the known names."""
    definitions = [target for target in find_targets(script.source, script.path) if target.kind != "call"]
    for target in definitions:
        if target.qualname == qualname:
            return target
    assigned = _assigned(script, qualname)
    if assigned is not None:
        raise TargetError(f"{script.path}:{assigned.lineno}: {_not_a_definition(qualname, assigned.value)}")
    names = [target.qualname for target in definitions]
    near = difflib.get_close_matches(qualname, names, n=3) or names[:10]
    known = (
        f"it defines {', '.join(f'`{name}`' for name in near)}" if near else "it defines no function or class"
    )
    raise TargetError(f"{script.path} has no function or class `{qualname}`; {known}")


def _assigned(script: Script, qualname: str) -> ast.Assign | None:
    """Return the statement that assigns the name, if the script does not define it."""
    owner, _, name = qualname.rpartition(".")
    body = ast.parse(script.source, script.path).body
    for part in owner.split(".") if owner else ():
        classes = (node for node in body if isinstance(node, ast.ClassDef) and node.name == part)
        body = getattr(next(classes, None), "body", [])
    for node in body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == name for target in node.targets
        ):
            return node
    return None


def _not_a_definition(qualname: str, value: ast.expr) -> str:
    name = qualname.rpartition(".")[2]
    if isinstance(value, ast.Lambda):
        arguments, result = ast.unparse(value.args), ast.unparse(value.body)
        return (
            f"`{qualname}` is a lambda, which has no name to trace it by; write it as"
            f" `def {name}({arguments}): return {result}`"
        )
    text = ast.unparse(value)
    short = text if len(text) <= 40 else text[:39] + "…"
    return (
        f"`{qualname}` is the value of `{short}`, not a function or class that the script defines; wrap it"
        f" as `def {name}(…): …`, or name what it is created from"
    )


# Examples


def example_calls(module: ModuleType, target: StaticTarget) -> Iterator[Call]:
    """Yield one call per example of a target, lazily.

    Raises ExampleError, or what the user's code raises.
    """
    definition = resolve(module, target)
    for source in target.examples:
        yield _call(module, target, text_arguments(source))
    for example in examples_of(definition):
        yield _call(module, target, decorated_arguments(example))


def resolve(module: ModuleType, target: StaticTarget) -> Any:
    """Return the object of that name in a module that has run; raises TargetError."""
    value: Any = module
    for name in target.qualname.split("."):
        if name == "<locals>" or not hasattr(value, name):
            message = (
                f"`{target.qualname}` of {target.span.file}:{target.span.line} is not there after the"
                " script's definitions have run; an example works for what the module itself defines"
            )
            raise TargetError(message, span=target.span)
        value = getattr(value, name)
    return value


def _call(module: ModuleType, target: StaticTarget, arguments: Arguments) -> Call:
    function = _callable(module, target, arguments)
    called = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        inspect.signature(called).bind(*arguments.args, **arguments.kwargs)
    except TypeError as error:
        span = arguments.span
        message = f"{span.file}:{span.line}: the example does not fit `{target.qualname}`: {error}"
        raise ExampleError(message, span=span) from error
    except ValueError:  # a callable without a signature is called unchanged
        pass
    return Call(target.qualname, function, arguments.args, arguments.kwargs, arguments.dynamic)


def _callable(module: ModuleType, target: StaticTarget, arguments: Arguments) -> Callable[..., Any]:
    """Return the function, the bound method, or an instance of the module class."""
    definition = resolve(module, target)
    owner_name, _, name = target.qualname.rpartition(".")
    if isinstance(definition, type):
        return _instance(module, definition, arguments)
    if not owner_name or target.kind == "function":
        return definition
    owner = functools.reduce(getattr, owner_name.split("."), module)
    static = inspect.getattr_static(owner, name)
    if isinstance(static, staticmethod | classmethod):
        return definition
    instance = _instance(module, owner, arguments)
    if isinstance(static, property | functools.cached_property):
        getter: Any = static.fget if isinstance(static, property) else static.func
        return _with_parameters(MethodType(getter, instance))
    return _with_parameters(getattr(instance, name))


def _instance(module: ModuleType, owner: Any, arguments: Arguments) -> Any:
    if arguments.construction is not None:
        return eval(arguments.construction, module.__dict__)  # noqa: S307 (the user's own example, in their script)
    try:
        inspect.signature(owner).bind()
    except TypeError as error:
        name, span = owner.__qualname__, arguments.span
        message = (
            f"{span.file}:{span.line}: `{name}` cannot be made without arguments ({error}); write them"
            f" before the example: `# aotlens: example {name}(...): f32[8, 16]`"
        )
        raise ExampleError(message, span=span) from error
    return owner()


def _with_parameters(method: Any) -> Any:
    """Return a module's method as a module, so that the parameters it uses become named inputs.

    For `forward` this is the module itself; for another method, a module that holds the user's as `self`.
    """
    owner = getattr(method, "__self__", None)
    if not isinstance(method, MethodType) or not isinstance(owner, torch.nn.Module):
        return method
    function = method.__func__
    if function.__name__ == "forward":
        return owner

    @functools.wraps(function)
    def forward(module: Any, *args: Any, **kwargs: Any) -> Any:
        return function(module.self, *args, **kwargs)

    names = {"forward": forward, "__qualname__": function.__qualname__, "__module__": function.__module__}
    made: torch.nn.Module = type(function.__name__, (torch.nn.Module,), names)()
    made.add_module("self", owner)
    made.training = owner.training  # not `train()`, which would change all of the user's submodules
    return made


# Real calls


def watch_definition(target: StaticTarget) -> Rewrite:
    """Return a rewrite that puts the watch on the definition, as the innermost decorator."""

    marked = (target.qualname.split(".")[-1], target.span.line)

    def rewrite(tree: ast.Module) -> ast.Module:
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            if (node.name, node.lineno) == marked:
                mark = ast.copy_location(ast.Name(_MARK, ast.Load()), node)
                node.decorator_list.append(mark)
        return tree

    return rewrite


class Watch:
    """Captures the calls of one definition, once per input signature."""

    def __init__(
        self, target: StaticTarget, capture: Callable[[Call], None], called: Callable[[int], None]
    ) -> None:
        """`capture` is called once per input signature, `called` with the signature of every call."""
        self._target = target
        self._capture = capture
        self._on_call = called
        self._captured_signatures: set[int] = set()
        self._is_capturing = False
        self._definition: Any = None
        self._class_call: Any = None

    @contextmanager
    def installed_in(self, module: ModuleType) -> Iterator[None]:
        """Make this watch available to the mark in the rewritten script."""
        setattr(module, _MARK, self._mark)
        try:
            yield
        finally:
            module.__dict__.pop(_MARK, None)

    def choose(self, function: object) -> object | None:
        """Return what `torch.compile` compiles in place of the watched definition; None for others."""
        owner = getattr(function, "__self__", None)  # `module.compile()` passes the module's bound method
        for candidate in (function, owner):
            if isinstance(self._definition, type) and isinstance(candidate, self._definition):
                self._unmark_class()
                return function
            if isinstance(candidate, torch.nn.Module) and self._unmark_forward(type(candidate)):
                return function
        if getattr(function, "__aotlens_original__", function) is self._definition:
            self._captured_signatures.add(0)
            return self._definition
        return None

    def _mark(self, definition: Any) -> Any:
        self._definition = definition
        return (
            self._mark_class(definition) if isinstance(definition, type) else self._mark_function(definition)
        )

    def _mark_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self._capture_call(function, args, kwargs)
            return function(*args, **kwargs)

        watched.__aotlens_original__ = function  # type: ignore[attr-defined]
        return watched

    def _mark_class(self, definition: type) -> type:
        original = definition.__call__
        self._class_call = definition.__dict__.get("__call__")

        def watched(instance: Any, *args: Any, **kwargs: Any) -> Any:
            if type(instance) is definition:
                self._capture_call(instance, args, kwargs)
            return original(instance, *args, **kwargs)

        definition.__call__ = watched  # type: ignore[method-assign]
        return definition

    def _unmark_class(self) -> None:
        """Remove the watch from the class, because Dynamo compiles a module's `__call__`."""
        self._captured_signatures.add(0)
        if "__call__" in self._definition.__dict__:
            if self._class_call is None:
                del self._definition.__call__
            else:
                self._definition.__call__ = self._class_call

    def _unmark_forward(self, module: type) -> bool:
        """Remove the watch from a module's `forward`, for Dynamo; return False where another is watched."""
        for base in module.__mro__ if self._definition is not None else ():  # None before it is defined
            forward = base.__dict__.get("forward")
            if getattr(forward, "__aotlens_original__", None) is self._definition:
                self._captured_signatures.add(0)
                base.forward = self._definition  # type: ignore[attr-defined]
                return True
        return False

    def _capture_call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._is_capturing:  # the capture itself calls the function
            return
        key = _signature(args, kwargs)
        if key not in self._captured_signatures:
            self._captured_signatures.add(key)
            self._is_capturing = True
            try:
                self._capture(self._bound(function, args, kwargs))
            finally:
                self._is_capturing = False
        self._on_call(key)

    def _bound(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Return the call with a method bound to its object, as in the script."""
        if self._target.kind == "method" and args and _defines(args[0], self._target):
            method = _with_parameters(MethodType(function, args[0]))
            return Call(self._target.qualname, method, args[1:], kwargs)
        return Call(self._target.qualname, function, args, kwargs)


def _defines(instance: Any, target: StaticTarget) -> bool:
    """Return True if a method's first argument is its object, not an argument of a static method."""
    owner = target.qualname.rpartition(".")[0]
    classes = instance.__mro__ if isinstance(instance, type) else type(instance).__mro__
    return any(base.__qualname__ == owner for base in classes)


def _signature(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Return a hash that is equal for calls with the same structure, like tensors and equal other values."""
    leaves, structure = pytree.tree_flatten((args, kwargs))
    return hash((str(structure), torch.is_grad_enabled(), *(_leaf(leaf) for leaf in leaves)))


def _leaf(leaf: Any) -> object:
    if isinstance(leaf, torch.Tensor):
        strides = leaf.stride() if leaf.layout is torch.strided else ()
        return (tuple(leaf.shape), strides, leaf.dtype, leaf.device, leaf.requires_grad)
    if isinstance(leaf, torch.nn.Module):
        return (id(type(leaf)), leaf.training)
    return leaf if isinstance(leaf, int | float | str | bool | None) else id(type(leaf))
