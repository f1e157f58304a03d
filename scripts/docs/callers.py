"""Write docs/architecture/callers.md: which module uses what of another package, from imports and calls.

python -m scripts.docs.callers
"""

import ast
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PAGE = Path("docs/architecture/callers.md")
PROJECT = Path("pyproject.toml")
PRODUCT = ("aotlens", "tui", "lsp_server")
TOOLS = ("scripts", "benchmarks")
"""What uses the product beside the product itself: a change must keep them working as well."""
MOST_CALLERS = 8
"""The limit of modules that are listed for one name; more than that are counted by package."""
MOST_FUNCTIONS = 3
"""The limit of functions that are listed for one module."""
INTRODUCTION = """# Who calls it

For each file, what other packages import from it, and which functions of which modules use it; `scripts/`
and `benchmarks/` count as packages, tests do not. `pyproject.toml` names entry points: the command, and the
backend that torch loads. Where many modules import a name, each package has the number of its modules.
`Class.method` is listed where no other class has a method or a field of that name, for the modules that
import from its file. A name that is not listed is used within its package only, or through an object that a
listed function returns. `python -m scripts.docs.callers` makes the page; what each file holds is on the page
of its package ([index](index.md)).
"""
BUILT_IN = frozenset(
    name for kind in (str, bytes, list, dict, set, tuple, Counter, Path) for name in dir(kind)
)
"""Names of methods that say nothing about the class of the object."""

Users = dict[str, tuple[str, ...]]
"""By module: its functions that use a name; none for a use outside of functions."""
Callers = dict[str, dict[str, dict[str, Users]]]
"""By package, file and name: the modules of other packages that import the name."""


@dataclass(frozen=True, slots=True)
class Module:
    """What one file defines and uses."""

    imports: tuple[tuple[Path, str, str], ...]
    """The file and the name of each import from the product, and the name that it has here."""
    methods: tuple[tuple[str, str], ...]
    """The class and the name of each public method and property."""
    fields: frozenset[str]
    """Names that a class or an object has for its data."""
    names: Mapping[str, tuple[str, ...]]
    """By variable, the functions that read it."""
    attributes: Mapping[str, tuple[str, ...]]
    """By name that is read from objects, the functions that read it."""


def page() -> str:
    """Return the text of the page."""
    parts = [INTRODUCTION]
    for package, files in sorted(callers().items()):
        parts += [f"## `{package}/`\n", "| file | name: used in |", "|---|---|"]
        parts += [f"| `{file}` | {_names(names)} |" for file, names in sorted(files.items())]
        parts.append("")
    return "\n".join(parts)


def callers() -> Callers:
    """Return what the product's packages import from each other, and what the tools import from them."""
    uses: Callers = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    paths = sorted(path for folder in PRODUCT + TOOLS for path in Path(folder).rglob("*.py"))
    modules = {path: _module(path) for path in paths}
    owners = _owners(modules)
    for path, module in {**modules, PROJECT: _entry_points()}.items():
        imported = ((source, name, module.names.get(own, ())) for source, name, own in module.imports)
        for source, name, functions in (*imported, *_calls(module, owners)):
            package = _package(source)
            if package is not None and package != _package(path):
                users, caller = uses[package][str(source.relative_to(package))][name], _shown(path)
                users[caller] = tuple(dict.fromkeys((*users.get(caller, ()), *functions)))
    return uses


def _module(path: Path) -> Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    stored = {node.attr for node in attributes if isinstance(node.ctx, ast.Store)}
    declared = {
        entry.target.id
        for owner in classes
        for entry in owner.body
        if isinstance(entry, ast.AnnAssign) and isinstance(entry.target, ast.Name)
    }
    return Module(
        tuple(_imports(tree)),
        tuple(
            (owner.name, entry.name)
            for owner in classes
            for entry in owner.body
            if isinstance(entry, ast.FunctionDef) and not entry.name.startswith("_")
        ),
        frozenset(stored | declared),
        *_reads(tree),
    )


