"""Rules that come before any signal: what no document could answer better."""

from __future__ import annotations

import re

from specrag.gate.policy import FixedGate

_GREETING = re.compile(
    r"(hi|hiya|hello|hey|howdy|greetings|good (morning|afternoon|evening|night|day)|bye|goodbye"
    r"|see you|thanks|thank you|thank you very much|thanks a lot|ok|okay|cheers"
    r"|你好|您好|谢谢|再见)"
    r"( there| all| everyone| again| so much)?"
)
_PUNCTUATION = re.compile(r"[\s,.!?;:。！？，]+")


def rule_for(question: str) -> FixedGate | None:
    """Returns the gate that a rule fixes for a question, None when no rule applies.

    Only plain greetings and thanks, word for word; anything that asks something is left to the
    signals.

    Args:
        question: What the user wrote.
    """
    words = _PUNCTUATION.sub(" ", question.lower()).strip()
    if _GREETING.fullmatch(words):
        return FixedGate(False, "A greeting needs no documents: nothing was looked up.")
    return None
