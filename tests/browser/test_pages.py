"""Every page in a browser: filters, hostile texts, narrow screens, and what axe-core finds."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Service
from tests.browser.seeding import HOSTILE, TURNED

SERIOUS = ("serious", "critical")
Visit = Callable[..., Page]


def labels(page: Page) -> list[str]:
    return page.locator(".ranking tbody .name a").all_inner_texts()


def test_a_leaderboard_is_filtered(visit: Visit, service: Service) -> None:
    page = visit(service.pages["problem"])
    filters = page.get_by_role("form", name="Leaderboard filters")
    assert labels(page) == ["candidate 1", "candidate 0"]
    filters.get_by_label("Device").select_option("another one")
    filters.get_by_role("button", name="Show").click()
    expect(page).to_have_url(re.compile(r"device=another\+one"))
    assert labels(page) == ["candidate 2"]
    filters.get_by_label("Device").select_option("a processor")
    filters.get_by_label("Author").fill("bob")
    filters.get_by_label("Author").press("Enter")
    expect(page).to_have_url(re.compile("author=bob"))
    assert labels(page) == ["candidate 1"]
    filters.get_by_label("Track").select_option("training")
    filters.get_by_label("Label").fill("nobody's")
    filters.get_by_role("button", name="Show").click()
    page.get_by_role("link", name="Show the usual board").click()
    assert labels(page) == ["candidate 1", "candidate 0"]


def test_what_was_typed_is_text_and_nothing_runs(visit: Visit, service: Service) -> None:
    for name in ("hostile", "hostile problem", "submissions", "overall", "home"):
        # The fixture looks for dialogs and errors, those of the policy included.
        page = visit(service.pages[name])
        assert page.locator("img[src=x]").count() == 0
        expect(page.get_by_text("alert(1)").first).to_be_attached()
    page = visit(service.pages["hostile"])
    expect(page.locator("h1")).to_contain_text(HOSTILE)
    expect(page.locator("h1 .by bdi")).to_have_text(TURNED + HOSTILE)
    expect(page.locator(".source")).to_contain_text("\u27e6U+202E\u27e7evil")


@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_the_screen(visit: Visit, service: Service, width: int) -> None:
    page = visit("/", viewport={"width": width, "height": 800})
    for name, path in service.pages.items():
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_axe_finds_nothing_serious(browser: Browser, service: Service, scheme: str, width: int) -> None:
    context = browser.new_context(
        base_url=service.url,
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": 800},
    )
    page = context.new_page()
    axe = Axe()
    found = {}
    for name, path in {**service.pages, "missing": "/nothing", "refused": "/submissions?verdict=none"}.items():
        page.goto(path)
        for each in page.locator("details").all():
            each.evaluate("each => { each.open = true; }")
        violations = axe.run(page).response["violations"]
        serious = [(each["id"], each["nodes"][0]["html"]) for each in violations if each["impact"] in SERIOUS]
        if serious:
            found[name] = serious
    context.close()
    assert found == {}


def test_a_board_on_a_phone_shows_speedups_without_scrolling_aside(visit: Visit, service: Service) -> None:
    page = visit("/", viewport={"width": 390, "height": 800})
    for name in ("home", "problem"):
        page.goto(service.pages[name])
        speedups = page.locator(".stack td.key strong").all()
        assert speedups
        for speedup in speedups:
            box = speedup.bounding_box()
            whose = speedup.locator("xpath=ancestor::tr").locator(".name a").bounding_box()
            assert box is not None
            assert whose is not None
            assert box["x"] + box["width"] <= 390
            assert abs(whose["y"] - box["y"]) < 5


def test_a_command_is_copied(browser: Browser, service: Service) -> None:
    context = browser.new_context(base_url=service.url, permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(service.pages["passed"])
    box = page.locator(".copied").first
    box.get_by_role("button", name="Copy").click()
    expect(box.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == box.locator("pre").inner_text()
    context.close()


def test_a_live_part_renews_itself_and_keeps_the_focus(visit: Visit, service: Service) -> None:
    page = visit(service.pages["workers"])
    heard = page.locator("tbody time").first
    before = heard.inner_text()
    page.get_by_role("link", name="Batches").focus()
    expect(heard).not_to_have_text(before)
    expect(page.get_by_role("link", name="Batches")).to_be_focused()
