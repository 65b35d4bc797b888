"""From a candidate in the box of the first page to its verdict, as somebody at a browser does it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PATIENCE_MS, Service

RIGHT = """import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""
# Without torch's headers, this is refused within a second.
DOES_NOT_COMPILE = '''import torch
from torch.utils.cpp_extension import load_inline

source = """
int twice(int x) { return 2 * x; }
int thrice(int x) { return 3 * y; }
"""

extension = load_inline(name="thrice", cpp_sources=source, no_implicit_headers=True)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
'''
Visit = Callable[..., Page]


def paste(page: Page, text: str, label: str) -> None:
    page.locator("select[name=problem]").select_option("relu")
    page.get_by_label("Source of a").fill(text)
    page.get_by_label("Author").fill("ann")
    page.get_by_label("Label").fill(label)
    page.get_by_role("button", name="Grade it").click()


def test_a_candidate_is_pasted_and_watched_to_its_verdict(visit: Visit) -> None:
    page = visit("/")
    paste(page, RIGHT, "pasted")
    expect(page).to_have_url(re.compile("/submissions/sub_"))
    page.evaluate("window.watched = true")
    expect(page.locator(".lead .outcome")).to_have_text("passed", timeout=PATIENCE_MS)
    # It was shown where somebody was looking, and not by loading the page again.
    assert page.evaluate("window.watched") is True
    expect(page).to_have_title(re.compile("^pasted on relu: passed"))
    expect(page.get_by_role("img", name="How long calls took")).to_be_visible()
    expect(page.locator(".source")).to_contain_text("return torch.relu(x)")


def test_a_compile_error_is_read_at_its_line(visit: Visit) -> None:
    page = visit("/")
    paste(page, f"Here it is:\n```python\n{DOES_NOT_COMPILE}```\n", "does not compile")
    expect(page.locator(".lead .outcome")).to_have_text("failed to compile", timeout=PATIENCE_MS)
    expect(page.locator(".verdict-message")).to_contain_text("y")
    page.get_by_role("link", name="Line 6 of the source").click()
    line = page.locator(".source .error")
    expect(line).to_contain_text("int thrice(int x) { return 3 * y; }")
    expect(line).to_be_in_viewport()
    assert line.get_attribute("data-n") == "6"


def test_the_lines_of_a_batch_are_watched_to_their_verdicts(visit: Visit, service: Service) -> None:
    lines = [{"problem": "relu", "code": code, "device": "cpu"} for code in (RIGHT, RIGHT.replace("relu(x)", "abs(x)"))]
    batch = httpx.post(f"{service.url}/api/v1/batches", json={"submissions": lines}, trust_env=False).json()["id"]
    page = visit(f"/batches/{batch}")
    page.evaluate("window.watched = true")
    expect(page.locator("#live-lines .outcome")).to_have_text(["passed", "wrong output"], timeout=PATIENCE_MS)
    expect(page.locator("#live-batch .lead")).to_contain_text("Done: 2 of 2 are over")
    assert page.evaluate("window.watched") is True


def test_a_file_can_be_chosen(visit: Visit, tmp_path: Path) -> None:
    file = tmp_path / "my_relu.py"
    file.write_text(RIGHT)
    page = visit("/")
    page.locator("input[type=file]").set_input_files(file)
    expect(page.get_by_label("Source of a")).to_have_value(RIGHT)
    expect(page.get_by_label("Label")).to_have_value("my_relu")


def test_a_file_can_be_dropped(visit: Visit) -> None:
    page = visit("/problems/relu")
    transfer = page.evaluate_handle(
        "text => { const d = new DataTransfer(); d.items.add(new File([text], 'dropped.py')); return d; }", RIGHT
    )
    page.dispatch_event(".hand-in", "drop", {"dataTransfer": transfer})
    expect(page.get_by_label("Source of a")).to_have_value(RIGHT)


def test_it_works_without_scripts(visit: Visit) -> None:
    page = visit("/", java_script_enabled=False)
    expect(page.locator(".drop")).to_be_hidden()
    paste(page, "class ModelNew: pass pass", "no scripts")
    expect(page.locator(".lead .outcome")).to_have_text("no valid source")
    expect(page.locator(".source .error")).to_contain_text("class ModelNew: pass pass")


def test_what_is_wrong_is_said_and_what_was_typed_stays(visit: Visit) -> None:
    page = visit("/", java_script_enabled=False)
    page.get_by_label("Source of a").fill("   ")
    page.get_by_label("Label").fill("kept")
    page.get_by_role("button", name="Grade it").click()
    expect(page.get_by_role("alert")).to_contain_text("There is nothing to grade yet")
    expect(page.get_by_label("Label")).to_have_value("kept")


@pytest.mark.parametrize("path", ["/", "/problems/relu"])
def test_the_keyboard_is_enough(visit: Visit, path: str) -> None:
    page = visit(path)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    page.keyboard.press("Enter")
    for _ in range(60):
        page.keyboard.press("Tab")
        # Whatever has the focus shows it.
        assert (
            page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
            or page.evaluate("document.activeElement.type") == "file"
        )
        if page.evaluate("document.activeElement.name") == "text":
            break
    page.keyboard.insert_text("class ModelNew: by keyboard")
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Grade it":
            break
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/submissions/sub_"))
    expect(page.locator(".lead .outcome")).to_have_text("no valid source")
