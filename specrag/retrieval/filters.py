"""Conditions on documents and their metadata, as SQL over the table of documents."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from specrag.errors import InputError, suggest

FilterValue: TypeAlias = str | int | float | bool

BUILTIN_FIELDS = {"document": "d.id", "source": "d.source", "title": "d.title"}
METADATA_PREFIX = "metadata."  # before a name that a built-in field would hide

_ORDERS = ("<", "<=", ">", ">=")
_LISTS = ("in", "not in")
OPERATORS = ("=", "!=", *_ORDERS, *_LISTS, "exists")

_FORMS = "'year>=2020', 'lang=en', 'tag in a,b', 'tag not in a,b', 'year exists', 'year not exists'"
_EXISTS = re.compile(r"\s*(?P<name>\S.*?)\s+(?P<negated>not\s+)?exists\s*", re.DOTALL)
_COMPARED = re.compile(
    r"\s*(?P<name>[^\s<>=!~].*?)(?:\s*(?P<sign>[<>=!~]+)|\s+(?P<word>not\s+in|in)(?=\s))"
    r"(?P<values>.*)",
    re.DOTALL,
)
_ITEM = re.compile(r"""\s*(?:"(?P<quoted>[^"]*)"|(?P<plain>[^,"]*))\s*(?:,|\Z)""")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_LARGEST_INTEGER = 2**63 - 1

# One element of a field: its type in JSON and its value. Values travel as JSON, so that SQLite
# reads the numbers of filter and document alike and any number of them is one parameter.
_ANY_OF = """(
    e.type = 'text' AND e.value IN (SELECT value FROM json_each(?))
    OR e.type IN ('integer', 'real') AND e.value IN (SELECT value FROM json_each(?))
    OR e.type IN (SELECT value FROM json_each(?))
)"""
_ORDERED = "(e.type IN {types} AND e.value {operator} (SELECT value FROM json_each(?)))"
_ANYTHING = "e.type <> 'null'"
# The value of a field, and each element of it if it is a list. The guards matter: SQLite may
# look into a value before it tests its type.
_ELEMENTS = """
    SELECT v.type, v.value FROM ({values}) AS v WHERE v.type <> 'array'
    UNION ALL SELECT a.type, a.value FROM ({values}) AS v,
        json_each(CASE v.type WHEN 'array' THEN v.value ELSE '[]' END) AS a
"""
_COLUMN = """
    SELECT iif({column} IS NULL, 'null', 'text') AS type, {column} AS value
