"""Edits that split a batch into micro batches, as text."""

from dataclasses import replace

from aotlens.fit.advice.jobs import NameFact
from aotlens.fit.advice.rules import Script
from aotlens.model.fit import Fit, FitMoment
from tests.fit.advice.test_rules import NAMES, TEXT, changed_lines, script, with_title


def test_micro_batches_add_up_the_loss_that_is_printed() -> None:
    assert changed_lines("gradient accumulation", of=script()) == [
        "    loss_total = 0",
        "    for x_part, y_part in zip(x.chunk(2), y.chunk(2)):",
        "        prediction = model(x_part)",
        "        loss = (prediction - y_part).square().mean()",
        "        (loss * len(x_part) / len(x)).backward()",
        "        loss_total += loss.detach() * len(x_part) / len(x)",
        "    loss = loss_total",
    ]


def accumulated(loss: str, *facts: NameFact) -> list[str]:
    """The new lines of two micro batches of a step whose forward and backward are these lines."""
    first, last = TEXT.index("    prediction"), TEXT.index("    optimizer.step")
    text = f"{TEXT[:first]}{loss}{TEXT[last:].replace('loss.item()', 'step')}"
    line = 1 + text[: text.index("backward(")].count("\n")
    names = replace(NAMES, line=line, names=(*NAMES.names, *facts))
    made = Script({"train.py": text}, names, Fit(100, FitMoment("backward")))
    return changed_lines("gradient accumulation", of=made)


COUNTED = "Accumulate the gradients of 2 micro batches, divided by the targets of the whole batch that count"


def test_a_cross_entropy_that_ignores_targets_is_divided_by_those_that_count() -> None:
    text = TEXT.replace(
        "(prediction - y).square().mean()", "nn.functional.cross_entropy(prediction, y, ignore_index=3)"
    )
    after = with_title(COUNTED, text)
    assert "    counted_targets = (y != 3).sum()\n" in after
    assert (
        "        loss = nn.functional.cross_entropy("
        'prediction, y_part, ignore_index=3, reduction="sum") / counted_targets\n'
    ) in after
    assert "    loss_total += loss.detach()\n" in after


def test_a_counted_loss_that_is_an_operand_is_put_in_parentheses() -> None:
    text = TEXT.replace("(prediction - y).square().mean()", "2 ** nn.functional.cross_entropy(prediction, y)")
    call = 'nn.functional.cross_entropy(prediction, y_part, reduction="sum")'
    assert f"loss = 2 ** ({call} / counted_targets)\n" in with_title(COUNTED, text)


def test_tensors_of_several_sizes_are_split_together() -> None:
    text = TEXT.replace("(prediction - y)", "(prediction - y.flatten(0, 1))")
    facts = (
        replace(NAMES.names[0], shape=(12, 4)),
        replace(NAMES.names[1], shape=(6, 2, 4)),
        *NAMES.names[2:],
    )
    names = replace(NAMES, names=facts)
    proposals = Script({"train.py": text}, names, Fit(100, FitMoment("backward"))).proposals()
    series = [each.series for each in proposals if each.series.endswith("`x`, `y`, sizes")]
    assert len(series) == 1  # 4 parts would not divide 6 rows


def test_a_loss_without_a_name_is_weighted_in_place() -> None:
    assert accumulated("    (model(x) - y).square().mean().backward()\n") == [
        "    for x_part, y_part in zip(x.chunk(2), y.chunk(2)):",
        "        ((model(x_part) - y_part).square().mean() * len(x_part) / len(x)).backward()",
    ]
    assert accumulated("    (model(x).sum() + y.sum()).backward()\n")[1] == (
        "        ((model(x_part).sum() + y_part.sum()) * len(x_part) / len(x)).backward()"
    )
    assert accumulated("    accelerator.backward(model(x) - y)\n")[1] == (
        "        accelerator.backward((model(x_part) - y_part) * len(x_part) / len(x))"
    )


def test_a_batch_may_be_a_dict_or_a_list() -> None:
    fact = NameFact("batch", "tensors", "dict", (6, 4), first="['ids']")
    parts = "(dict(zip(batch, parts)) for parts in zip(*(rows.chunk(2) for rows in batch.values())))"
    assert accumulated("    model(**batch).loss.backward()\n", fact) == [
        f"    for batch_part in {parts}:",
        "        (model(**batch_part).loss * len(batch_part['ids']) / len(batch['ids'])).backward()",
    ]
    fact = NameFact("data", "tensors", "list", (6, 4), first="[0]")
    assert accumulated("    model(*data, y).backward()\n", fact) == [
        "    for data_part, y_part in zip(zip(*(rows.chunk(2) for rows in data)), y.chunk(2)):",
        "        (model(*data_part, y_part) * len(data_part[0]) / len(data[0])).backward()",
    ]


def test_an_input_may_require_a_gradient_and_a_parameter_is_no_batch() -> None:
    loss = "    model(latent).sum().backward()\n"
    fact = NameFact("latent", "tensor", "Tensor", (6, 4), requires_grad=True)
    assert accumulated(loss, fact)[0] == "    for latent_part in latent.chunk(2):"
    text = TEXT.replace("loss.backward()", "latent.sum().backward()")
    names = replace(NAMES, names=(replace(fact, type_name="Parameter"),))
    kinds = {
        each.kind for each in Script({"train.py": text}, names, Fit(1, FitMoment("forward"))).proposals()
    }
    assert "gradient accumulation" not in kinds


def test_a_dict_of_numbers_that_is_read_later_adds_up() -> None:
    text = "    loss, parts = losses(model, x, y)\n    loss.backward()\n    print(parts)\n"
    added = "parts_total.get(key, 0) + value.detach() * len(x_part) / len(x)"
    assert accumulated(text, NameFact("parts", "numbers", "Tensor")) == [
        "    parts_total = {}",
        "    for x_part, y_part in zip(x.chunk(2), y.chunk(2)):",
        "        loss, parts = losses(model, x_part, y_part)",
        "        (loss * len(x_part) / len(x)).backward()",
        f"        parts_total = {{key: {added} for key, value in parts.items()}}",
        "    parts = parts_total",
    ]
