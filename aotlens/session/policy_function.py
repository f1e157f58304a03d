"""Load a policy's function from the user's file.

Invariant: the file runs in the process that runs the user's code, once per compile request, as its own
module, so it can import the files beside it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from aotlens.compiled import Compiled
from aotlens.errors import AotlensError, UserError
from aotlens.options import CompileOptions
from aotlens.policy import Policy
from aotlens.session.script.source import load_script, new_module, run_script

__all__ = ["check_overrides", "options_for_targets", "with_policy_function"]

SIGNATURE = (
    'a policy is a function over one value: `def keep(value)`, which answers "save", "recompute" or None'
)


def with_policy_function(options: CompileOptions) -> CompileOptions:
    """Return the options with the function that their policy names, or the same options without one.

    Raises:
        UserError: no such file, a file that fails, no function of that name.
    """
    policy = options.partition
    if not isinstance(policy, Policy) or policy.chooser is None or policy.function is not None:
        return options
    return replace(options, policy=replace(policy, function=_function(policy.chooser)))


def options_for_targets(options: CompileOptions) -> CompileOptions:
    """Return the options for a script's targets: an override may name a value in just one of them.

    Raises:
        UserError: as `with_policy_function`.
    """
    loaded = with_policy_function(options)
    if not isinstance(loaded.partition, Policy):
        return loaded
    return replace(loaded, policy=replace(loaded.partition, skips_unknown=True))


def check_overrides(
    compiled: Sequence[Compiled], options: CompileOptions, what_if: tuple[str, ...] = ()
) -> None:
    """Check overrides and what-ifs against all targets of a script.

    Raises:
        UnknownValueError: an override names a value in none of the targets.
        UserError: a what-if, and no target is trained.
    """
    policies = [options.partition, *map(Policy.parse, what_if)]
    overrides = [target for policy in policies if isinstance(policy, Policy) for target in policy.overrides]
    if not what_if and not overrides:
        return
    trained = [target for target in compiled if target.parts.split is not None]
    if what_if and compiled and not trained:
        raise UserError(
            "--what-if: no target is trained, so nothing is saved and there is nothing to weigh; an input"
            " that wants a gradient has requires_grad, or `grad` in an example"
        )
    if not trained or not overrides:
        return
    unknown_by_target = [target.unknown_overrides(overrides) for target in trained]
    for override in overrides:
        if all(override in unknown for unknown in unknown_by_target):
            raise unknown_by_target[0][override]


def _function(chooser: str) -> Callable[[Any], Any]:
    """Return the function that `FILE::NAME` names; raises UserError with the names that exist."""
    path, _, name = chooser.rpartition("::")
    module = _module(path, chooser)
    function: Any = module
    for step in name.split("."):
        function = getattr(function, step, None)
    if callable(function):
        return function
    if function is not None:
        raise UserError(
            f"the policy {chooser}: `{name}` is not a function but {type(function).__name__}; {SIGNATURE}"
        )
    known = [key for key, value in vars(module).items() if _is_own(value, module)]
    has = f"it defines {', '.join(known)}" if known else "it defines no function"
    raise UserError(f"the policy {chooser}: {path} has no function `{name}`; {has}")


def _is_own(value: object, module: ModuleType) -> bool:
    return callable(value) and getattr(value, "__module__", None) == module.__name__


def _module(path: str, chooser: str) -> ModuleType:
    try:
        script = load_script(path)
        module = new_module(script, script.name)
        run_script(script, module)
    except AotlensError as error:
        raise UserError(f"the policy {chooser}: {error}") from None
    except SyntaxError as error:
        where = f"{error.filename}:{error.lineno}"
        raise UserError(f"the policy {chooser}: {where}: syntax error: {error.msg}") from None
    except Exception as error:
        raise UserError(f"the policy {chooser}: {path} raised {type(error).__name__}: {error}") from error
    return module
