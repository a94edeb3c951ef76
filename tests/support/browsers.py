"""A real browser for tests of pages: headless Chromium, whose console and requests are checked."""

import colorsys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from PIL import Image, ImageDraw
from playwright.sync_api import Browser, Page, expect, sync_playwright

from imagestrata.devstack import SetupError, chromium
from tests.support.encoding import encoded

PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)


@contextmanager
def running() -> Iterator[Browser]:
    """Start a browser. Skips the test if there is none and none can be installed."""
    try:
        program = chromium.bring()
    except SetupError as error:
        pytest.skip(str(error))
    with sync_playwright() as playwright:
        # Chromium's sandbox does not start as root, nor in most containers. The page is trusted.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"], timeout=60_000)
        yield browser
        browser.close()


@contextmanager
def watched(browser: Browser, url: str, *, but: str = "", **options: Any) -> Iterator[Page]:
    """Open a page. It must not contact other hosts, nor write errors to the console except about ``but``."""
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    errors: list[str] = []
    page.on("console", lambda line: errors.append(line.text) if line.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "request",
        lambda asked: (
            errors.append(f"asked {asked.url}")
            if urlsplit(asked.url).scheme in ("http", "https") and not asked.url.startswith(url)
            else None
        ),
    )
    try:
        yield page
    finally:
        context.close()
    assert [error for error in errors if not but or but not in error] == []


def drop(page: Page, target: str, *paths: Path) -> None:
    """Drop files or folders of this machine, as a user does."""
    page.locator(target).scroll_into_view_if_needed()
    box = page.locator(target).bounding_box()
    assert box is not None
    place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    session = page.context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, **place, "data": data})
    session.detach()


def slow_down(page: Page, bytes_a_second: int) -> None:
    """Limit the upload speed of a page; -1 for no limit."""
    session = page.context.new_cdp_session(page)
    told = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": bytes_a_second}
    session.send("Network.emulateNetworkConditions", told)


def painted(number: int, *, width: int = 240, height: int = 180, kind: str = "JPEG") -> bytes:
    """An image that differs from its neighbours."""
    image = Image.new("RGB", (width, height), _colour(number * 0.13, 0.35, 0.85))
    draw = ImageDraw.Draw(image)
    for ring in range(5, 0, -1):
        x, y, radius = width * (0.25 + number % 5 * 0.12), height * (0.3 + number % 3 * 0.2), ring * width / 14
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), _colour(number * 0.13 + ring * 0.06, 0.6, 0.75))
    return encoded(image, kind)


def _colour(hue: float, saturation: float, value: float) -> tuple[int, int, int]:
    red, green, blue = colorsys.hsv_to_rgb(hue % 1, saturation, value)
    return int(255 * red), int(255 * green), int(255 * blue)
