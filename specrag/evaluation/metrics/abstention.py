"""Whether a response says that it has no answer. A short list of phrasings, not a judge."""

from __future__ import annotations

import re

_NOT = r"(?:\s+not|n't)"
_SPEAKER = r"\b(?:i|we)"
_SOURCE = (
    r"(?:context|passages?|documents?|text|sources?|information|article|excerpts?|snippets?"
    r"|question|search\s+results?)"
)
_HOW = r"(?:\s+(?:explicitly|specifically|directly|clearly|currently|really|actually))?"
_ENGLISH = (
    # I do not know; I cannot answer; I'm not sure; I have no information.
    rf"{_SPEAKER}\s+(?:really\s+|honestly\s+|simply\s+)?do{_NOT}{_HOW}\s+"
    r"(?:know\b|have\s+(?:enough|any|access|sufficient|the\s+(?:information|answer)))",
    rf"{_SPEAKER}\s+(?:can(?:not|\s+not|'t)|could{_NOT})\s+"
    r"(?:say\b|tell\b|answer|determine|find|be\s+(?:sure|certain)|confirm|provide)",
    rf"{_SPEAKER}(?:\s+am|'m|\s+are|'re)\s+(?:unable|not\s+able)\s+to\s+"
    r"(?:say|tell|answer|determine|find|confirm|provide)",
    rf"{_SPEAKER}(?:\s+am|'m|\s+are|'re)\s+(?:not\s+(?:sure|certain|aware)|unsure|uncertain)\b",
    rf"{_SPEAKER}\s+have\s+no\s+(?:idea|information|knowledge)\b",
    # The context does not say; it is not mentioned (in the text); no information is given.
    rf"\b{_SOURCE}\b[^.!?\n]{{0,40}}?\b(?:do|does|did){_NOT}{_HOW}\s+"
    r"(?:say|mention|state|specify|provide|contain|include|give|tell|answer|indicate|name)\b",
    rf"\b(?:is|are|was|were){_NOT}{_HOW}\s+(?:mentioned|stated|specified|provided|given|known"
    rf"|found|available|included|contained)(?:\s+(?:in|by|from)\s+(?:\w+\s+){{0,3}}{_SOURCE}\b"
    r"|\s+here\b|\s*[.!;]|\s*$)",
    r"\b(?:no|not\s+enough|insufficient)\s+"
    r"(?:(?:relevant|specific|further|such|explicit|direct)\s+)?information\b(?!\s+technology)",
    # It cannot be determined; it is not clear who.
    r"\b(?:can(?:not|\s+not|'t)|could\s+not|couldn't)\s+be\s+(?:determined|answered|inferred)\b",
    r"\b(?:impossible|not\s+possible)\s+to\s+(?:say|tell|answer|determine|know)\b",
    r"\bit(?:\s+is|'s)\s+(?:not\s+(?:clear|known)|unclear|unknown)\s+"
    r"(?:who|what|when|where|which|how|why|whether|if|from)\b",
    # Nothing but the word.
    r"\A\W*(?:unknown|unanswerable|no\s+answer|not\s+sure|n/a)\W*\Z",
)
_START = r"(?:\A|[\s，。！？；：、,])"  # of a clause, so that what others do not know is a fact
_CHINESE = (
    rf"(?:{_START}|我们?)(?:并|也|真的)?不(?:知道|清楚|确定)",
    rf"(?:{_START}|我们?|(?:根据|从)[^，。！？]{{0,20}})无法[^，。！？]{{0,12}}?"
    r"(?:回答|确定|得知|判断|找到|提供)",
    r"(?:文中|文章|上下文|段落|资料|材料|文档|原文|文本|信息|内容)[^，。！？]{0,8}"
    r"(?:没有|未)(?:明确|具体|直接)?(?:提到|提及|说明|指出|给出|提供|包含)",
    r"(?:没有|缺乏|缺少)(?:足够的?|相关的?|任何)?(?:信息|资料)",
)
_ABSTAINING = re.compile("|".join((*_ENGLISH, *_CHINESE)), re.IGNORECASE)


def abstains(response: str) -> bool:
    """Tells whether a response says that it has no answer, in English or simplified Chinese.

    Counts what the speaker does not know or cannot answer, and what the context does not say or
    give; not what others do not know, nor what a thing does not have. Phrasings outside the list
    are missed.

    Args:
        response: What was said; a blank one says nothing and therefore abstains.
    """
    return not response.strip() or _ABSTAINING.search(response.replace("’", "'")) is not None
