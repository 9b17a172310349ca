"""Where specrag keeps what it fetched or built, and where it finds packaged definitions."""

from __future__ import annotations

import os
from pathlib import Path

from specrag.errors import ConfigError, suggest

_PACKAGE = Path(__file__).resolve().parent


def home() -> Path:
    """Returns the folder of fetched models and built indexes.

    ``SPECRAG_HOME`` when set, else ``~/.cache/specrag``. The folder is not created here.
    """
    configured = os.environ.get("SPECRAG_HOME")
    return Path(configured).expanduser() if configured else Path.home() / ".cache" / "specrag"


def definition_roots(kind: str) -> list[Path]:
    """Returns the folders searched for definitions, first match wins.

    The working directory comes first, then the installed package, then (in a source checkout,
    where the definitions have not been copied into the package) the folder beside the package.

    Args:
        kind: ``indexes`` or ``pipelines``.
    """
    roots = [Path.cwd() / kind, _PACKAGE / "_definitions" / kind, _PACKAGE.parent / kind]
    return list(dict.fromkeys(root for root in roots if root.is_dir()))


def find_definition(kind: str, name: str, filename: str) -> Path:
    """Finds a definition file by name.

    Args:
        kind: ``indexes`` or ``pipelines``.
        name: The name a user types, such as ``handbook``.
        filename: Path of the file below the root, such as ``handbook/recipe.toml``.

    Returns:
        The path of an existing file.

    Raises:
        ConfigError: No root holds it; the message lists the names that exist.
    """
    for root in definition_roots(kind):
        if (root / filename).is_file():
            return root / filename
    known = known_definitions(kind)
    raise ConfigError(f"no definition named {name!r} in {kind}/; {suggest(name, known)}")


def known_definitions(kind: str) -> list[str]:
    """Returns the names of all definitions of a kind, sorted."""
    pattern = "*/recipe.toml" if kind == "indexes" else "*.toml"
    found = (path for root in definition_roots(kind) for path in root.glob(pattern))
    return sorted({path.parent.name if kind == "indexes" else path.stem for path in found})
