"""The table of peers, and installing them where some fail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from specrag.errors import ConfigError
from specrag.evaluation.peers import engines
from specrag.evaluation.peers.engines import PEERS, checked, install_peers


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], list[str]]]:
    """What pip was asked for; it fails at llama.cpp."""
    calls: list[tuple[list[str], list[str]]] = []

    def install(requirements: Sequence[str], pip_args: Sequence[str] = ()) -> None:
        calls.append((list(requirements), list(pip_args)))
        if requirements[0].startswith("llama"):
            raise ConfigError("pip ended with status 1")

    monkeypatch.setattr(engines, "install", install)
    return calls


def test_names_are_checked() -> None:
    assert checked("peer:llama.cpp") == "llama.cpp"
    with pytest.raises(ConfigError, match=r"unknown peer 'lama\.cpp'; did you mean 'llama\.cpp'"):
        checked("lama.cpp")


def test_workers_are_there_and_versions_pinned() -> None:
    folder = Path(engines.__file__).parent / "workers"
    assert {peer.worker for peer in PEERS.values()} <= {path.name for path in folder.iterdir()}
    assert all("==" in package for peer in PEERS.values() for package in peer.packages)


@pytest.mark.parametrize("names", [[], ["all"], ["all", "openvino"]])
def test_one_that_fails_does_not_stop_the_others(
    names: list[str], asked: list[tuple[list[str], list[str]]]
) -> None:
    outcome = install_peers(names, ["--no-index"])
    assert list(outcome) == list(PEERS)
    failed = {name: reason for name, reason in outcome.items() if reason}
    assert set(failed) == {name for name in PEERS if name.startswith("llama")}
    assert set(failed.values()) == {
        "pip ended with status 1; it needs cmake and a C++ compiler",
    }
    packages = [requirements for requirements, _ in asked]
    assert len(packages) == len({tuple(each) for each in packages}) == 4, "each is asked for once"
    assert all(pip_args == ["--no-index"] for _, pip_args in asked)


def test_only_what_is_named_is_installed(asked: list[tuple[list[str], list[str]]]) -> None:
    assert install_peers(["transformers", "peer:economize"]) == {
        "transformers": "",
        "economize": "",
    }
    assert [requirements for requirements, _ in asked] == [["economize==0.3.2"]]


def test_an_unknown_name_installs_nothing(asked: list[tuple[list[str], list[str]]]) -> None:
    with pytest.raises(ConfigError, match="unknown peer 'economise'"):
        install_peers(["openvino", "economise"])
    assert asked == []
