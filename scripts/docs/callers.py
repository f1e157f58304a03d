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
INTRODUCTION = """# Who calls it

For each file, what other packages import from it, and where; `scripts/` and `benchmarks/` count as packages,
tests do not. `pyproject.toml` names entry points: the command, and the backend that torch loads. Where many
modules import a name, each package has the number of its modules. `Class.method` is listed where no other
class has a method or a field of that name, for the modules that import from its file. A name that is not
listed is used within its package only, or through an object that a listed function returns.
`python -m scripts.docs.callers` makes the page; what each file holds is on the page of its package
([index](index.md)).
"""
BUILT_IN = frozenset(
    name for kind in (str, bytes, list, dict, set, tuple, Counter, Path) for name in dir(kind)
)
"""Names of methods that say nothing about the class of the object."""

Callers = dict[str, dict[str, dict[str, list[str]]]]
"""By package, file and name: the modules of other packages that import the name."""


@dataclass(frozen=True, slots=True)
class Module:
    """What one file defines and uses."""

    imports: tuple[tuple[Path, str], ...]
    """The file and the name of each import from the product."""
    methods: tuple[tuple[str, str], ...]
    """The class and the name of each public method and property."""
    fields: frozenset[str]
    """Names that a class or an object has for its data."""
    attributes: frozenset[str]
    """Names that are read from objects."""


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
    uses: Callers = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    paths = sorted(path for folder in PRODUCT + TOOLS for path in Path(folder).rglob("*.py"))
    modules = {path: _module(path) for path in paths}
    owners = _owners(modules)
    for path, module in {**modules, PROJECT: _entry_points()}.items():
        for source, name in (*module.imports, *_calls(module, owners)):
            package = _package(source)
            if package is not None and package != _package(path):
                file = str(source.relative_to(package))
                users = uses[package][file][name]
                users += [caller] if (caller := _shown(path)) not in users else []
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
        frozenset(node.attr for node in attributes if isinstance(node.ctx, ast.Load)),
    )


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


def _calls(module: Module, owners: Mapping[str, tuple[Path, str]]) -> Iterator[tuple[Path, str]]:
    """Yield the file and the name of each method that the module uses, of the files that it imports from."""
    sources = {source for source, _ in module.imports}
    for attribute in sorted(module.attributes & owners.keys()):
        source, name = owners[attribute]
        if source in sources:
            yield source, name


def _imports(tree: ast.Module) -> Iterator[tuple[Path, str]]:
    """Yield the module and the name of each import from the product."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in PRODUCT:
            folder = Path(*node.module.split("."))
            for alias in node.names:
                module = folder / f"{alias.name}.py"
                if module.exists():
                    yield module, "the module"
                elif folder.with_suffix(".py").exists():
                    yield folder.with_suffix(".py"), alias.name
                elif (folder / "__init__.py").exists():
                    yield folder / "__init__.py", alias.name


def _entry_points() -> Module:
    """Return the project's entry points as imports: the command, and the backend that torch loads."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    imports = []
    for group in (project["scripts"], *project["entry-points"].values()):
        for target in group.values():
            module, _, name = target.partition(":")
            path = Path(*module.split("."))
            imports.append((path / "__init__.py" if path.is_dir() else path.with_suffix(".py"), name))
    return Module(tuple(imports), (), frozenset(), frozenset())


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


def _names(names: dict[str, list[str]]) -> str:
    return "; ".join(f"`{name}`: {_users(users)}" for name, users in sorted(names.items()))


def _users(users: list[str]) -> str:
    if len(users) <= MOST_CALLERS:
        return ", ".join(users)
    packages = Counter(user.partition("/")[0] for user in users)
    return ", ".join(f"{package} ({count})" for package, count in packages.items())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