"""
_KEY = "SELECT k.type, k.value FROM json_each(d.metadata) AS k WHERE k.key = ?"


@dataclass(frozen=True, slots=True)
class Condition:
    """A test of one field; a field that holds a list passes if any element does.

    Attributes:
        name: A built-in field (``document``, the id; ``source``; ``title``) or a key of the
            metadata, dots leading into nested ones. ``metadata.title`` is the key ``title``.
        operator: One of ``OPERATORS``. ``!=`` and ``not in`` are the opposites of ``=`` and
            ``in``, so a document without the field passes them.
        values: What to compare with: numbers with numbers, texts with texts, in the order of
            characters. One value but for ``in`` and ``not in``; True or False for ``exists``.
    """

    name: str
    operator: str
    values: tuple[FilterValue, ...]

    def __post_init__(self) -> None:
        if not self.name or self.name == METADATA_PREFIX:
            raise InputError(f"a filter needs the name of a field, got {self.name!r}")
        _check_text(self.name)
        if self.operator not in OPERATORS:
            raise InputError(
                f"unknown operator {self.operator!r} in the filter of {self.name!r}",
                hint=suggest(str(self.operator), OPERATORS),
            )
        for value in self.values:
            _check_value(self.name, value)
        if self.operator in (*_ORDERS, "exists"):
            _check_operand(self.name, self.operator, self.values)

    def sql(self) -> tuple[str, tuple[str, ...]]:
        """Returns SQL that tells whether a document passes, and its parameters."""
        test, parameters = self._test()
        elements, names = _elements(self.name)
        is_absent = self.operator == "exists" and not self.values[0]
        negated = is_absent or self.operator in ("!=", "not in")
        found = f"EXISTS (SELECT 1 FROM ({elements}) AS e WHERE {test})"
        return (f"NOT {found}" if negated else found), (*names, *parameters)

    def _test(self) -> tuple[str, tuple[str, ...]]:
        if self.operator == "exists":
            return _ANYTHING, ()
        if self.operator in _ORDERS:
            types = "('text')" if isinstance(self.values[0], str) else "('integer', 'real')"
            test = _ORDERED.format(types=types, operator=self.operator)
            return test, (json.dumps(list(self.values)),)
        texts = [value for value in self.values if isinstance(value, str)]
        truths = [json.dumps(value) for value in self.values if isinstance(value, bool)]
        numbers = [value for value in self.values if not isinstance(value, str | bool)]
        return _ANY_OF, tuple(json.dumps(part) for part in (texts, numbers, truths))


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions that a document must all meet; made by ``of`` or ``parse``.

    Attributes:
        conditions: The conditions.
    """

    conditions: tuple[Condition, ...] = ()

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Filter:
        """Makes a filter from plain data.

        Args:
            given: For each field a value (equality), a list of values (any of them) or a mapping
                from operators to operands, such as
                ``{"year": {">=": 2020, "<": 2024}, "lang": "en", "tag": ["a", "b"]}``.

        Raises:
            InputError: A name, an operator or a value cannot be used.
        """
        conditions = []
        for name, wanted in given.items():
            operands = wanted if isinstance(wanted, Mapping) else {_default(wanted): wanted}
            if not isinstance(name, str) or not operands:
                raise InputError(
                    f"cannot read the filter {{{name!r}: {wanted!r}}}",
                    hint='write {"year": {">=": 2020}, "lang": "en", "tag": ["a", "b"]}',
                )
            conditions += [_condition(name, *operand) for operand in operands.items()]
        return cls(tuple(conditions))

    @classmethod
    def parse(cls, given: Iterable[str]) -> Filter:
        """Makes a filter from what is typed on a command line.

        What looks like a number or is ``true`` or ``false`` is that, and equals the same text
        too; double quotes make it a text only.

        Args:
            given: Conditions such as ``year>=2020``, ``lang=en``, ``tag in a,b``,
                ``tag not in a,"b,c"``, ``year exists`` or ``year not exists``.

        Raises:
            InputError: A condition cannot be read.
        """
        return cls(tuple(_parsed(text) for text in given))

    @property
    def field_names(self) -> tuple[str, ...]:
        """The names that mean metadata, in the order given, without ``metadata.``."""
        names = [one.name for one in self.conditions if one.name not in BUILTIN_FIELDS]
        return tuple(dict.fromkeys(name.removeprefix(METADATA_PREFIX) for name in names))

    def check(self, known: Collection[str]) -> None:
        """Checks that each field exists, so that a misspelt one does not just find nothing.

        Args:
            known: The keys of the metadata that any document has.

        Raises:
            InputError: No document has a field that is asked for.
        """
        for name in self.field_names:
            if name not in known and name.split(".")[0] not in known:
                raise InputError(
                    f"no document has the field {name!r}",
                    hint=suggest(name, [*BUILTIN_FIELDS, *known]),
                )

    def sql(self) -> tuple[str, tuple[str, ...]]:
        """Returns an SQL expression and its parameters.

        The expression is about a row ``d`` of a table with the columns ``id``, ``source``,
        ``title`` and ``metadata`` (a JSON object). Names and values are parameters, never text
        of the expression.
        """
        parts = [condition.sql() for condition in self.conditions]
        expression = " AND ".join(f"({part})" for part, _ in parts)
        return expression or "1", tuple(value for _, values in parts for value in values)


def _elements(name: str) -> tuple[str, list[str]]:
    """SQL of types and values of a field, with its parameters."""
    if name in BUILTIN_FIELDS:
        return _COLUMN.format(column=BUILTIN_FIELDS[name]), []
    name = name.removeprefix(METADATA_PREFIX)
    values, parameters = _KEY, [name]
    steps = name.split(".")
    if len(steps) > 1:  # a key that has dots itself comes first
        nested = _nested(len(steps))
        values = f"{_KEY} UNION ALL {nested} AND NOT EXISTS ({_KEY})"
        parameters = [name, *steps, name]
    return _ELEMENTS.format(values=values), parameters * 2


