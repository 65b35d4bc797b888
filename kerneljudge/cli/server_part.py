"""The commands that need ``kerneljudge-server``, which a client does without."""

from __future__ import annotations

from importlib.util import find_spec

from kerneljudge.cli.output import BadUsage

__all__ = ["need_server"]


def need_server(what: str, instead: str = "") -> None:
    """Raise ``BadUsage`` where the part of the server is not installed.

    ``what`` is the thing that was asked for, and ``instead`` a way to have it from a service.
    """
    if find_spec("kerneljudge_server") is None:
        advice = f"; {instead}" if instead else ""
        raise BadUsage(
            f"{what} needs kerneljudge-server, which is not installed: pip install kerneljudge-server{advice}"
        )
