"""The HTTP clients, rewards for trainers, and the command line. Needs neither torch nor the server's packages."""

from __future__ import annotations

from client.aio import AsyncClient
from client.errors import BadKey, ClientError, NoAnswer, RequestRefused, ServiceUnreachable
from client.http import Client, Event
from client.rewards import KernelRewards, RewardShape

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
