"""What aotlens changes in torch: the table, and that torch is as it was outside of a scope."""

import copy
import threading
from importlib import import_module
from typing import Any

import pytest
import torch

import aotlens
from aotlens.torch_api.fake.tensors import FakeTensorMode
from aotlens.torch_api.patches.compilers import BACKEND, LISTEN, NO_GPU
from aotlens.torch_api.patches.scopes import Patch, Scope, constant, install, patched
from aotlens.torch_api.patches.table import COMPILE, REGISTRATIONS, SCOPES, TRACE
from aotlens.torch_api.patches.targets import Attribute, Entry
from scripts.docs.patch_table import section
from tests.command import forked, python
from tests.import_graph import ROOT
from tests.torch_state import LOADED, LOADED_ARE

ROWS = [(scope, patch) for scope in SCOPES for patch in scope.rows]


class Engine:
    """What the tests below change."""

    horsepower = 100


class Diesel(Engine):
    pass


HERE = f"{__name__}:"


def scope(name: str, *rows: Patch, **options: Any) -> Scope:
    return Scope(name, "a test runs", rows, **options)


def row(owner: str, value: Any, **options: Any) -> Patch:
    return Patch(Attribute(f"{HERE}{owner}", "horsepower"), constant(value), "it is a test", **options)


@pytest.mark.rotates
def test_importing_aotlens_changes_nothing_in_torch() -> None:
    """10 s: a new process imports every module."""
    loaded = forked("-m", "tests.torch_state", LOADED, cwd=ROOT)
    assert loaded.code == 0, loaded.err
    done = python("-m", "tests.torch_state", LOADED_ARE, *loaded.out.split(), cwd=ROOT)
    assert (done.code, done.out.strip()) == (0, "")


@pytest.mark.parametrize(("of", "patch"), ROWS, ids=[f"{of.name}: {patch.target}" for of, patch in ROWS])
def test_what_a_row_names_is_there(of: Scope, patch: Patch) -> None:
    if patch.target.module.startswith("triton"):
        pytest.importorskip("triton")
    if patch.needs_loaded:
        import_module(patch.target.module)
    holder = patch.target.holder(load=True)
    assert holder is not None
    is_there = type(patch.target.value(holder)) is not object
    assert is_there or patch.is_optional
    assert patch.reason
    assert not patch.reason.endswith(".")


def test_names_of_scopes_are_unique() -> None:
    assert len({of.name for of in SCOPES}) == len(SCOPES)


@pytest.mark.parametrize("of", [COMPILE, TRACE, LISTEN, NO_GPU], ids=lambda of: of.name)
def test_a_scope_puts_everything_back(of: Scope) -> None:
    holders = [(patch.target, patch.target.holder(load=not patch.needs_loaded)) for patch in of.rows]
    known = [(target, holder) for target, holder in holders if holder is not None]
    before = [target.own(holder) for target, holder in known]
    with patched(of):
        within = [target.own(holder) for target, holder in known]
    assert any(now is not old for now, old in zip(within, before, strict=True))
    assert all(target.own(holder) is old for (target, holder), old in zip(known, before, strict=True))


def test_an_inherited_attribute_is_inherited_again() -> None:
    with patched(scope("inherited", row("Diesel", 90))):
        assert (Engine.horsepower, Diesel.horsepower) == (100, 90)
    assert "horsepower" not in vars(Diesel)


def test_scopes_are_left_in_any_order() -> None:
    add = lambda more: Patch(
        Attribute(f"{HERE}Engine", "horsepower"), lambda original, current: original + more, "it is a test"
    )
    first, second = patched(scope("first", add(1))), patched(scope("second", add(20)))
    first.__enter__()
    second.__enter__()
    assert Engine.horsepower == 121
    first.__exit__(None, None, None)
    assert Engine.horsepower == 120
    second.__exit__(None, None, None)
    assert Engine.horsepower == 100


