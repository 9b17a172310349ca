"""The virtual environment of the peers: made once, beside the environment of this package."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from specrag.errors import ConfigError
from specrag.home import home

# Never fetched twice: the peers use those of this package's own environment.
_SHARED = ("torch", "transformers", "numpy", "tokenizers", "safetensors", "huggingface-hub")


def folder() -> Path:
    """Returns where the environment lies or will lie."""
    return home() / "peers" / "venv"


def python() -> Path:
    """Returns its interpreter, which may not be there yet."""
    return folder() / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def installed(package: str) -> str | None:
    """Returns the version of a package in the environment, None when it is not there.

    Args:
        package: Its name on the package index.
    """
    found = importlib.metadata.distributions(name=package, path=[str(_site_packages())])
    return next((each.version for each in found), None)


def install(requirements: Sequence[str], pip_args: Sequence[str] = ()) -> None:
    """Installs packages into the environment, which is made when it is not there.

    What this package's own environment holds is seen from there, so that torch is not fetched
    again; its versions are kept.

    Args:
        requirements: Such as ``economize==0.3.2``.
        pip_args: Further options of ``pip install``.

    Raises:
        ConfigError: pip failed; the message holds the end of what it said.
    """
    if not python().exists():
        try:
            _run([sys.executable, "-m", "venv", str(folder())], "the environment cannot be made")
        except BaseException:
            shutil.rmtree(folder(), ignore_errors=True)  # half of one would be taken for a whole
            raise
    shared = _site_packages() / "specrag_shared.pth"
    shared.write_text(f"{sysconfig.get_paths()['purelib']}\n", encoding="utf-8")
    kept = folder() / "constraints.txt"
    kept.write_text("".join(f"{line}\n" for line in _constraints()), encoding="utf-8")
    command = [str(python()), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    command += ["-c", str(kept), *pip_args, *requirements]
    _run(command, f"cannot install {', '.join(requirements)}")


def _constraints() -> list[str]:
    found = []
    for name in _SHARED:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        found.append(f"{name}=={version.partition('+')[0]}")
    return found


def _site_packages() -> Path:
    place = {"base": str(folder()), "platbase": str(folder())}
    return Path(sysconfig.get_path("purelib", "venv", place))


def _run(command: Sequence[str], failure: str) -> None:
    # Building from source may take many minutes; what pip says shows that it goes on.
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    if done.returncode:
        raise ConfigError(
            f"{failure}: pip ended with status {done.returncode}",
            hint="its own words stand above; packages built from source need cmake and a compiler",
        )