def _reads(tree: ast.Module) -> tuple[Mapping[str, tuple[str, ...]], Mapping[str, tuple[str, ...]]]:
    """Return by variable, and by attribute, the functions and methods that read it."""
    names: dict[str, dict[str, None]] = defaultdict(dict)
    attributes: dict[str, dict[str, None]] = defaultdict(dict)
    for function, owner in _functions(tree):
        for node in ast.walk(owner):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                names[node.id][function] = None
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                attributes[node.attr][function] = None
    readers = lambda table: {name: tuple(filter(None, functions)) for name, functions in table.items()}
    return readers(names), readers(attributes)


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Yield each function and method with its name, and all other statements without one."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            for entry in (*node.body, *node.bases, *node.decorator_list):
                is_method = isinstance(entry, ast.FunctionDef | ast.AsyncFunctionDef)
                yield (f"{node.name}.{entry.name}" if is_method else node.name), entry
        else:
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield (node.name if is_function else ""), node


def _owners(modules: Mapping[Path, Module]) -> dict[str, tuple[Path, str]]:
    """Return the file and `Class.method` of each method whose name is that of nothing else."""
    counts = Counter(method for module in modules.values() for _, method in module.methods)
    ambiguous = BUILT_IN.union(*(module.fields for module in modules.values()))
    return {
        method: (path, f"{owner}.{method}")
        for path, module in modules.items()
        for owner, method in module.methods
        if counts[method] == 1 and method not in ambiguous
    }


def _calls(
    module: Module, owners: Mapping[str, tuple[Path, str]]
) -> Iterator[tuple[Path, str, tuple[str, ...]]]:
    """Yield the file and the name of each method that the module uses, of the files that it imports from.

    With the functions that use it.
    """
    sources = {source for source, _, _ in module.imports}
    for attribute in sorted(module.attributes.keys() & owners.keys()):
        source, name = owners[attribute]
        if source in sources:
            yield source, name, module.attributes[attribute]


def _imports(tree: ast.Module) -> Iterator[tuple[Path, str, str]]:
    """Yield the module and the name of each import from the product, and the name that it gets."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in PRODUCT:
            folder = Path(*node.module.split("."))
            for alias in node.names:
                module, own = folder / f"{alias.name}.py", alias.asname or alias.name
                if module.exists():
                    yield module, "the module", own
                elif folder.with_suffix(".py").exists():
                    yield folder.with_suffix(".py"), alias.name, own
                elif (folder / "__init__.py").exists():
                    yield folder / "__init__.py", alias.name, own


def _entry_points() -> Module:
    """Return the project's entry points as imports: the command, and the backend that torch loads."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    imports = []
    for group in (project["scripts"], *project["entry-points"].values()):
        for target in group.values():
            module, _, name = target.partition(":")
            path = Path(*module.split("."))
            imports.append((path / "__init__.py" if path.is_dir() else path.with_suffix(".py"), name, name))
    return Module(tuple(imports), (), frozenset(), {}, {})


def _package(path: Path) -> str | None:
    """Return the package that a page of the architecture covers; None for modules beside the packages."""
    if path.parts[0] != "aotlens":
        return path.parts[0]
    return "/".join(path.parts[:2]) if len(path.parts) > 2 else None


def _shown(path: Path) -> str:
    if path == PROJECT:
        return path.name
    return str(
        path.with_suffix("").relative_to("aotlens") if path.parts[0] == "aotlens" else path.with_suffix("")
    )


def _names(names: dict[str, Users]) -> str:
    return "; ".join(f"`{name}`: {_users(users)}" for name, users in sorted(names.items()))


def _users(users: Users) -> str:
    if len(users) <= MOST_CALLERS:
        return ", ".join(f"{module}{_listed(functions)}" for module, functions in users.items())
    packages = Counter(user.partition("/")[0] for user in users)
    return ", ".join(f"{package} ({count})" for package, count in packages.items())


def _listed(functions: tuple[str, ...]) -> str:
    """Return the functions of a module that use a name: ` (main, run)`."""
    more = len(functions) - MOST_FUNCTIONS
    shown = [*functions[:MOST_FUNCTIONS], *([f"{more} more"] if more > 0 else [])]
    return f" ({', '.join(shown)})" if shown else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
