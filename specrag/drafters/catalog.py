"""The drafters by the names that users type, and how such names are combined."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from specrag.decoding.drafter import Drafter
from specrag.drafters.cascade import cascade
from specrag.drafters.composite import CompositeDrafter
from specrag.drafters.datastore import DatastoreDrafter
from specrag.drafters.draft_model import DraftModelDrafter
from specrag.drafters.named_head import NamedHead
from specrag.drafters.selector import SelectorDrafter
from specrag.errors import ConfigError, suggest
from specrag.registry import Registry

DRAFTERS: Registry[type[Drafter]] = Registry(
    "drafter",
    {
        "none": "specrag.drafters.none:NoDrafter",
        "prompt_lookup": "specrag.drafters.prompt_lookup:PromptLookupDrafter",
        "suffix": "specrag.drafters.suffix:SuffixDrafter",
    },
)
"""The drafters that need neither a model nor an argument."""

BY_DOMAIN = "auto"


@dataclass(frozen=True, slots=True)
class DrafterKind:
    """A name that users may type.

    Attributes:
        argument: What stands behind its colon; empty where nothing may.
        summary: One line for a list of drafters.
        optional: Whether it may be left out.
    """

    argument: str
    summary: str
    optional: bool = False


KINDS: Mapping[str, DrafterKind] = {
    "none": DrafterKind("", "plain decoding"),
    "suffix": DrafterKind("", "copies what followed the longest repeated ending of the text"),
    "prompt_lookup": DrafterKind("", "copies what followed the last few tokens before"),
    "datastore": DrafterKind("NAME", "copies from a datastore: an index's name, or a folder"),
    "draft": DrafterKind(
        "MODEL", "a smaller model decodes ahead: a model's name, or a folder", True
    ),
    "eagle3": DrafterKind("HEAD", "an EAGLE-3 head drafts from the states of the target", True),
    "eagle": DrafterKind("HEAD", "an EAGLE-1 or EAGLE-2 head does", True),
    "medusa": DrafterKind("HEAD", "Medusa heads guess several tokens at once", True),
    "selector": DrafterKind("", "a drafter for each kind of text, the usual choice"),
    BY_DOMAIN: DrafterKind("code=A,math=B,text=C", "a drafter for each kind of text, yours"),
}

COMBINATIONS: Mapping[str, str] = {
    "A+B": "both draft, the likeliest of both is verified",
    "A>draft:MODEL": "A drafts for the model, which drafts for the target",
}


@dataclass(frozen=True, slots=True)
class Single:
    """One drafter.

    Attributes:
        kind: A name of ``KINDS``.
        argument: What was written behind its colon; empty where nothing was.
    """

    kind: str
    argument: str = ""


@dataclass(frozen=True, slots=True)
class Cascade:
    """``a>b``: each level drafts for the next.

    Attributes:
        levels: At least two, the cheapest first.
    """

    levels: tuple[Single, ...]


@dataclass(frozen=True, slots=True)
class Merged:
    """``a+b``: all draft, their trees are merged.

    Attributes:
        parts: At least two.
    """

    parts: tuple[Single | Cascade, ...]


@dataclass(frozen=True, slots=True)
class ByDomain:
    """``auto:code=a,text=b``: the kind of text decides.

    Attributes:
        choices: Domain and its drafter.
    """

    choices: tuple[tuple[str, Single | Cascade | Merged], ...]


Expression = Single | Cascade | Merged | ByDomain


def make_drafter(spec: str) -> Drafter:
    """Makes the drafter that a user named, with its default parameters.

    Args:
        spec: See ``parse``.

    Raises:
        ConfigError: The name cannot be understood, or a part of it cannot be had.
        ModelError: A model that it names is not there.
    """
    return _made(parse(spec))


def parse(spec: str) -> Expression:
    """Reads a drafter's name; loads nothing.

    ``,`` binds least, then ``+``, then ``>``; there are no parentheses. An argument may therefore
    hold none of these three; such a model or folder is passed as an object instead.

    Args:
        spec: A name of ``KINDS``, with an argument where it takes one; several of them joined by
            ``+`` (all draft) or ``>`` (one drafts for the next); ``auto:`` before
            ``domain=drafter`` pairs.

    Raises:
        ConfigError: It is no such name; the message says which part is wrong.
    """
    kind, colon, rest = spec.strip().partition(":")
    if kind.strip() == BY_DOMAIN and colon and rest.strip():
        return _by_domain(rest, spec)
    if "," in spec:
        raise _refused(spec, "a list of drafters is only taken behind 'auto:'", "write a+b")
    return _merged(spec, spec)


def describe() -> list[tuple[str, str]]:
    """Returns what may be typed and what it does, a line each."""
    kinds = [
        (f"{name}:{kind.argument}" if kind.argument else name, kind.summary)
        for name, kind in KINDS.items()
    ]
    return [*kinds, *COMBINATIONS.items()]


def _by_domain(text: str, spec: str) -> ByDomain:
    choices: dict[str, Single | Cascade | Merged] = {}
    for part in text.split(","):
        domain, equals, name = (piece.strip() for piece in part.partition("="))
        if not (equals and domain and name):
            reason = f"{part.strip()!r} is no pair of a domain and a drafter"
            raise _refused(spec, reason, "write auto:code=suffix,text=prompt_lookup")
        if domain in choices:
            raise _refused(spec, f"the domain {domain!r} is named twice", "name it once")
        choices[domain] = _merged(name, spec)
    return ByDomain(tuple(choices.items()))


def _merged(text: str, spec: str) -> Single | Cascade | Merged:
    parts = tuple(_cascade(part, spec) for part in text.split("+"))
    return parts[0] if len(parts) == 1 else Merged(parts)


def _cascade(text: str, spec: str) -> Single | Cascade:
    levels = tuple(_single(part, spec) for part in text.split(">"))
    for level in levels[1:]:
        if level.kind != "draft":
            reason = f"{level.kind!r} is no model, so nothing can draft for it"
            raise _refused(spec, reason, "write suffix>draft:MODEL: the cheapest first")
    return levels[0] if len(levels) == 1 else Cascade(levels)


def _single(text: str, spec: str) -> Single:
    kind, colon, argument = (piece.strip() for piece in text.partition(":"))
    if not (kind or argument):
        allowed = suggest("", KINDS)
        raise _refused(spec, f"a drafter's name is missing; {allowed}", "write it, or leave it out")
    if kind not in KINDS:
        raise ConfigError(f"unknown drafter {kind!r}{_inside(kind, spec)}; {suggest(kind, KINDS)}")
    wanted = KINDS[kind].argument
    if colon and not wanted:
        raise _refused(spec, f"{kind!r} takes no argument, got {argument!r}", f"write {kind}")
    if wanted and not argument and (colon or not KINDS[kind].optional):
        raise _refused(spec, f"{kind!r} needs an argument", f"write {kind}:{wanted}")
    if kind == BY_DOMAIN:
        raise _refused(spec, "'auto:' must stand at the very beginning", f"write {kind}:{wanted}")
    return Single(kind, argument)


def _inside(part: str, spec: str) -> str:
    return "" if part == spec.strip() else f" in {spec!r}"


def _refused(spec: str, reason: str, hint: str) -> ConfigError:
    return ConfigError(f"cannot read the drafter {spec!r}: {reason}", hint=hint)


def _made(expression: Expression) -> Drafter:
    if isinstance(expression, Single):
        if expression.kind in DRAFTERS:
            return DRAFTERS.get(expression.kind)()
        return _SINGLE[expression.kind](expression.argument)
    if isinstance(expression, Cascade):
        return cascade([_made(level) for level in expression.levels])
    if isinstance(expression, Merged):
        return CompositeDrafter([_made(part) for part in expression.parts])
    # The selector tells its drafters apart by name, so what is written twice is made once.
    made = {part: _made(part) for part in dict.fromkeys(part for _, part in expression.choices)}
    return SelectorDrafter({name: made[part] for name, part in expression.choices})


_SINGLE: Mapping[str, Callable[[str], Drafter]] = {
    "datastore": DatastoreDrafter.named,
    "draft": DraftModelDrafter.named,
    "eagle": lambda source: NamedHead("eagle", source),
    "eagle3": lambda source: NamedHead("eagle3", source),
    "medusa": lambda source: NamedHead("medusa", source),
    "selector": lambda _: SelectorDrafter(),
}
