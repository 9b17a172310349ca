from __future__ import annotations

from pathlib import Path

import pytest

from specrag.drafters import catalog
from specrag.drafters.catalog import (
    COMBINATIONS,
    DRAFTERS,
    KINDS,
    ByDomain,
    Cascade,
    Expression,
    Merged,
    Single,
    describe,
    make_drafter,
    parse,
)
from specrag.drafters.composite import CompositeDrafter
from specrag.drafters.draft_model import DraftModelDrafter
from specrag.drafters.none import NoDrafter
from specrag.drafters.selector import SelectorDrafter
from specrag.drafters.suffix import SuffixDrafter
from specrag.errors import ConfigError, ModelError
from tests.drafters.kit import TOKENIZER, model

SUFFIX, LOOKUP = Single("suffix"), Single("prompt_lookup")
SMALL, TINY = Single("draft", "small"), Single("draft", "org/tiny")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("suffix", SUFFIX),
        ("  none ", Single("none")),
        ("selector", Single("selector")),
        ("datastore:handbook", Single("datastore", "handbook")),
        ("draft:org/tiny", TINY),
        ("draft", Single("draft")),
        ("suffix+eagle3", Merged((SUFFIX, Single("eagle3")))),
        ("medusa:org/heads", Single("medusa", "org/heads")),
        ("suffix>draft", Cascade((SUFFIX, Single("draft")))),
        ("draft: C:/models/small ", Single("draft", "C:/models/small")),
        ("suffix+prompt_lookup", Merged((SUFFIX, LOOKUP))),
        (" suffix + draft:small", Merged((SUFFIX, SMALL))),
        ("suffix>draft:small", Cascade((SUFFIX, SMALL))),
        ("suffix > draft:org/tiny > draft:small", Cascade((SUFFIX, TINY, SMALL))),
        ("prompt_lookup+suffix>draft:small", Merged((LOOKUP, Cascade((SUFFIX, SMALL))))),
        ("suffix>draft:small+prompt_lookup", Merged((Cascade((SUFFIX, SMALL)), LOOKUP))),
        ("auto:code=suffix", ByDomain((("code", SUFFIX),))),
        (
            "auto:code=suffix+draft:small, text = suffix>draft:small",
            ByDomain((("code", Merged((SUFFIX, SMALL))), ("text", Cascade((SUFFIX, SMALL))))),
        ),
    ],
)
def test_a_name_is_read(spec: str, expected: Expression) -> None:
    assert parse(spec) == expected


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("sufix", r"^unknown drafter 'sufix'; did you mean 'suffix'\? allowed: auto, datastore, "),
        ("none+sufix", "unknown drafter 'sufix' in 'none.sufix'; did you mean 'suffix'"),
        ("draught:small", "unknown drafter 'draught' in .* did you mean 'draft'"),
        ("", "cannot read the drafter '': a drafter's name is missing; allowed: auto"),
        ("suffix+", r"cannot read the drafter 'suffix\+': a drafter's name is missing"),
        ("+suffix", "a drafter's name is missing"),
        ("suffix>", "a drafter's name is missing"),
        ("suffix++none", "a drafter's name is missing"),
        (":small", "unknown drafter ''"),
        ("suffix:5", "'suffix' takes no argument, got '5'\n  hint: write suffix"),
        ("suffix:", "'suffix' takes no argument, got ''"),
        ("draft:", "'draft' needs an argument\n  hint: write draft:MODEL"),
        ("eagle3:", "'eagle3' needs an argument\n  hint: write eagle3:HEAD"),
        ("suffix>draft:", "cannot read .*'suffix>draft:': 'draft' needs an argument"),
        ("datastore", "'datastore' needs an argument\n  hint: write datastore:NAME"),
        ("draft:small>suffix", "'suffix' is no model, so nothing can draft for it"),
        ("suffix>datastore:x>draft:small", "'datastore' is no model"),
        ("auto", "'auto' needs an argument"),
        ("auto:", "'auto' needs an argument"),
        ("auto:suffix", "'suffix' is no pair of a domain and a drafter"),
        ("auto:code=", "'code=' is no pair"),
        ("auto:code=suffix,", "'' is no pair"),
        ("auto:code=suffix,code=none", "the domain 'code' is named twice"),
        ("auto:code=datastore", "cannot read the drafter 'auto:code=datastore': 'datastore' needs"),
        ("suffix+auto:code=suffix", "'auto:' must stand at the very beginning"),
        ("suffix,none", "a list of drafters is only taken behind 'auto:'\n  hint: write a.b"),
    ],
)
def test_what_is_no_name_is_refused_with_the_reason(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(spec)
    with pytest.raises(ConfigError, match=message):
        make_drafter(spec)


def test_a_name_makes_its_drafter() -> None:
    assert type(make_drafter("suffix")) is SuffixDrafter
    assert type(make_drafter(" none ")) is NoDrafter
    assert type(make_drafter("selector")) is SelectorDrafter
    merged = make_drafter("prompt_lookup + suffix")
    assert type(merged) is CompositeDrafter
    assert merged.name == "prompt_lookup+suffix"
    chosen = make_drafter("auto:code=suffix,text=prompt_lookup")
    assert isinstance(chosen, SelectorDrafter)
    assert set(chosen.arms) == {"suffix", "prompt_lookup"}


def test_kinds_of_text_may_share_a_drafter() -> None:
    chosen = make_drafter("auto:code=suffix,math=suffix,text=suffix+prompt_lookup")
    assert isinstance(chosen, SelectorDrafter)
    assert set(chosen.arms) == {"suffix", "suffix+prompt_lookup"}


def test_a_named_model_is_found_at_once_and_loaded_later(tmp_path: Path) -> None:
    model(2).model.save_pretrained(tmp_path)
    TOKENIZER.backend.save_pretrained(tmp_path)
    made = make_drafter(f"suffix>draft:{tmp_path}")

    assert isinstance(made, DraftModelDrafter)
    assert made.levels == ()
    assert made.name == f"suffix>draft:{tmp_path}"
    assert isinstance(made.drafter, SuffixDrafter)


def test_a_model_that_is_not_there_is_refused_at_once() -> None:
    with pytest.raises(ModelError, match="no model at './missing'"):
        make_drafter("suffix>draft:./missing")


def test_reading_loads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_SINGLE", {})
    assert parse("suffix>draft:./missing") == Cascade((SUFFIX, Single("draft", "./missing")))


def test_every_kind_can_be_made_and_is_described() -> None:
    lines = dict(describe())

    assert set(DRAFTERS) < set(KINDS)
    assert {*DRAFTERS, *catalog._SINGLE, "auto"} == set(KINDS)
    assert {line.partition(":")[0] for line in lines} >= set(KINDS)
    assert lines["draft:MODEL"] == KINDS["draft"].summary
    assert COMBINATIONS.items() <= lines.items()
    assert all(summary and len(summary) < 80 for summary in lines.values())
