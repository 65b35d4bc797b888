"""Requests reach the addresses that they may, by whatever name."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from typing import Any

import httpx
import pytest

from runtime.public_transport import Forbidden, PublicTransport, may_be_reached
from runtime.settings import Settings

_INNER = [
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.169.254",
    "224.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fec0::1",
    "fd00::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::10.0.0.1",
    "2002:7f00:1::",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "64:ff9b:1::10.0.0.1",
    "::127.0.0.1",
    "::ffff:0:127.0.0.1",
    "192.0.0.9",
    "192.0.2.1",
    "168.63.129.16",
    "240.0.0.1",
    "100::1",
    "5f00::1",
    "2001:db8::1",
    "3fff::1",
    "4000::1",
]


@pytest.mark.parametrize("address", _INNER)
def test_an_inner_address_is_reached_only_where_its_network_is_named(address: str) -> None:
    inner = ip_address(address)
    assert not may_be_reached(inner, [])
    assert may_be_reached(inner, [ip_network(address)])


@pytest.mark.parametrize(
    "address",
    [
        "93.184.215.14",
        "168.63.129.17",
        "2606:2800:21f:cb07::1",
        "::ffff:93.184.215.14",
        "64:ff9b::93.184.215.14",
        "2002:5db8:d70e::1",
    ],
)
def test_a_public_address_is_reached(address: str) -> None:
    assert may_be_reached(ip_address(address), [])


class Noting(httpx.AsyncBaseTransport):
    """Takes each request, and keeps it."""

    def __init__(self) -> None:
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return httpx.Response(204)


def _resolving(monkeypatch: pytest.MonkeyPatch, *answers: Sequence[str]) -> None:
    """Have name servers give ``answers``, one after the other; the last one stays."""
    left = list(answers)

    def resolve(host: str, port: int | None, *_: Any, **__: Any) -> list[Any]:
        found = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port or 0)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def _post(transport: PublicTransport, url: str) -> httpx.Response:
    async def post() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.post(url)

    return asyncio.run(post())


def test_a_name_is_resolved_once_and_its_certificate_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    _resolving(monkeypatch, ["10.0.0.1", "93.184.215.14"], ["127.0.0.1"])
    inner = Noting()
    assert _post(PublicTransport([], inner), "https://receiver.example:8443/hook").status_code == 204
    (request,) = inner.requests
    assert str(request.url) == "https://93.184.215.14:8443/hook"
    assert request.headers["host"] == "receiver.example:8443"
    assert request.extensions["sni_hostname"] == "receiver.example"


def test_an_international_name_is_resolved_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def resolve(host: str, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.215.14", 443))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    inner = Noting()
    _post(PublicTransport([], inner), "https://xn--fa-hia.de/hook")
    assert asked == ["xn--fa-hia.de"]
    assert inner.requests[0].extensions["sni_hostname"] == "xn--fa-hia.de"


@pytest.mark.parametrize(
    "url", ["http://receiver.example/", "http://127.0.0.1/", "http://[::1]/", "http://2130706433/"]
)
def test_a_name_of_an_inner_address_is_none_to_reach(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "example" in url:
        _resolving(monkeypatch, ["127.0.0.1"])
    inner = Noting()
    with pytest.raises(Forbidden):
        _post(PublicTransport([], inner), url)
    assert inner.requests == []


class Refusing(Noting):
    """Refuses connections to the addresses ``closed``."""

    def __init__(self, *closed: str) -> None:
        super().__init__()
        self.closed = closed
        self.tried: list[tuple[str, float]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.tried.append((request.url.host, request.extensions["timeout"]["connect"]))
        if request.url.host in self.closed:
            raise httpx.ConnectTimeout("no answer") if len(self.tried) % 2 else httpx.ConnectError("refused")
        return await super().handle_async_request(request)


def test_each_permitted_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    first, inner, second, third = "2606:2800:21f:cb07::1", "10.0.0.1", "93.184.215.14", "93.184.215.15"
    _resolving(monkeypatch, [first, inner, second, third])
    refusing = Refusing(first, second)
    assert _post(PublicTransport([], refusing), "http://receiver.example/").status_code == 204
    assert [address for address, _ in refusing.tried] == [first, second, third]
    assert {limit for _, limit in refusing.tried} == {5.0 / 3}, "of the 5 s for connecting"

    refusing = Refusing(first, second, third)
    with pytest.raises(httpx.ConnectTimeout):
        _post(PublicTransport([], refusing), "http://receiver.example/")


def test_a_name_of_two_addresses_is_reached_where_one_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(10_000)
                connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        _resolving(monkeypatch, ["127.0.0.2", "127.0.0.1"])
        url = f"http://receiver.example:{server.getsockname()[1]}/"
        assert _post(PublicTransport([ip_network("127.0.0.0/8")]), url).status_code == 204
        thread.join()


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".example"])
def test_a_host_that_is_no_name_has_no_address(host: str) -> None:
    with pytest.raises(httpx.ConnectError):
        _post(PublicTransport([], Noting()), f"http://{host}/")


def test_keys_decide_what_is_reached() -> None:
    inner = ip_address("127.0.0.1")
    assert may_be_reached(inner, Settings(auth="open").webhook_reach)
    assert not may_be_reached(inner, Settings(auth="required").webhook_reach)
    assert may_be_reached(inner, Settings.load({"KERNELJUDGE_WEBHOOK_NETWORKS": "127.0.0.0/8"}).webhook_reach)
