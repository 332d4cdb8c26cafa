"""The server's address; no TensorFlow, so that a port that is taken is told at once."""

import socket

from xling_tf.errors import UserError

# Connections that wait to be accepted.
BACKLOG = 2048


def bind(host: str, port: int) -> socket.socket:
    """Takes an address, at which nothing listens yet.

    Args:
        host: A name or an address.
        port: 0 for any that is free.

    Raises:
        UserError: It cannot be had.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, _, _, address = found[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise _not_free(host, port, error) from error
    return listener


def listen(listener: socket.socket) -> tuple[str, int]:
    """Begins to listen, and gives the host and the port.

    Raises:
        UserError: Another program that took the address as well was faster.
    """
    host, port = listener.getsockname()[:2]
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        raise _not_free(host, port, error) from error
    return host, port


def _not_free(host: str, port: int, error: OSError) -> UserError:
    return UserError(
        f"--host {host} and --port {port} are expected to be free to listen on, but: "
        f"{error.strerror}; give another --port, or end the program that has it"
    )
