"""The file beside a corpus that says whose text it is, so that no other run goes on with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from specrag.errors import InputError

_FORMAT = 1


def meta_path(out: Path) -> Path:
    """Returns where the settings of a corpus are kept.

    Args:
        out: File of the corpus.
    """
    return out.with_name(f"{out.name}.meta.json")


def check_meta(out: Path, meta: Mapping[str, Any]) -> None:
    """Makes sure that a corpus is new, or was begun in the same way; writes down how it begins.

    Args:
        out: File of the corpus.
        meta: All that decides what it holds, as plain data.

    Raises:
        InputError: It was begun in another way, or by something else, or cannot be written.
    """
    wanted = {"format": _FORMAT, **meta}
    path = meta_path(out)
    hint = "give the same options to go on with it, or another --out"
    try:
        if path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
            changed = [name for name in wanted if found.get(name) != wanted[name]]
            if changed:
                raise InputError(
                    f"{str(out)!r} was begun with {_shown(found, changed)}, "
                    f"now it is {_shown(wanted, changed)}",
                    hint=hint,
                )
        elif out.exists():
            raise InputError(f"{str(out)!r} exists, and is no corpus begun here", hint=hint)
        else:
            partial = path.with_name(f"{path.name}.part")
            partial.write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")
            partial.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {str(path)!r}: {error.strerror}") from error
    except (ValueError, AttributeError) as error:
        raise InputError(f"{str(path)!r} is damaged: {error}", hint=hint) from error


def digest_of(texts: Iterable[str]) -> str:
    """Returns a short text that changes with any of the texts.

    Args:
        texts: In an order that counts.
    """
    digest = hashlib.sha256()
    for text in texts:
        digest.update(json.dumps(text).encode() + b"\n")
    return digest.hexdigest()[:16]


def _shown(meta: Mapping[str, Any], names: list[str]) -> str:
    return ", ".join(f"{name} {json.dumps(meta.get(name))}" for name in names)
