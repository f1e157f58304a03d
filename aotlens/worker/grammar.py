"""The grammar of examples: `# aotlens: example f32[8, 16], bf16[16, 4] grad`.  Stdlib only.

    example    = [construction ":"] [argument {"," argument}]
    construction = the Python call that makes the module, as `Block(64, heads=4)`; evaluated in the script
    argument   = [name "="] value
    value      = tensor | literal | "[" values "]" | "(" values ")" | "{" key ":" value, ... "}"
    tensor     = dtype "[" sizes "]" ["[" strides "]"] [device] ["grad"]
    size       = number | symbol ["=" number]        a symbol (s0, s1, ...) is a dynamic size with a hint
    device     = "cpu" | "cuda" [":" number] | "meta" | ...

Invariant: parsing runs nothing of the user's; an error gives the column and what is allowed there.
"""

import ast
import re
from dataclasses import dataclass

from aotlens.errors import ExampleError
from aotlens.model.report import Span

__all__ = ["DTYPES", "Example", "ExampleText", "Literal", "Size", "TensorSpec", "Value", "parse_example"]

DTYPES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "c32": "complex32",
    "c64": "complex64",
    "c128": "complex128",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u64": "uint64",
    "u32": "uint32",
    "u16": "uint16",
    "u8": "uint8",
    "b8": "bool",
}
"""torch's short form of each dtype, and its attribute of `torch`."""

_DEVICES = ("cpu", "cuda", "meta", "mps", "xpu", "hpu")
_FORM = "a tensor such as `f32[8, 16]`, or a Python literal"


@dataclass(frozen=True, slots=True)
class ExampleText:
    """One example as written in the source."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Size:
    symbol: str
    """`s0`, `s1`, …"""
    hint: int | None
    """The size to trace with; None for any."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor to create."""

    dtype: str
    """Short form."""
    sizes: tuple[int | Size, ...]
    strides: tuple[int, ...] | None
    """None for contiguous."""
    device: str
    grad: bool


@dataclass(frozen=True, slots=True)
class Literal:
    """A Python value without tensors in it."""

    value: object


Value = TensorSpec | Literal | list["Value"] | tuple["Value", ...] | dict[object, "Value"]


@dataclass(frozen=True, slots=True)
class Example:
    """The arguments of one call."""

    arguments: tuple[Value, ...]
    keywords: dict[str, Value]
    construction: str | None
    """The Python call that makes the module; None calls the class without arguments."""


def parse_example(source: ExampleText) -> Example:
    """Parse an example.  Raises ExampleError with the line, the column and what is allowed there."""
    return _Parser(source).example()


