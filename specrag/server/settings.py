"""What a server is told when it starts: flags before environment before a file, in one place."""

from __future__ import annotations

import ipaddress
import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from specrag.decoding.engine_limits import EngineLimits
from specrag.errors import ConfigError, suggest

ENV_PREFIX = "SPECRAG_SERVER_"


class ServerSettings(BaseModel):
    """What to serve, where, to whom, and how much of it.

    Attributes:
        pipeline: Name or TOML file of the pipeline.
        docs: A folder or file of documents to ask instead of the pipeline's index.
        host: Address to listen on.
        port: Port to listen on; 0 takes any free one.
        api_keys: Whoever sends one of them may do everything; without keys everybody may.
        read_keys: Whoever sends one of them may ask, and change nothing.
        open_to_all: Whether an address that other machines reach may be served without keys.
        max_batch: Questions that are decoded together.
        max_waiting: Questions that wait for a place.
        timeout_s: Most seconds of an answer, waiting included; None for no end.
        max_body_kb: Largest body of a request, in KiB.
        cors_origins: Origins whose pages may ask from a browser; ``*`` for all.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    pipeline: str = "qa"
    docs: str | None = None
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    api_keys: tuple[SecretStr, ...] = ()
    read_keys: tuple[SecretStr, ...] = ()
    open_to_all: bool = False
    max_batch: int = Field(default=EngineLimits().max_batch, ge=1)
    max_waiting: int = Field(default=EngineLimits().max_waiting, ge=1)
    timeout_s: float | None = Field(default=None, gt=0)
    max_body_kb: int = Field(default=4096, ge=1)
    cors_origins: tuple[str, ...] = ()

    @property
    def has_keys(self) -> bool:
        """Whether a key is needed."""
        return bool(self.api_keys or self.read_keys)

    @property
    def limits(self) -> EngineLimits:
        """How much the engine of the pipeline shall take on."""
        return EngineLimits(self.max_batch, self.max_waiting)

    def check_exposure(self) -> None:
        """Makes sure that nobody serves the network without a key by accident.

        Raises:
            ConfigError: Others reach the address, and there is neither a key nor the word to do
                without one.
        """
        if self.has_keys or self.open_to_all or _is_loopback(self.host):
            return
        raise ConfigError(
            f"other machines reach {self.host}, and the server has no key",
            hint=f"set {ENV_PREFIX}API_KEYS to one or more keys, or allow everybody with "
            "--open-to-all",
        )


def read_settings(path: Path | None = None, **flags: Any) -> ServerSettings:
    """Returns the settings of a server.

    Args:
        path: A TOML file with some of them; None for no file.
        **flags: What was typed; None stands for what was not.

    Raises:
        ConfigError: A setting is unknown or cannot be used; the message says where it stands.
    """
    given: dict[str, tuple[Any, str]] = {}
    if path is not None:
        given.update({key: (value, str(path)) for key, value in _file(path).items()})
    for key, value in os.environ.items():
        if key.startswith(ENV_PREFIX):
            name = key.removeprefix(ENV_PREFIX).lower()
            given[name] = (_listed(name, value), key)
    given.update({k: (value, f"--{_dashed(k)}") for k, value in flags.items() if value is not None})
    known = ServerSettings.model_fields
    for name, (_, where) in given.items():
        if name not in known:
            raise ConfigError(f"unknown setting {name!r} in {where}; {suggest(name, known)}")
    try:
        return ServerSettings(**{name: value for name, (value, _) in given.items()})
    except ValidationError as error:
        found = error.errors()[0]
        name = str(found["loc"][0])
        raise ConfigError(f"{given[name][1]}: {name}: {found['msg']}") from error


def _file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot read the settings {str(path)!r}: {error}", hint="give a TOML file"
        ) from error


def _listed(name: str, value: str) -> Any:
    """An environment has no lists: commas stand between keys and origins."""
    if name in ("api_keys", "read_keys", "cors_origins"):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
