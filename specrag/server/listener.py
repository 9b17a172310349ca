"""The socket of the server, and running an application on it."""

from __future__ import annotations

import copy
import errno
import socket
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.config import LOGGING_CONFIG

from specrag.errors import ConfigError

if TYPE_CHECKING:  # a port in use should be noticed before anything slow is imported
    from fastapi import FastAPI

_BACKLOG = 128


def reserve(host: str, port: int) -> socket.socket:
    """Binds a socket; connections are refused until ``listen``.

    Args:
        host: Address or name of this machine.
        port: 0 takes any free one.

    Raises:
        ConfigError: The address is in use or not of this machine.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _unusable(host, port, error) from error
    try:
        # A restarted server must not wait for the last connections of its predecessor.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise _unusable(host, port, error) from error
    return sock


def listen(sock: socket.socket) -> None:
    """Accepts connections on a reserved socket.

    Args:
        sock: From ``reserve``.

    Raises:
        ConfigError: Another server that had reserved the address, too, was quicker.
    """
    try:
        sock.listen(_BACKLOG)
    except OSError as error:
        host, port = sock.getsockname()[:2]
        raise _unusable(host, port, error) from error


def url_of(sock: socket.socket) -> str:
    """Returns the address of a reserved socket as a URL.

    Args:
        sock: From ``reserve``.
    """
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_for(app: FastAPI) -> uvicorn.Server:
    """Returns the server of an application; it logs requests and failures to standard error.

    Args:
        app: The application.
    """
    logs = copy.deepcopy(LOGGING_CONFIG)
    logs["handlers"]["access"]["stream"] = "ext://sys.stderr"  # standard output is for results
    logs["loggers"]["uvicorn"]["level"] = "WARNING"
    return uvicorn.Server(uvicorn.Config(app, log_config=logs, lifespan="on", ws="none"))


def run(app: FastAPI, sock: socket.socket) -> None:
    """Serves until SIGINT or SIGTERM; requests under way are finished first.

    Args:
        app: The application.
        sock: From ``reserve``; is closed at the end.
    """
    server_for(app).run(sockets=[sock])


def _unusable(host: str, port: int, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"port {port} of {host} is already in use",
            hint="stop the other program, or choose another port with --port",
        )
    return ConfigError(
        f"cannot listen on port {port} of {host!r}: {error.strerror or error}",
        hint="choose another address with --host, or another port with --port",
    )
