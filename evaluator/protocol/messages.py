"""Messages between our own processes: length-prefixed JSON over a Unix stream socket, with descriptors.

Only for peers that we trust, and for messages *to* a runner. A runner's answers are never read with this module: see
``evaluator.protocol.control_page`` for the fixed-size frames it is limited to.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["ConnectionClosed", "MessageTooLarge", "receive", "send"]

_HEADER: Final = struct.Struct("!I")
_MAX_DESCRIPTORS: Final = 16
MAX_MESSAGE_BYTES: Final = 256 * 2**20


class ConnectionClosed(Exception):
    """The peer closed its end, or died."""


class MessageTooLarge(Exception):
    """The peer announced a message above the limit; nothing of it was read."""


def send(sock: socket.socket, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send one message; ``descriptors`` arrive duplicated. Raises ``ConnectionClosed``."""
    body = json.dumps(message).encode()
    try:
        if descriptors:
            sent = socket.send_fds(sock, [_HEADER.pack(len(body))], list(descriptors))
            if sent < _HEADER.size:
                sock.sendall(_HEADER.pack(len(body))[sent:])
            sock.sendall(body)
        else:
            sock.sendall(_HEADER.pack(len(body)) + body)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise ConnectionClosed from error


def receive(sock: socket.socket, max_bytes: int = MAX_MESSAGE_BYTES) -> tuple[dict[str, Any], list[int]]:
    """Return the next message and its descriptors. Blocks, or raises ``TimeoutError`` by the socket's timeout.

    Raises ``ConnectionClosed`` at the end of the stream and ``MessageTooLarge`` above ``max_bytes``.
    """
    data, descriptors = _receive_start(sock)
    try:
        (length,) = _HEADER.unpack(data + _receive_exactly(sock, _HEADER.size - len(data)))
        if length > max_bytes:
            raise MessageTooLarge(f"{length} bytes announced, {max_bytes} allowed")
        message = json.loads(_receive_exactly(sock, length))
        if not isinstance(message, dict):
            raise TypeError("a message is a JSON object")
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return message, descriptors


def _receive_start(sock: socket.socket) -> tuple[bytes, list[int]]:
    try:
        data, descriptors, _flags, _address = socket.recv_fds(
            sock, _HEADER.size, _MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
        )
    except ConnectionResetError as error:
        raise ConnectionClosed from error
    if not data:
        raise ConnectionClosed
    return data, descriptors


def _receive_exactly(sock: socket.socket, length: int) -> bytes:
    buffer = bytearray(length)
    view = memoryview(buffer)
    while view:
        try:
            count = sock.recv_into(view)
        except ConnectionResetError as error:
            raise ConnectionClosed from error
        if count == 0:
            raise ConnectionClosed
        view = view[count:]
    return bytes(buffer)
