"""Policies on the command line: their forms, a function from a file, and one clear error for each mistake."""

from pathlib import Path

import pytest

from aotlens.errors import UserError
from aotlens.options import CompileOptions
from aotlens.policy import MemoryBudget, Override, Policy
from aotlens.session.policy_function import with_policy_function
from tests.command import aotlens


@pytest.mark.parametrize(
    ("terms", "budget", "policy"),
    [
        ((), None, Policy()),
        ("default", None, Policy("default")),
        (("min-cut", "save:hidden"), None, Policy(overrides=(Override("save", "hidden"),))),
        ("recompute:model.py:41", None, Policy(overrides=(Override("recompute", "model.py:41"),))),
        ((), "0.5", Policy("budget", budget=MemoryBudget(fraction=0.5))),
        ("budget", "64MiB", Policy("budget", budget=MemoryBudget(size_bytes=64 << 20))),
        ("budget=50%, save:a", None, Policy("budget", (Override("save", "a"),), MemoryBudget(fraction=0.5))),
        ("budget=1B", None, Policy("budget", budget=MemoryBudget(size_bytes=1))),
        ("rules.py::keep", None, Policy(chooser="rules.py::keep")),
    ],
)
def test_forms(terms: str | tuple[str, ...], budget: str | None, policy: Policy) -> None:
    assert Policy.parse(terms, budget) == policy
    assert Policy.parse(str(policy)) == policy


