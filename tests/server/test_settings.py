"""Flags come before the environment, and that before a file; an error names its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from specrag.errors import ConfigError
from specrag.server.settings import ServerSettings, read_settings


def test_what_is_typed_counts_most(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text('port = 1\nhost = "10.0.0.1"\npipeline = "a"\ncors_origins = ["https://a.b"]\n')
    monkeypatch.setenv("SPECRAG_SERVER_PORT", "2")
    monkeypatch.setenv("SPECRAG_SERVER_HOST", "10.0.0.2")
    monkeypatch.setenv("SPECRAG_SERVER_API_KEYS", "one, two,")
    found = read_settings(path, port=3, pipeline=None)
    assert (found.port, found.host, found.pipeline) == (3, "10.0.0.2", "a")
    assert [key.get_secret_value() for key in found.api_keys] == ["one", "two"]
    assert found.cors_origins == ("https://a.b",)
    assert "two" not in repr(found)
    assert read_settings() != ServerSettings()
    monkeypatch.delenv("SPECRAG_SERVER_PORT")
    monkeypatch.delenv("SPECRAG_SERVER_HOST")
    monkeypatch.delenv("SPECRAG_SERVER_API_KEYS")
    assert read_settings() == ServerSettings()


def test_what_is_wrong_is_named_with_its_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "server.toml"
    path.write_text("prot = 1\n")
    with pytest.raises(
        ConfigError, match=r"unknown setting 'prot' in .*server\.toml; did you mean 'port'"
    ):
        read_settings(path)
    path.write_text("port = 'x'\n")
    with pytest.raises(ConfigError, match=r"server\.toml: port: .*integer"):
        read_settings(path)
    path.write_text("port = \n")
    with pytest.raises(ConfigError, match="cannot read the settings"):
        read_settings(path)
    with pytest.raises(ConfigError, match="cannot read the settings"):
        read_settings(tmp_path / "none.toml")
    monkeypatch.setenv("SPECRAG_SERVER_TIMEOUT_S", "0")
    with pytest.raises(ConfigError, match="SPECRAG_SERVER_TIMEOUT_S: timeout_s: .*greater than 0"):
        read_settings()
    with pytest.raises(ConfigError, match="--timeout-s: timeout_s"):
        read_settings(timeout_s=-1.0)
    monkeypatch.setenv("SPECRAG_SERVER_TIMEOUTS", "1")
    with pytest.raises(ConfigError, match="unknown setting 'timeouts' in SPECRAG_SERVER_TIMEOUTS"):
        read_settings()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_this_machine_needs_no_key(host: str) -> None:
    ServerSettings(host=host).check_exposure()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "example.org"])
def test_others_need_a_key_or_leave(host: str) -> None:
    with pytest.raises(ConfigError, match="the server has no key") as caught:
        ServerSettings(host=host).check_exposure()
    assert "SPECRAG_SERVER_API_KEYS" in (caught.value.hint or "")
    assert "--open-to-all" in (caught.value.hint or "")
    ServerSettings(host=host, open_to_all=True).check_exposure()
    ServerSettings(host=host, read_keys=("k",)).check_exposure()  # type: ignore[arg-type]
