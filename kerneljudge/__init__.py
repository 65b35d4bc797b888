"""The HTTP clients, rewards for trainers, and the command line. They need neither torch nor the server's packages."""

from __future__ import annotations

import sys

# ``python -m kerneljudge`` puts the working folder first on the path, where a candidate's ``json.py`` may lie. Remove
# it before anything is imported, unless this package was found there.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and sys.path[0] != __path__[0].rpartition("/")[0]:
    del sys.path[0]

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
]
