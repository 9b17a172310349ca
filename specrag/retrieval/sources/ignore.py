"""Rules that hide files, as in Git. Depends on the bounds and source types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pathspec import GitIgnoreSpec

from specrag.errors import ConfigError
from specrag.retrieval.sources.bounds import MAX_IGNORE_FILE_BYTES, readable_size
from specrag.retrieval.sources.source import LoadFailure

IGNORE_FILES = (".gitignore", ".specragignore")
"""Read in each folder; the later ones prevail."""
DEFAULT_IGNORED = (
    "__MACOSX/",
    "__pycache__/",
    "*.egg-info/",
    "bower_components/",
    "node_modules/",
    "site-packages/",
)
"""Hidden unless an ignore file says otherwise, such as ``!node_modules/``."""


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The rules in effect in a folder; those of deeper folders prevail.

    Attributes:
        levels: Folder (relative to the root, ending in a slash unless it is the root) and rules.
    """

    levels: tuple[tuple[str, GitIgnoreSpec], ...] = ()

    @classmethod
    def of(cls, lines: Sequence[str]) -> Self:
        """Returns the rules of a root.

        Args:
            lines: Further rules of the user, which prevail over the defaults.

        Raises:
            ConfigError: A line is no rule.
        """
        spec, bad = _parsed([*DEFAULT_IGNORED, *lines])
        if bad:
            raise ConfigError(
                f"{bad[0]!r} is no ignore rule", hint="write it as in a .gitignore file"
            )
        return cls((("", spec),))

    def within(self, folder: Path, name: str) -> tuple[IgnoreRules, list[LoadFailure]]:
        """Returns the rules in a folder and what is wrong with its ignore files.

        Args:
            folder: Where it lies.
            name: Its name relative to the root, empty for the root itself.
        """
        lines: list[str] = []
        failures: list[LoadFailure] = []
        for path in (folder / file for file in IGNORE_FILES):
            if not path.is_file():
                continue
            try:
                lines.extend(_lines(path))
            except (OSError, ValueError) as error:
                failures.append(LoadFailure(path, _reason(error)))
        if not lines:
            return self, failures
        spec, bad = _parsed(lines)
        failures.extend(
            LoadFailure(folder, f"has the ignore rule {line!r}, which is none") for line in bad
        )
        return IgnoreRules((*self.levels, (f"{name}/" if name else "", spec))), failures

    def hide(self, name: str, *, is_folder: bool) -> bool:
        """Tells whether a file or folder is hidden.

        Args:
            name: Relative to the root.
            is_folder: Whether it is a folder.
        """
        for prefix, spec in reversed(self.levels):
            local = name.removeprefix(prefix) + ("/" if is_folder else "")
            verdict = spec.check_file(local).include
            if verdict is not None:
                return verdict
        return False


def _lines(path: Path) -> list[str]:
    with path.open("rb") as file:
        data = file.read(MAX_IGNORE_FILE_BYTES + 1)
    if len(data) > MAX_IGNORE_FILE_BYTES:
        raise ValueError(f"is larger than {readable_size(MAX_IGNORE_FILE_BYTES)}; not applied")
    return data.decode("utf-8-sig", errors="surrogateescape").splitlines()


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _parsed(lines: Iterable[str]) -> tuple[GitIgnoreSpec, list[str]]:
    good: list[str] = []
    bad: list[str] = []
    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError:
            bad.append(line)
        else:
            good.append(line)
    return GitIgnoreSpec.from_lines(good), bad