def test_a_scope_within_itself_counts_once() -> None:
    one = Patch(
        Attribute(f"{HERE}Engine", "horsepower"), lambda original, current: original + 1, "it is a test"
    )
    twice = scope("twice", one)
    with patched(twice):
        with patched(twice):
            assert Engine.horsepower == 101
        assert Engine.horsepower == 101
    assert Engine.horsepower == 100


def test_a_handler_counts_for_the_thread_that_entered() -> None:
    def reporting(original: Any, current: Any) -> Any:
        return property(lambda engine: current() or "torch's own")

    def read() -> list[str]:
        seen: list[str] = []
        thread = threading.Thread(target=lambda: seen.append(Engine().horsepower))  # type: ignore[arg-type]
        thread.start()
        thread.join()
        return [str(Engine().horsepower), *seen]

    report = Patch(Attribute(f"{HERE}Engine", "horsepower"), reporting, "it is a test")
    with patched(scope("per thread", report), "the handler"):
        assert read() == ["the handler", "torch's own"]
    with patched(scope("everywhere", report, every_thread=True), "the handler"):
        assert read() == ["the handler", "the handler"]


def test_a_failure_while_entering_puts_back_what_was_entered() -> None:
    def fail(original: Any, current: Any) -> Any:
        raise ValueError("no engine")

    broken = Patch(Attribute(f"{HERE}Diesel", "horsepower"), fail, "it is a test")
    with pytest.raises(ValueError, match="no engine"), patched(scope("broken", row("Engine", 1), broken)):
        pass
    assert (Engine.horsepower, "horsepower" in vars(Diesel)) == (100, False)


TABLE = {"known": 1}


def test_an_entry_that_torch_lacks_is_gone_again() -> None:
    new = Patch(Entry(f"{HERE}TABLE", "torch:Tensor", is_new=True), constant(2), "it is a test")
    with patched(scope("entry", new)):
        assert {"known": 1, torch.Tensor: 2} == TABLE
    assert TABLE == {"known": 1}


@pytest.mark.rotates
def test_a_look_up_of_the_backend_prepares_dynamo() -> None:
    code = """
import torch
from torch._dynamo.convert_frame import ConvertFrameAssert
before = ConvertFrameAssert.__call__
import aotlens.frontends.dynamo
print(ConvertFrameAssert.__call__ is before)
torch.compile(lambda x: x + 1, backend="aotlens")
print(ConvertFrameAssert.__call__ is before)
"""
    done = python("-c", code)
    assert done.out.split() == ["True", "False"], done.err


def test_what_stays_says_why() -> None:
    assert [of for of in SCOPES if of.stays] == [BACKEND]
    install(BACKEND)
    target = BACKEND.rows[0].target
    first = target.own(target.holder(load=True))
    install(BACKEND)
    assert target.own(target.holder(load=True)) is first


def test_the_page_has_every_row() -> None:
    page = (ROOT / "docs/architecture/torch.md").read_text(encoding="utf-8")
    assert [line for of in SCOPES for line in section(of) if line not in page] == []
    assert [item.what for item in REGISTRATIONS if f"| {item.what} |" not in page] == []


def test_a_graph_is_written_after_the_compilation_too() -> None:
    """fx writes the text when it is read; torch alone writes `aten.random.from` as no Python."""
    graphs: list[Any] = []

    def keep(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    x = torch.ones(4, requires_grad=True)
    aotlens.aot_function(lambda x: x.clone().random_(2, 9) * x, keep, keep)(x)
    assert "getattr(torch.ops.aten.random, 'from')" in graphs[0].code
    assert "getattr(torch.ops.aten.random, 'from')" in copy.deepcopy(graphs[0]).code


def test_a_fake_result_begins_where_it_begins_the_second_time_too() -> None:
    with patched(COMPILE), FakeTensorMode():
        rows, ones = torch.empty(4, 4)[1:], torch.ones(3)
        results = [torch.diagonal_scatter(rows, ones) for _ in range(2)]
    assert [result.storage_offset() for result in results] == [4, 4]