@pytest.mark.parametrize(
    ("terms", "budget", "message"),
    [
        ("best", None, r"no partition policy 'best'; a policy is one or more of: min-cut, default, budget"),
        ("save:", None, r"no partition policy 'save:'"),
        ("", None, r"no partition policy ''"),
        ("default,min-cut", None, r"two partition policies, `default` and `min-cut`: choose one"),
        ("save:a,recompute:a", None, r"`save:a` and `recompute:a` ask for opposites: choose one"),
        ("budget", None, r"the policy `budget` needs a memory budget: --memory-budget 0.5"),
        ("default", "0.5", r"a memory budget goes with the policy `budget`, not with `default`"),
        ((), "lots", r"the memory budget 'lots' is neither bytes \(`1048576`, `64MiB`\) nor a fraction"),
        ((), "1.5", r"the memory budget '1.5' is neither bytes"),
        ((), "-1", r"the memory budget '-1' is neither bytes"),
    ],
)
def test_mistakes(terms: str | tuple[str, ...], budget: str | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Policy.parse(terms, budget)


@pytest.mark.parametrize(
    ("policy", "change", "after"),
    [
        ("min-cut", "recompute:hidden", "min-cut,recompute:hidden"),
        ("default,save:a", "recompute:b,save:c", "default,save:a,recompute:b,save:c"),
        ("save:a,save:b", "recompute:a", "min-cut,save:b,recompute:a"),
        ("save:a", "budget=0.5", "budget=50%,save:a"),
        ("budget=0.5", "default", "default"),
        ("budget=0.5", "recompute:b", "budget=50%,recompute:b"),
    ],
)
def test_what_if(policy: str, change: str, after: str) -> None:
    assert str(Policy.parse(policy).changed(change)) == after


def test_what_if_takes_no_function() -> None:
    with pytest.raises(UserError, match=r"--what-if takes no function, found `rules.py::keep`"):
        Policy().changed("rules.py::keep")


RULES = """\
from words import SAVE

def keep(value):
    return SAVE

limit = 3
"""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "words.py").write_text('SAVE = "save"\n')
    (tmp_path / "rules.py").write_text(RULES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(policy: str) -> Policy:
    loaded = with_policy_function(CompileOptions(policy=policy)).partition
    assert isinstance(loaded, Policy)
    return loaded


@pytest.mark.usefixtures("rules")
def test_a_function_is_loaded_with_what_lies_beside_its_file() -> None:
    policy = load("default,rules.py::keep")
    assert policy.function is not None
    assert (policy.function(None), str(policy)) == ("save", "default,rules.py::keep")


def test_nothing_is_loaded_where_no_file_is_named() -> None:
    options = CompileOptions(policy="default")
    assert with_policy_function(options) is options


@pytest.mark.parametrize(
    ("text", "policy", "message"),
    [
        ("", "other.py::keep", "the policy other.py::keep: no such file: other.py"),
        (
            RULES,
            "rules.py::keeps",
            "the policy rules.py::keeps: rules.py has no function `keeps`; it defines keep",
        ),
        (
            "",
            "rules.py::keep",
            "the policy rules.py::keep: rules.py has no function `keep`; it defines no function",
        ),
        (
            RULES,
            "rules.py::limit",
            "the policy rules.py::limit: `limit` is not a function but int; a policy is",
        ),
        (
            "def keep(:",
            "rules.py::keep",
            "the policy rules.py::keep: rules.py:1: syntax error: invalid syntax",
        ),
        (
            "1 / 0",
            "rules.py::keep",
            "the policy rules.py::keep: rules.py raised ZeroDivisionError: division by zero",
        ),
    ],
)
def test_a_function_that_cannot_be_loaded(rules: Path, text: str, policy: str, message: str) -> None:
    (rules / "rules.py").write_text(text)
    with pytest.raises(UserError) as caught:
        load(policy)
    assert str(caught.value).startswith(message)


FUNCTIONS = """\
def maybe(value):
    return "maybe"

def both(value):
    return ["save"]

def none():
    return None
"""

SCRIPT = """\
import torch

# aotlens: example f32[4, 4] grad, f32[4, 4] grad
def product(x, w):
    hidden = x @ w
    return (hidden.sin() * hidden).sum()

# aotlens: example f32[4, 4] grad
def wave(x):
    crest = x.sin()
    return (crest * crest.cos()).sum()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "rules.py").write_text(FUNCTIONS)
    return tmp_path


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--policy", "save:hiden"), "`save:hiden` names no value of the forward; did you mean `hidden`"),
        (
            ("--policy", "recompute:script.py:2"),
            "`recompute:script.py:2`: line 2 of script.py computes no value of the forward; the nearest",
        ),
        (
            ("--what-if", "recompute:x"),
            "`recompute:x` is not possible: `x` is never recomputed: an argument, which the caller keeps",
        ),
        (
            ("--what-if", "hidden"),
            "no partition policy 'hidden'; a policy is one or more of: min-cut, default",
        ),
        (
            ("--policy", "rules.py::maybe"),
            "the policy function `maybe` returned 'maybe' for `mm`; it must return 'save'",
        ),
        (
            ("--policy", "rules.py::both"),
            "the policy function `both` returned ['save'] for `mm`; it must return",
        ),
        (
            ("--policy", "rules.py::none"),
            "the policy function `none` cannot be called with one value: too many",
        ),
        (("--policy", "save:zzz"), "`save:zzz` names no value of the forward; its values are `x`, `w`, `mm`"),
    ],
)
def test_each_mistake_is_one_error(script: Path, words: tuple[str, ...], message: str) -> None:
    ended = aotlens("inspect", "script.py", *words, cwd=script)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"aotlens: error: {message}")
    assert len(ended.err.splitlines()) == 1


@pytest.mark.rotates
def test_an_override_need_name_a_value_in_one_of_the_targets_only(script: Path) -> None:
    ended = aotlens("inspect", "script.py", "--policy", "save:hidden,save:crest", cwd=script)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.count("an override in the policy [user]") == 2


def test_a_refusal_in_one_of_the_targets_is_what_is_told(script: Path) -> None:
    ended = aotlens("inspect", "script.py", "--policy", "recompute:w", cwd=script)
    assert ended.code == 2
    assert ended.err.startswith("aotlens: error: `recompute:w` is not possible: `w` is never recomputed")


def test_a_what_if_needs_a_target_that_is_trained(script: Path) -> None:
    (script / "script.py").write_text(SCRIPT.replace(" grad", ""))
    ended = aotlens("inspect", "script.py", "--what-if", "default", cwd=script)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("aotlens: error: --what-if: no target is trained")
