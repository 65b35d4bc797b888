"""What a link to a page says of it elsewhere: title, description, picture, address."""

from __future__ import annotations

import struct
from html.parser import HTMLParser

import httpx
import pytest

from api.app import create_app
from runtime.settings import Settings
from tests.api.inmemory import running
from tests.api.outline import page
from tests.api.seeds import Seeds

TIMES = "\N{MULTIPLICATION SIGN}"
HOSTILE = '"><script>alert(1)</script>'


class Metas(HTMLParser):
    """The meta elements of a page, by property or name."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        name = given.get("property") or given.get("name")
        if tag == "meta" and name:
            assert name not in self.found, name
            self.found[name] = given.get("content") or ""


def preview(http: httpx.Client, path: str) -> dict[str, str]:
    metas = Metas(page(http, path)).found
    for name in ("title", "description", "image"):
        assert metas[f"og:{name}"].strip() == metas[f"twitter:{name}"].strip() != ""
    assert metas["description"] == metas["twitter:description"]
    assert metas["twitter:card"] == "summary_large_image"
    return metas


def test_every_page_says_what_it_is_about(http: httpx.Client, seeds: Seeds) -> None:
    submission = seeds.passed(label="fused", author="ann")
    batch = http.post("/api/v1/batches", json={"name": "a step", "submissions": [{"problem": "relu", "code": "x"}]})
    expected = {
        "/": ("who makes PyTorch models faster", "ranked"),
        "/problems/relu": ("ReLU", f"1 ranked, the fastest at least 1.90{TIMES}"),
        f"/submissions/{submission}": ("fused on relu: passed", f"Passed, 2.00{TIMES} over eager, by ann"),
        f"/batches/{batch.json()['id']}": ("a step", "A batch of 1 candidates"),
        "/overall": ("Overall", "problems"),
        "/submissions": ("Submissions", "handed in"),
        "/batches": ("Batches", "one summary"),
    }
    for path, (title, description) in expected.items():
        metas = preview(http, path)
        assert title in metas["og:title"], path
        assert description in metas["og:description"], path


def test_the_address_keeps_the_filters(http: httpx.Client) -> None:
    path = "/problems/relu?track=training&author=ann"
    assert preview(http, path)["og:url"] == f"http://testserver{path}"


def test_the_picture_is_ours_and_as_large_as_it_says(http: httpx.Client) -> None:
    metas = preview(http, "/")
    assert metas["og:image"].startswith("http://testserver/static/preview.png?v=")
    picture = http.get(metas["og:image"])
    assert picture.headers["content-type"] == metas["og:image:type"] == "image/png"
    width, height = struct.unpack(">II", picture.content[16:24])
    assert (str(width), str(height)) == (metas["og:image:width"], metas["og:image:height"])


def test_nothing_that_was_typed_leaves_its_quotes(http: httpx.Client, seeds: Seeds) -> None:
    metas = preview(http, f"/submissions/{seeds.passed(label=HOSTILE, author=HOSTILE)}")
    assert HOSTILE in metas["og:title"]
    assert HOSTILE in metas["og:description"]
    address = f"/problems/relu?author={HOSTILE}"
    assert "<script>alert" not in page(http, address)


@pytest.mark.parametrize("path", ["/", "/problems/relu"])
def test_behind_a_proxy_addresses_are_public_ones(api_settings: Settings, path: str) -> None:
    settings = api_settings.model_copy(update={"public_url": "https://kernels.example.org"})
    with (
        running(create_app(settings)) as transport,
        httpx.Client(transport=transport, base_url="http://inside") as http,
    ):
        metas = preview(http, path)
        html = page(http, path)
    assert metas["og:url"] == f"https://kernels.example.org{path}"
    assert metas["og:image"].startswith("https://kernels.example.org/static/preview.png")
    assert "https://kernels.example.org/api/v1/submissions" in html
    assert "inside" not in html