_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>(?:0[xX][0-9a-fA-F]+|\d[\d_]*\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)[jJ]?)
      | (?P<string>[rbRB]{0,2}(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'))
      | (?P<name>[A-Za-z_]\w*)
      | (?P<mark>[\[\](){},:=+-])
    )""",
    re.VERBOSE,
)
_CONSTANTS: dict[str, object] = {"True": True, "False": False, "None": None}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    """`number`, `string`, `name`, `mark`, or `end`."""
    text: str
    offset: int


class _Parser:
    """Recursive descent over the text of one example."""

    def __init__(self, source: ExampleText) -> None:
        self._source = source
        self._construction, start = self._split_construction(source.text)
        self._tokens = self._tokenize(start)
        self._next = 0

    def example(self) -> Example:
        arguments: list[Value] = []
        keywords: dict[str, Value] = {}
        while self._peek().kind != "end":
            name = self._keyword_name()
            value = self._value()
            if name is not None:
                keywords[name] = value
            elif keywords:
                raise self._error("an argument without a name after one with a name", self._peek().offset)
            else:
                arguments.append(value)
            if self._peek().kind != "end":
                self._expect(",", "after an argument: `,`, or `grad` after a tensor")
        return Example(tuple(arguments), keywords, self._construction)

    def _keyword_name(self) -> str | None:
        first, second = self._peek(), self._peek(1)
        if first.kind == "name" and second.text == "=" and first.text not in _CONSTANTS:
            self._next += 2
            return first.text
        return None

    def _value(self) -> Value:
        token = self._take()
        match token.kind, token.text:
            case "name", text if text in _CONSTANTS:
                return Literal(_CONSTANTS[text])
            case "name", text if self._peek().text == "[":
                return self._tensor(token)
            case "number" | "string", _:
                return self._literal(token.text, token)
            case "mark", "-" | "+":
                return self._literal(token.text + self._take().text, token)
            case "mark", "[":
                return self._values("]")
            case "mark", "(":
                return self._parenthesised()
            case "mark", "{":
                return self._mapping()
        shown = f"`{token.text}`" if token.kind != "end" else "the end"
        raise self._error(f"found {shown}, expected {_FORM}", token.offset)

    def _literal(self, text: str, token: _Token) -> Literal:
        try:
            return Literal(ast.literal_eval(text))
        except (ValueError, SyntaxError) as error:
            raise self._error(f"`{text}` is not a Python literal", token.offset) from error

    def _values(self, closing: str) -> list[Value]:
        values: list[Value] = []
        while self._peek().text != closing:
            values.append(self._value())
            if self._peek().text != closing:
                self._expect(",", f"`,` or `{closing}`")
        self._next += 1
        return values

    def _parenthesised(self) -> Value:
        """Parse a tuple, or the value that parentheses only group, as in Python: `(3,)`, `(3)`."""
        values = self._values(")")
        trailing_comma = self._tokens[self._next - 2].text == ","
        return values[0] if len(values) == 1 and not trailing_comma else tuple(values)

    def _mapping(self) -> dict[object, Value]:
        mapping: dict[object, Value] = {}
        while self._peek().text != "}":
            offset = self._peek().offset
            key = self._value()
            if not isinstance(key, Literal):
                raise self._error("a key must be a Python literal", offset)
            self._expect(":", "`:` after a key")
            mapping[key.value] = self._value()
            if self._peek().text != "}":
                self._expect(",", "`,` or `}`")
        self._next += 1
        return mapping

    def _tensor(self, dtype: _Token) -> TensorSpec:
        if dtype.text not in DTYPES:
            raise self._error(f"unknown dtype `{dtype.text}`; known: {', '.join(DTYPES)}", dtype.offset)
        sizes = self._sizes()
        strides_at = self._peek().offset
        strides = tuple(self._strides()) if self._peek().text == "[" else None
        if strides is not None and len(strides) != len(sizes):
            raise self._error(f"{len(strides)} strides for {len(sizes)} sizes", strides_at)
        device = self._device()
        grad = self._peek().text == "grad"
        self._next += grad
        if grad and (dtype.text[0] not in "fbc" or dtype.text == "b8"):
            raise self._error(f"`grad` needs a floating or complex dtype, found `{dtype.text}`", dtype.offset)
        return TensorSpec(dtype.text, sizes, strides, device, grad)

    def _sizes(self) -> tuple[int | Size, ...]:
        sizes: list[int | Size] = []
        self._next += 1
        while self._peek().text != "]":
            sizes.append(self._size())
            if self._peek().text != "]":
                self._expect(",", "`,` or `]` after a size")
        self._next += 1
        return tuple(sizes)

    def _size(self) -> int | Size:
        token = self._take()
        if token.kind == "number" and token.text.isdigit():
            return int(token.text)
        if token.kind != "name" or not re.fullmatch(r"s\d+", token.text):
            shown = f"`{token.text}`" if token.kind != "end" else "the end"
            raise self._error(
                f"found {shown}, expected a size: a number, or `s0`, `s1`, … if dynamic", token.offset
            )
        if self._peek().text != "=":
            return Size(token.text, None)
        self._next += 1
        hint = self._take()
        if not hint.text.isdigit():
            raise self._error(
                f"found `{hint.text}`, expected the number to trace `{token.text}` with", hint.offset
            )
        return Size(token.text, int(hint.text))

    def _strides(self) -> list[int]:
        strides: list[int] = []
        self._next += 1
        while self._peek().text != "]":
            token = self._take()
            if not token.text.isdigit():
                raise self._error(f"found `{token.text}`, expected a stride, which is a number", token.offset)
            strides.append(int(token.text))
            if self._peek().text != "]":
                self._expect(",", "`,` or `]` after a stride")
        self._next += 1
        return strides

    def _device(self) -> str:
        token = self._peek()
        if token.kind != "name" or token.text == "grad":
            return "cpu"
        if token.text not in _DEVICES:
            raise self._error(
                f"unknown word `{token.text}`; after a tensor: a device or `grad`", token.offset
            )
        self._next += 1
        if self._peek().text == ":" and self._peek(1).text.isdigit():
            self._next += 2
            return f"{token.text}:{self._tokens[self._next - 1].text}"
        return token.text

    # Tokens

    def _tokenize(self, start: int) -> list[_Token]:
        text, offset, tokens = self._source.text, start, []
        while text[offset:].strip():
            match = _TOKEN.match(text, offset)
            if match is None or match.lastgroup is None:
                offset += len(text[offset:]) - len(text[offset:].lstrip())
                raise self._error(f"found `{text[offset]}`, expected {_FORM}", offset)
            tokens.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
            offset = match.end()
        return [*tokens, _Token("end", "", len(text))]

    def _split_construction(self, text: str) -> tuple[str | None, int]:
        """Return the call before the `:`, checked by Python's parser, and where the arguments begin."""
        head = re.match(r"\s*[A-Za-z_][\w.]*\(", text)
        if head is None:
            return None, 0
        for colon in (index for index, mark in enumerate(text) if mark == ":"):
            try:
                call = ast.parse(text[:colon].strip(), mode="eval").body
            except SyntaxError:
                continue
            if isinstance(call, ast.Call):
                return text[:colon].strip(), colon + 1
        raise self._error("a construction such as `Block(64, heads=4)` needs a `:` after it", head.end() - 1)

    def _peek(self, ahead: int = 0) -> _Token:
        return self._tokens[min(self._next + ahead, len(self._tokens) - 1)]

    def _take(self) -> _Token:
        token = self._peek()
        self._next += 1
        return token

    def _expect(self, mark: str, allowed: str) -> None:
        token = self._take()
        if token.text != mark:
            shown = f"`{token.text}`" if token.kind != "end" else "the end"
            raise self._error(f"found {shown}, expected {allowed}", token.offset)

    def _error(self, what: str, offset: int) -> ExampleError:
        span = self._source.span
        col = span.col + len(self._source.text[:offset].encode())
        location = f"{span.file}:{span.line}:{col + 1}"
        where = Span(span.file, span.line, col, span.end_line, max(span.end_col, col + 1))
        return ExampleError(f"{location}: bad example `{self._source.text.strip()}`: {what}", span=where)
