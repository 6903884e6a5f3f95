"""The notation that graph text and law terms share: tokens, literals and operator calls.

    conv(v1, c0, strides=[1, 1], mode="edge", to=f32)

Reading is one pass without backtracking, so damaged or hostile text costs linear time; what
does not fit raises `WH1201` with the line number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from whet.core.dtypes import DType, parse_dtype
from whet.core.errors import GraphError, WhetError, fail
from whet.core.types import TensorType
from whet.ops.base import DynamicType, OutputType

MAX_DEPTH = 32
"""Deepest nesting of lists, terms and bodies that is read."""
MAX_NUMBER = 64
"""Longest number in characters; longer ones are damage."""

Kind = Literal["name", "number", "string", "mark", "comment", "end"]

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<comment>\#[^\n]*)
      | (?P<number>-?(?:\d[\w.]*(?:(?<=[eE])[+-]\d+)?|inf\b|nan\b))
      | (?P<name>[A-Za-z_]\w*)
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<mark>[()\[\]{},:=?])""",
    re.VERBOSE | re.ASCII,
)
WORDS: dict[str, bool | None] = {"true": True, "false": False, "None": None}


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of text with the line on which it stands, counted from 1."""

    kind: Kind
    text: str
    line: int


def refuse(line: int, problem: str, *details: str, code: str = "WH1201") -> NoReturn:
    """Raise the error of a line that cannot be read."""
    fail(code, f"line {line}: {problem}", *details, kind=GraphError)


def tokenize(text: str, pattern: re.Pattern[str] = _TOKEN) -> list[Token]:
    """The tokens of the text, ending with one of kind `end`.

    The pattern has a named group for every kind of token, and one named `space`.
    """
    tokens: list[Token] = []
    position, line = 0, 1
    while position < len(text):
        found = pattern.match(text, position)
        if found is None:
            refuse(line, f"unexpected character {text[position]!r}")
        kind: Any = found.lastgroup
        piece = found.group()
        if kind != "space":
            tokens.append(Token(kind, piece, line))
        line += piece.count("\n")
        position = found.end()
    tokens.append(Token("end", "", line))
    return tokens


class Reader:
    """A cursor over tokens with the parts of the grammar that every text shares."""

    def __init__(self, text: str) -> None:
        self.tokens = tokenize(text)
        self.position = 0
        self.depth = 0

    @property
    def line(self) -> int:
        """The line of the next token."""
        return self.peek().line

    def peek(self) -> Token:
        """The next token that is not a comment."""
        while self.tokens[self.position].kind == "comment":
            self.position += 1
        return self.tokens[self.position]

    def next(self) -> Token:
        token = self.peek()
        if token.kind != "end":
            self.position += 1
        return token

    def comment(self) -> str | None:
        """The text of a comment that follows on the line of the last token, or None."""
        here, last = self.tokens[self.position], self.tokens[self.position - 1]
        if here.kind != "comment" or here.line != last.line:
            return None
        self.position += 1
        return here.text[1:].strip()

    def accept(self, mark: str) -> bool:
        """Skip the mark (or word) if it comes next."""
        found = self.peek().kind in ("mark", "name") and self.peek().text == mark
        if found:
            self.next()
        return found

    def expect(self, mark: str) -> None:
        if not self.accept(mark):
            refuse(self.line, f"expected '{mark}', found {self.shown()}")

    def is_keyword(self) -> bool:
        """Whether `name =` comes next."""
        first = self.peek()
        return first.kind == "name" and self.tokens[self.position + 1].text == "="

    def name(self) -> str:
        if self.peek().kind != "name":
            refuse(self.line, f"expected a name, found {self.shown()}")
        return self.next().text

    def string(self) -> str:
        if self.peek().kind != "string":
            refuse(self.line, f"expected a quoted string, found {self.shown()}")
        token = self.next()
        try:
            return str(json.loads(token.text))
        except ValueError:
            refuse(token.line, f"malformed string {token.text[:40]}")

    def shown(self) -> str:
        token = self.peek()
        return "the end of the text" if token.kind == "end" else f"'{token.text[:40]}'"

    def nested(self, read: Callable[[], Any]) -> Any:
        """The result of `read`, one level deeper; too many levels are refused."""
        if self.depth >= MAX_DEPTH:
            refuse(self.line, f"nested deeper than {MAX_DEPTH} levels")
        self.depth += 1
        result = read()
        self.depth -= 1
        return result

    def sequence(self, close: str, read: Callable[[], Any]) -> list[Any]:
        """Items separated by commas up to and including the closing mark."""
        items: list[Any] = []
        while not self.accept(close):
            if items:
                self.expect(",")
            items.append(read())
        return items

    # ------------------------------------------------------------------------------- literals
    def literal(self) -> Any:
        """A number, string, list, element type, `true`, `false` or `None`."""
        token = self.peek()
        if token.kind == "number":
            return self.number()
        if token.kind == "string":
            return self.string()
        if token.kind == "name":
            self.next()
            if token.text in WORDS:
                return WORDS[token.text]
            return self._dtype(token)
        if self.accept("["):
            return self.nested(lambda: tuple(self.sequence("]", self.literal)))
        refuse(token.line, f"expected a value, found {self.shown()}")

    def number(self) -> int | float:
        token = self.peek()
        if token.kind != "number":
            refuse(token.line, f"expected a number, found {self.shown()}")
        self.next()
        if len(token.text) > MAX_NUMBER:
            refuse(token.line, f"a number of {len(token.text)} characters")
        try:
            value = int(token.text)
        except ValueError:
            try:
                return float(token.text)
            except ValueError:
                refuse(token.line, f"malformed number '{token.text}'")
        if not -(1 << 63) <= value < 1 << 64:
            refuse(token.line, f"{value} does not fit 64 bits")
        return value

    def type(self) -> OutputType:
        """A tensor type such as `f32[1, 3]`, or `i64[?, ?]` where only the rank is known."""
        token = self.peek()
        dtype = self._dtype(Token("name", self.name(), token.line))
        self.expect("[")
        shape = self.sequence("]", lambda: None if self.accept("?") else self.number())
        if shape and all(d is None for d in shape):
            return DynamicType(len(shape), dtype)
        if not all(isinstance(d, int) for d in shape):
            refuse(token.line, f"extents must be integers: {shape}")
        try:
            return TensorType(tuple(shape), dtype)
        except WhetError as error:
            refuse(token.line, error.message)

    def _dtype(self, token: Token) -> DType:
        try:
            return parse_dtype(token.text)
        except WhetError as error:
            refuse(token.line, error.message)
