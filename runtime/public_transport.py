"""Requests to addresses that a client names: to public ones, and to networks that the operator names.

The sender stands within the operator's network. So a name is resolved here, its address is checked, and the request
goes to that address: a second answer of the name server changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Sequence
from typing import Final, TypeAlias

import httpx

__all__ = ["NOT_PUBLIC", "PUBLIC_IPV6", "Forbidden", "Network", "PublicTransport", "may_be_reached"]

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

PUBLIC_IPV6: Final = ipaddress.IPv6Network("2000::/3")
"""The addresses that are given to hosts. All others have a special purpose, or none yet."""
# A list of our own, because Python's differs from release to release.
NOT_PUBLIC: Final[tuple[Network, ...]] = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "168.63.129.16/32",  # the machine below a guest of Azure, which answers guests alone
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/3",
            "2001::/23",  # Teredo among them
            "2001:db8::/32",
            "3fff::/20",
        ),
    )
)
"""Networks that are no public ones, though IPv4 or ``PUBLIC_IPV6`` has them."""
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""IPv6 addresses that a gateway translates to the IPv4 address in their last 32 bits."""

_MOST_TRIED: Final = 4


class Forbidden(httpx.ConnectError):
    """No address of the host may be reached."""


class PublicTransport(httpx.AsyncBaseTransport):
    """A transport that connects to public addresses, and to those in ``networks``.

    The addresses of a name are tried one after the other. They share the time for connecting.
    """

    def __init__(self, networks: Sequence[Network], inner: httpx.AsyncBaseTransport | None = None) -> None:
        self._networks = tuple(networks)
        self._inner = inner or httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send ``request``. Raises ``Forbidden``, and the errors of ``httpx``."""
        # As the URL has it. Decoded, it would be encoded again by other rules, which lead to another host.
        host = request.url.raw_host.decode("ascii")
        addresses = await self._addresses_of(host, request.url.port)
        # The certificate is still that of the name, and the header Host has been set from it already.
        request.extensions = {**request.extensions, "sni_hostname": host}
        limits = dict(request.extensions.get("timeout", {}))
        if limits.get("connect") is not None:
            request.extensions["timeout"] = {**limits, "connect": limits["connect"] / len(addresses)}
        *others, last = addresses
        for address in others:
            # Nothing has been sent where no connection is made.
            with contextlib.suppress(httpx.ConnectError, httpx.ConnectTimeout):
                return await self._send_to(address, request)
        return await self._send_to(last, request)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _send_to(self, address: str, request: httpx.Request) -> httpx.Response:
        request.url = request.url.copy_with(host=address)
        return await self._inner.handle_async_request(request)

    async def _addresses_of(self, host: str, port: int | None) -> list[str]:
        """Return the addresses of ``host`` that may be reached, at most ``_MOST_TRIED``. There is one at least."""
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # the second one for an empty or too long part of the name
            raise httpx.ConnectError("the name has no address") from error
        addresses = dict.fromkeys(str(address[0]) for *_, address in found)
        permitted = [each for each in addresses if may_be_reached(ipaddress.ip_address(each), self._networks)]
        if not permitted:
            raise Forbidden("no address of the host is public")
        return permitted[:_MOST_TRIED]


def may_be_reached(address: _Address, networks: Sequence[Network]) -> bool:
    """Whether ``address`` is public, or in one of ``networks``."""
    if any(address in network for network in networks):
        return True
    if isinstance(address, ipaddress.IPv6Address):
        embedded = address.ipv4_mapped or address.sixtofour
        if address in _TRANSLATED:
            embedded = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if embedded is not None:
            return may_be_reached(embedded, networks)
        if address not in PUBLIC_IPV6:
            return False
    return not any(address in network for network in NOT_PUBLIC)
