"""Globs that choose files by name. Depends on nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_GLOB_PARTS = re.compile(r"\*\*/|\*\*|\*|\?|[^*?]+")
_GLOB_TO_REGEX = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Returns a function that tells whether a name matches any pattern.

    Args:
        patterns: Globs over POSIX paths relative to the root; ``**`` spans folders. A pattern
            without a slash is matched against the file name, in any folder. Capital and small
            letters are not told apart, so that ``*.pdf`` finds ``REPORT.PDF``.
    """
    spanning = (pattern if "/" in pattern else f"**/{pattern}" for pattern in patterns)
    joined = re.compile(
        "|".join(_glob_to_regex(pattern) for pattern in spanning), re.DOTALL | re.IGNORECASE
    )
    return lambda name: bool(patterns) and joined.fullmatch(name) is not None


def _glob_to_regex(pattern: str) -> str:
    parts = _GLOB_PARTS.findall(pattern)
    return "".join(_GLOB_TO_REGEX.get(part) or re.escape(part) for part in parts)
