"""The rules of the source tree, read from its syntax; each rule is also shown to bite."""

from __future__ import annotations

import ast
import importlib
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "specrag"
MAX_MODULE_LINES, MAX_FUNCTION_LINES = 400, 60
HEAVY = ("torch", "faiss", "fastapi", "langchain_core", "transformers", "sentence_transformers")

_BASE = {"errors", "extras", "registry", "home", "loading", "locking"}
_MODELLING = _BASE | {"models", "decoding"}
_UNDER_RAG = _MODELLING | {"retrieval", "drafters", "gate"}
# What each part of the package may import, beside itself.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "extras": {"errors"},
    "registry": {"errors"},
    "home": {"errors"},
    "loading": set(),
    "locking": {"errors"},
    "models": _BASE,
    "retrieval": _BASE,
    "decoding": _BASE | {"models"},
    "drafters": _MODELLING,
    "gate": _BASE | {"decoding", "retrieval"},
    "training": _UNDER_RAG,
    "rag": _UNDER_RAG,
    "langchain": _UNDER_RAG | {"rag"},
    "server": _UNDER_RAG | {"rag"},
    "evaluation": _UNDER_RAG | {"rag"},
    "cli": _UNDER_RAG | {"rag", "training", "langchain", "server", "evaluation"},
    "__main__": {"cli"},
    "": _UNDER_RAG | {"rag"},  # the package root, which offers the public names
}

# A contract may reach its implementations, which lie above it, by name and only when asked for:
# `SpeculativeGenerator.from_pretrained(target, drafter="suffix")` is a public promise.
NAMED_ABOVE = {("specrag.decoding.drafter", "specrag.drafters.catalog:make_drafter")}

Tree = Mapping[str, str]  # module name -> its source
Check = Callable[[Tree], list[str]]


@dataclass(frozen=True)
class Import:
    """One imported module of the package."""

    importer: str
    imported: str
    line: int
    in_function: bool

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


@cache
def real_tree() -> Tree:
    modules = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        modules[name] = path.read_text(encoding="utf-8")
    return modules


def _is_package(name: str, tree: Tree) -> bool:
    return any(module.startswith(f"{name}.") for module in tree)


def _part(module: str) -> str:
    return (module.split(".") + [""])[1]


def _nodes(source: str) -> Iterator[tuple[ast.AST, bool]]:
    """Yields each node and whether it is inside a function."""
    pending: list[tuple[ast.AST, bool]] = [(ast.parse(source), False)]
    while pending:
        node, inside = pending.pop()
        yield node, inside
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        pending.extend((child, inside) for child in ast.iter_child_nodes(node))


def _imports(tree: Tree) -> Iterator[Import]:
    for importer, source in tree.items():
        for node, inside in _nodes(source):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                module = node.module or ""
                below = [f"{module}.{alias.name}" for alias in node.names]
                names = [name if name in tree else module for name in below]
            else:
                continue
            for name in dict.fromkeys(names):
                if name.split(".")[0] == "specrag":
                    yield Import(importer, name, node.lineno, inside)


def _targets(tree: Tree) -> Iterator[tuple[str, str]]:
    """Yields the module and each registry target ("module:attribute") written in it."""
    for module, source in tree.items():
        for node, _ in _nodes(source):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and re.fullmatch(r"specrag(\.\w+)*:\w+", text):
                yield module, text


def check_layers(tree: Tree) -> list[str]:
    edges = [(item.importer, item.imported, str(item)) for item in _imports(tree)]
    for module, target in _targets(tree):
        if (module, target) in NAMED_ABOVE:
            continue
        edges.append((module, target.partition(":")[0], f"{module} names {target}"))
    found = [f"{module}: no layer is set" for module in tree if _part(module) not in ALLOWED]
    for importer, imported, message in edges:
        own, other = _part(importer), _part(imported)
        if own != other and other not in ALLOWED.get(own, set()):
            found.append(message)
    return found


def check_defining_module(tree: Tree) -> list[str]:
    found = [str(item) for item in _imports(tree) if _is_package(item.imported, tree)]
    for module, source in tree.items():
        for node, _ in _nodes(source):
            if isinstance(node, ast.ImportFrom) and node.level:
                found.append(f"{module}:{node.lineno} imports relatively")
    return found


def check_cycles(tree: Tree) -> list[str]:
    """Finds import cycles, those through function-level imports included."""
    graph: dict[str, set[str]] = {module: set() for module in tree}
    for item in _imports(tree):
        if item.imported in graph:
            graph[item.importer].add(item.imported)
    # What can be peeled off, importing nothing that is left, is on no cycle.
    while free := [module for module, imported in graph.items() if not imported & graph.keys()]:
        for module in free:
            del graph[module]
    # The rest is on a cycle, or leads to one; the latter is peeled off from the other side.
    while graph:
        used = set().union(*graph.values())
        if not (unused := graph.keys() - used):
            break
        for module in unused:
            del graph[module]
    return [f"{module} is on an import cycle" for module in sorted(graph)]


def check_function_imports(tree: Tree) -> list[str]:
    return [
        f"{item} inside a function"
        for item in _imports(tree)
        if item.in_function and _part(item.importer) not in ("cli", "")
    ]


def check_sizes(tree: Tree) -> list[str]:
    found = []
    for module, source in tree.items():
        if (lines := len(source.splitlines())) > MAX_MODULE_LINES:
            found.append(f"{module} has {lines} lines")
        for node, _ in _nodes(source):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    found.append(f"{module}.{node.name} has {lines} lines")
    return found


