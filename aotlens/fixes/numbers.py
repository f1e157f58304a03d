"""Fix recompilations for numbers: a value that changes from call to call becomes a tensor, which is no
constant.

| source | edit |
|---|---|
| `self.step = 0`, `self.step += 1` | a buffer that is not saved, and `self.step.add_(1)` |
| `model.scale = s` | `model.scale.fill_(s)` |
| `f(x, k)` | `f(x, torch.tensor(k))` |
| `SGD(…, lr=0.1)`, `group["lr"] = l` | `lr=torch.tensor(0.1)`, `group["lr"].fill_(l)` |
| any whole number of a module | `allow_unspec_int_on_nn_module` |
"""

import ast
import re
from collections.abc import Iterator

from aotlens.fixes.candidates import Candidate, ValueSite, candidate
from aotlens.fixes.compiled_calls import argument_of, calls_of
from aotlens.fixes.source import Source
from aotlens.model.source import Edit

__all__ = ["numbers"]

IN_PLACE: dict[type[ast.operator], str] = {
    ast.Add: "add_",
    ast.Sub: "sub_",
    ast.Mult: "mul_",
    ast.Div: "div_",
}
_ATTRIBUTE = re.compile(r"^[\w.\[\]]+\.(\w+)$")
_GROUP = re.compile(r"\['(\w+)'\]$")
UNSPECIALISED = "torch._dynamo.config.allow_unspec_int_on_nn_module = True"


def numbers(site: ValueSite) -> Iterator[Candidate | None]:
    """Yield candidates for a number that changes from call to call."""
    if site.value.kind != "number":
        return
    name = site.value.name
    if (group := _GROUP.search(name)) is not None and "param_groups" in name:
        for source in site.sources.values():
            yield _learning_rate(source, group[1])
    elif (attribute := _ATTRIBUTE.match(name)) is not None:
        for source in site.sources.values():
            yield from _attribute(source, attribute[1], site)
    elif name.isidentifier():
        yield _argument(site, name)


def _attribute(source: Source, name: str, site: ValueSite) -> Iterator[Candidate | None]:
    for owner in source.nodes(ast.ClassDef):
        first = _initial(source, owner, name)
        value = None if first is None else first.value
        if (
            first is None
            or value is None
            or not source.imports("torch")
            or not _holds_line(source, owner, site)
        ):
            continue
        is_module = any("Module" in source.code(base) for base in owner.bases)
        kind = "counter" if _is_counted(source, owner, name) else "attribute"
        title = f"Keep `{site.value.name}` in a tensor that changes in place"
        tensor_code = f"torch.tensor({source.code(value)})"
        begin = source.replace(value, tensor_code)
        if is_module:
            begin = source.replace(first, f'self.register_buffer("{name}", {tensor_code}, persistent=False)')
            title = f"Keep `{site.value.name}` in a buffer that changes in place"
        changes = [_changed(source, node) for node in _writes(source, name) if node is not first]
        yield candidate(kind, title, begin, *changes)
        if is_module and isinstance(value, ast.Constant) and type(value.value) is int:
            title = "Let whole numbers of modules be symbols"
            yield candidate(kind, title, source.after_imports(UNSPECIALISED))


def _holds_line(source: Source, owner: ast.ClassDef, site: ValueSite) -> bool:
    """Return True if the class contains the line that reads the value, or the line is unknown."""
    span = site.value.span
    if span is None or span.file != source.file:
        return True
    inside = owner.lineno <= span.line <= (owner.end_lineno or owner.lineno)
    return inside or not any(
        definition.lineno <= span.line <= (definition.end_lineno or definition.lineno)
        for definition in source.nodes(ast.ClassDef)
    )


def _initial(source: Source, owner: ast.ClassDef, name: str) -> ast.Assign | ast.AnnAssign | None:
    """Return `self.step = 0` in `__init__`."""
    for node in ast.walk(owner):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        function = source.function(node)
        if source.code(target) == f"self.{name}" and function is not None and function.name == "__init__":
            is_alone = isinstance(node, ast.AnnAssign) or len(node.targets) == 1
            return node if is_alone and node.value is not None and _is_number(node.value) else None
    return None


def _is_number(node: ast.expr) -> bool:
    """Return True if an expression may be a number: a literal, or anything known only at run time."""
    return not isinstance(node, ast.Constant) or type(node.value) in (int, float)


def _is_counted(source: Source, owner: ast.ClassDef, name: str) -> bool:
    return any(
        isinstance(node, ast.AugAssign) and source.code(node.target) == f"self.{name}"
        for node in ast.walk(owner)
    )


def _writes(source: Source, name: str) -> Iterator[ast.Assign | ast.AugAssign | ast.AnnAssign]:
    """Yield every statement of the file that sets an attribute of this name."""
    for node in source.nodes(ast.Assign, ast.AugAssign, ast.AnnAssign):
        assert isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(target, ast.Attribute) and target.attr == name:
            yield node


def _changed(source: Source, node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> Edit | None:
    """Return the statement as an in-place change."""
    if isinstance(node, ast.AnnAssign) or node.value is None:
        return None
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    name, value = source.code(target), source.code(node.value)
    if isinstance(node, ast.AugAssign):
        method = IN_PLACE.get(type(node.op))
        return None if method is None else source.replace(node, f"{name}.{method}({value})")
    match node.value:
        case ast.BinOp(left=left, op=operator, right=right) if source.code(left) == name:
            method = IN_PLACE.get(type(operator))
            if method is not None:
                return source.replace(node, f"{name}.{method}({source.code(right)})")
    return source.replace(node, f"{name}.fill_({value})")


def _argument(site: ValueSite, name: str) -> Candidate | None:
    source = site.source
    function = source.function_at(site.function.qualname, site.function.span.line)
    if function is None or not source.imports("torch"):
        return None
    passed = [argument_of(function, call, name) for call in calls_of(source, function)]
    edits = [
        source.replace(argument, f"torch.tensor({source.code(argument)})")
        for argument in passed
        if argument is not None
    ]
    title = f"Pass `{name}` as a 0-d tensor"
    return candidate("number", title, *edits) if edits else None


def _learning_rate(source: Source, key: str) -> Candidate | None:
    """Return `lr=torch.tensor(0.1)` for the optimizer, with every later value written into that tensor."""
    definitions, written = [], []
    for call in source.nodes(ast.Call):
        for keyword in call.keywords:
            is_optimizer = "optim" in source.code(call.func) or source.code(call.func)[:1].isupper()
            if keyword.arg == key and is_optimizer and "tensor(" not in source.code(keyword.value):
                definitions.append(
                    source.replace(keyword.value, f"torch.tensor({source.code(keyword.value)})")
                )
    for node in source.nodes(ast.Assign, ast.AugAssign):
        assert isinstance(node, ast.Assign | ast.AugAssign)
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        match target:
            case ast.Subscript(slice=ast.Constant(value=name)) if name == key:
                written.append(_changed(source, node))
    if not definitions or not source.imports("torch"):
        return None
    return candidate(
        "learning rate", f"Keep `{key}` in a tensor that changes in place", *definitions, *written
    )