def _nested(num_steps: int) -> str:
    tables, tests = ["json_each(d.metadata) AS n0"], ["n0.key = ?"]
    for step in range(1, num_steps):
        inside = f"CASE n{step - 1}.type WHEN 'object' THEN n{step - 1}.value ELSE '{{}}' END"
        tables.append(f"json_each({inside}) AS n{step}")
        tests.append(f"n{step}.key = ?")
    last = f"n{num_steps - 1}"
    return f"SELECT {last}.type, {last}.value FROM {', '.join(tables)} WHERE {' AND '.join(tests)}"


def _default(wanted: object) -> str:
    return "in" if isinstance(wanted, list | tuple | set | frozenset) else "="


def _condition(name: str, operator: str, operand: Any) -> Condition:
    if operator not in _LISTS:
        return Condition(name, operator, (operand,))
    if not isinstance(operand, list | tuple | set | frozenset):
        raise InputError(
            f"the filter of {name!r} needs a list after {operator!r}, got {operand!r}",
            hint=f'write {{"{name}": {{"{operator}": ["a", "b"]}}}}',
        )
    return Condition(name, operator, tuple(operand))


def _check_text(text: str) -> None:
    if "\0" in text or any("\ud800" <= sign <= "\udfff" for sign in text):
        raise InputError(f"a filter cannot hold NUL or half of a character: {text!r}")


def _check_value(name: str, value: object) -> None:
    if isinstance(value, str):
        _check_text(value)
    elif not isinstance(value, int | float):
        raise InputError(
            f"the filter of {name!r} compares with {value!r}; allowed are texts, numbers, "
            "true and false",
            hint='to find documents without the field, write {"exists": False}'
            if value is None
            else None,
        )
    elif not _is_in_range(value):
        raise InputError(f"the filter of {name!r} compares with {value!r}, which is out of range")


def _is_in_range(value: float) -> bool:
    if isinstance(value, int):
        return abs(value) <= _LARGEST_INTEGER
    return math.isfinite(value)


def _check_operand(name: str, operator: str, values: Sequence[object]) -> None:
    wants_truth = operator == "exists"
    if len(values) != 1 or isinstance(values[0], bool) != wants_truth:
        allowed = "true or false" if wants_truth else "a number or a text"
        raise InputError(
            f"the filter of {name!r} needs {allowed} after {operator!r}, got "
            f"{', '.join(map(repr, values))}"
        )


def _parsed(text: str) -> Condition:
    asked = _EXISTS.fullmatch(text)
    if asked:
        return Condition(asked["name"], "exists", (not asked["negated"],))
    found = _COMPARED.fullmatch(text)
    if not found:
        raise InputError(f"cannot read the filter {text!r}", hint=f"write it like {_FORMS}")
    operator = found["sign"] or " ".join(found["word"].split())
    if not found["values"].strip():
        raise InputError(
            f"the filter {text!r} compares with nothing", hint='write "" for an empty text'
        )
    is_list = operator in _LISTS
    items = _items(text, found["values"]) if is_list else [_unquoted(found["values"])]
    if operator in _ORDERS:
        return Condition(found["name"], operator, (_typed(*items[0])[0],))
    values = [value for item in items for value in _typed(*item)]
    # The type of the field is not known here, so a number is looked for as a text as well.
    several = {"=": "in", "!=": "not in"} if len(values) > 1 else {}
    return Condition(found["name"], several.get(operator, operator), tuple(values))


def _items(text: str, values: str) -> list[tuple[str, bool]]:
    """The texts of a list, each with whether it was quoted."""
    items, place = [], 0
    while place < len(values):
        found = _ITEM.match(values, place)
        if not found:
            raise InputError(
                f"cannot read the list in the filter {text!r}",
                hint='separate values by commas; quote one that holds a comma: tag in a,"b,c"',
            )
        quoted = found["quoted"]
        items.append((found["plain"].strip() if quoted is None else quoted, quoted is not None))
        place = found.end()
    return items


def _unquoted(text: str) -> tuple[str, bool]:
    text = text.strip()
    is_quoted = len(text) > 1 and text[0] == text[-1] == '"'
    return (text[1:-1] if is_quoted else text), is_quoted


def _typed(text: str, is_quoted: bool) -> list[FilterValue]:
    """What a typed value may mean, the likeliest first."""
    if is_quoted:
        return [text]
    if text in ("true", "false"):
        return [text == "true", text]
    if not _NUMBER.fullmatch(text):
        return [text]
    number = int(text) if text.lstrip("+-").isdecimal() and len(text) < 20 else float(text)
    return [number, text] if _is_in_range(number) else [text]