def check_prints(tree: Tree) -> list[str]:
    return [
        f"{module}:{node.lineno} prints"
        for module, source in tree.items()
        if _part(module) != "cli"
        for node, _ in _nodes(source)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]


def check_targets(tree: Tree) -> list[str]:
    found = []
    for module, target in _targets(tree):
        name, _, attribute = target.partition(":")
        try:
            getattr(importlib.import_module(name), attribute)
        except (ImportError, AttributeError) as error:
            found.append(f"{module} names {target}: {error}")
    return found


CHECKS: list[Check] = [
    check_layers,
    check_defining_module,
    check_cycles,
    check_function_imports,
    check_sizes,
    check_prints,
    check_targets,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_tree_keeps_the_rule(check: Check) -> None:
    assert check(real_tree()) == []


def test_the_tree_is_found() -> None:
    assert {"specrag", "specrag.errors", "specrag.models", "specrag.cli.main"} <= set(real_tree())


_LONG_FUNCTION = "def f():\n" + "    x = 1\n" * 60
VIOLATIONS: list[tuple[Check, dict[str, str]]] = [
    (check_layers, {"specrag.models.a": "from specrag.decoding.b import c"}),
    (check_layers, {"specrag.gate.a": "def f():\n    import specrag.models.b"}),
    (check_layers, {"specrag.drafters.a": "from specrag.gate.b import c"}),
    (check_layers, {"specrag.server.a": "from specrag.evaluation.b import c"}),
    (check_layers, {"specrag.rag.a": "from specrag.training.b import c"}),
    (check_layers, {"specrag.home": "from specrag.registry import Registry"}),
    (check_layers, {"specrag.decoding.a": "X = {'b': 'specrag.drafters.b:C'}"}),
    (check_layers, {"specrag.utils": ""}),
    (check_defining_module, {"specrag.models.a": "from . import b"}),
    (check_defining_module, {"specrag.models.a": "", "specrag.x": "from specrag.models import C"}),
    (check_defining_module, {"specrag.models.a": "", "specrag.x": "import specrag"}),
    (check_defining_module, {"specrag.models.a": "from specrag import __version__"}),
    (
        check_cycles,
        {
            "specrag.a": "from specrag.b import x",
            "specrag.b": "from specrag.c import x",
            "specrag.c": "def f():\n    from specrag.a import x",
        },
    ),
    (check_function_imports, {"specrag.rag.a": "def f():\n    from specrag.gate.b import c"}),
    (check_sizes, {"specrag.a": "x = 1\n" * 401}),
    (check_sizes, {"specrag.a": _LONG_FUNCTION}),
    (check_sizes, {"specrag.a": f"async {_LONG_FUNCTION}"}),
    (check_prints, {"specrag.rag.a": "def f():\n    print('x')"}),
    (check_targets, {"specrag.a": "X = 'specrag.errors:NoSuchError'"}),
    (check_targets, {"specrag.a": "X = 'specrag.no_such_module:x'"}),
]


@pytest.mark.parametrize(("check", "tree"), VIOLATIONS)
def test_a_planted_violation_is_found(check: Check, tree: dict[str, str]) -> None:
    assert len(check(tree)) >= 1


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_what_is_allowed_is_not_reported(check: Check) -> None:
    allowed = {
        "specrag": "def __getattr__(name):\n    from specrag.rag.a import A\n    return A",
        "specrag.errors": "class E(Exception): ...",
        "specrag.models.a": "import os\nfrom specrag.models import b\ndef f():\n    import json",
        "specrag.models.b": "from specrag.errors import E\n" + "def f():\n" + "    x = 1\n" * 59,
        "specrag.rag.a": "from specrag.models.a import A\nX = 'specrag.errors:SpecragError'",
        "specrag.cli.a": "def f():\n    from specrag.rag.a import A\n    print(A)",
    }
    assert check(allowed) == []


def test_a_module_that_only_leads_to_a_cycle_is_not_blamed() -> None:
    tree = {
        "specrag.a": "from specrag.b import x",
        "specrag.b": "from specrag.c import x",
        "specrag.c": "from specrag.b import x\nfrom specrag.d import y",
        "specrag.d": "",
    }
    assert check_cycles(tree) == [f"specrag.{name} is on an import cycle" for name in "bc"]


def heavy_after(code: str) -> list[str]:
    """Runs code in a fresh interpreter and returns the heavy packages it imported."""
    report = f"sys.stderr.write(' '.join(set({HEAVY}) & sys.modules.keys()))"
    program = f"import sys\n{code}\n{report}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return sorted(done.stderr.split())


_HELP = """
sys.argv = ["specrag", "--help"]
from specrag.cli.main import main
try:
    main()
except SystemExit as done:
    assert not done.code
"""


@pytest.mark.parametrize(
    "code",
    [
        "import specrag",
        "import specrag.cli.main",
        _HELP,
        "\n".join(f"import {name}" for name in real_tree() if name.startswith("specrag.cli.")),
    ],
    ids=["package", "cli", "help", "commands"],
)
def test_imports_are_light(code: str) -> None:
    assert heavy_after(code) == []


def test_a_heavy_import_is_noticed() -> None:
    planted = "import types\nsys.modules['faiss'] = types.ModuleType('faiss')"
    assert heavy_after(planted) == ["faiss"]


def test_tests_reach_only_this_machine() -> None:
    with socket.socket() as sock, pytest.raises(RuntimeError, match="tests have no network"):
        sock.connect(("192.0.2.1", 80))
    with socket.socket() as sock, pytest.raises(RuntimeError, match="tests have no network"):
        sock.connect_ex(("192.0.2.1", 80))
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()
