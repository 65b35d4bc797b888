"""The HTTP clients, rewards for trainers, and the command line. They need neither torch nor the server's packages.

The names below are imported when they are first used. So the judge's processes, which need ``kerneljudge.terms`` alone,
load no HTTP client.
"""

from __future__ import annotations

import sys

# ``python -m kerneljudge`` puts the working folder first on the path, where a candidate's ``json.py`` may lie. Remove
# it before anything is imported, unless this package was found there.
if (
    sys.argv[:1] == ["-m"]
    and not getattr(sys.flags, "safe_path", False)
    and sys.path[0] != __path__[0].rpartition("/")[0]
):
    del sys.path[0]

from importlib import import_module
from typing import TYPE_CHECKING

from kerneljudge._version import __version__

if TYPE_CHECKING:
    from kerneljudge.async_client import AsyncClient
    from kerneljudge.client import Client, Event
    from kerneljudge.errors import BadKey, ClientError, NoAnswer, RequestRefused, ServiceUnreachable
    from kerneljudge.rewards import KernelRewards, RewardShape

__all__ = [
    "AsyncClient",
    "BadKey",
    "Client",
    "ClientError",
    "Event",
    "KernelRewards",
    "NoAnswer",
    "RequestRefused",
    "RewardShape",
    "ServiceUnreachable",
    "__version__",
]

_MODULES = {
    "AsyncClient": "async_client",
    **dict.fromkeys(("Client", "Event"), "client"),
    **dict.fromkeys(("BadKey", "ClientError", "NoAnswer", "RequestRefused", "ServiceUnreachable"), "errors"),
    **dict.fromkeys(("KernelRewards", "RewardShape"), "rewards"),
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
