"""The HTTP clients, rewards for trainers, and the command line. Needs neither torch nor the server's packages."""

from __future__ import annotations

import sys

# ``python -m kerneljudge`` has put the working folder first, where a candidate's ``json.py`` may lie: away with it,
# before anything is imported, unless that is where this package was found.
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
