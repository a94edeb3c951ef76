"""The page of the dataset service in a real browser, with a real server."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml
from playwright.sync_api import Browser, Page, expect

from imagestrata.service.tokens import SCOPES
from imagestrata.training_jobs.job import read_job
from tests.support.browsers import drop, painted, running, slow_down, watched
from tests.support.dataset_servers import TAR, Server, ServerInThread, tar_of, token_of

CLASSES = [f"class-{number}" for number in range(35)]


def animals() -> dict[str, bytes]:
    """Two splits of a few classes."""
    counts = {"heron": 9, "otter": 7, "fox": 5, "wren": 3}
    return {
        f"{split}/{name}/{number}.jpg": painted(place * 3 + number)
        for split, share in (("train", 1.0), ("val", 0.4))
        for place, (name, count) in enumerate(counts.items())
        for number in range(max(1, int(count * share)))
    }


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running() as browser:
        yield browser


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("service") / "root") as server:
        for name, files in (
            ("animals", animals()),
            ("many-classes", {f"{name}/{n}.png": painted(n, kind="PNG") for n, name in enumerate(CLASSES)}),
        ):
            server.create(name)
            assert server.put(name, tar_of(files), kind=TAR).status == 200
        server.create("table")
        assert server.put("table", b"a,b\n1,2\n", filename="first.csv").status == 200
        assert server.put("table", b"a,b\n3,4\n", filename="second.csv").status == 200
        server.create("nothing-yet")
        yield server


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    with watched(browser, server.url) as page:
        yield page


@pytest.fixture
def name(server: Server, request: pytest.FixtureRequest) -> str:
    """A new dataset for one test."""
    name = "of-" + re.sub(r"[^a-z0-9]+", "-", request.node.name)[:80].strip("-")
    server.create(name)
    return name


def body_of(server: Server, name: str) -> bytes:
    return server.ask("GET", f"/datasets/{name}").body


def paths_of(server: Server, name: str) -> dict[str, int]:
    return {file["path"]: file["bytes"] for file in server.ask("GET", f"/datasets/{name}/files").json["files"]}


def test_the_list_shows_each_dataset_and_is_filtered(page: Page, server: Server) -> None:
    page.goto(server.url)
    row = page.get_by_role("row").filter(has_text="animals")
    size = server.ask("GET", "/datasets/animals/card").json["newest"]["bytes"]
    for text in ("images", str(len(animals())), f"{size / 1000:.3g} kB", "v1", "just now"):
        expect(row).to_contain_text(text)
    expect(page.get_by_role("row").filter(has_text="table")).to_contain_text("v2")
    expect(page.get_by_role("row").filter(has_text="nothing-yet")).to_contain_text("empty")
    page.get_by_label("Filter").fill("ANIM")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_label("Filter").fill("no such")
    expect(page.get_by_text("No dataset matches")).to_be_visible()
    page.get_by_label("Filter").fill("")
    page.get_by_role("link", name="animals").click()
    expect(page.get_by_role("heading", name="animals", level=1)).to_be_focused()


def test_long_lists_come_in_pages_and_the_filter_searches_all(browser: Browser, tmp_path: Path) -> None:
    with ServerInThread(tmp_path / "root") as server, watched(browser, server.url) as page:
        for number in range(120):
            server.create(f"set-{number:03d}")
        page.goto(server.url)
        rows = page.locator("tbody tr")
        expect(rows).to_have_count(50)
        page.get_by_role("button", name="More").click()
        expect(rows).to_have_count(100)
        page.get_by_label("Filter").fill("set-11")
        expect(rows).to_have_count(10)


def test_a_dataset_is_created(page: Page, server: Server) -> None:
    page.goto(server.url)
    page.get_by_label("New dataset").fill("made_here")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="made_here")).to_be_visible()
    expect(page.get_by_text("Upload the first version")).to_be_visible()
    assert server.ask("GET", "/datasets/made_here/card").status == 200


def test_a_refusal_of_the_service_is_shown(browser: Browser, server: Server) -> None:
    with watched(browser, server.url, but="status of 4") as page:
        page.goto(server.url)
        for name, told in (
            ("", "Choose a name first."),
            ("a name", "Use only letters from A to Z"),
            (".x", "must begin with a letter"),
            ("con", "Found: 'con', which is a reserved device name on some systems"),
            ("animals", "A dataset named animals exists already."),
        ):
            page.get_by_label("New dataset").fill(name)
            page.get_by_role("button", name="Create").click()
            expect(page.get_by_role("alert").filter(has_text=told)).to_be_visible()
            expect(page.get_by_label("New dataset")).to_be_focused()
        page.get_by_text("Details").click()
        expect(page.get_by_role("alert")).to_contain_text(re.compile(r"Request id: [0-9a-f]{16}"))
        page.goto(f"{server.url}/#/no-such")
        expect(page.get_by_role("alert")).to_contain_text("There is no dataset named no-such.")
        expect(page.get_by_role("alert").locator("details")).to_contain_text("Wanted the dataset 'no-such'")


def test_the_card_shows_pictures_classes_and_splits(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/#/animals")
    expect(page.locator("img.sheet.there")).to_have_js_property("naturalWidth", 6 * 164 - 4)
    bars = page.get_by_label("Images of each class", exact=True).get_by_role("listitem")
    expect(bars.first).to_contain_text("heron")
    assert [text.split()[-1] for text in bars.all_inner_texts()] == ["12", "9", "7", "4"]
    widths = [bar.evaluate("bar => bar.offsetWidth") for bar in bars.locator(".fill").all()]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] > 0
    splits = page.locator("details.split")
    expect(splits).to_have_count(2)
    splits.nth(1).locator("summary").click()
    expect(splits.nth(1).get_by_role("listitem").first).to_contain_text("heron")
    page.goto(f"{server.url}/#/many-classes")
    bars = page.get_by_label("Images of each class").get_by_role("listitem")
    expect(bars).to_have_count(30)
    page.get_by_role("button", name="5 more").click()
    expect(bars).to_have_count(35)


def test_long_names_that_begin_alike_can_be_distinguished(browser: Browser, server: Server, name: str) -> None:
    names = [f"a_very_long_name_of_a_class_that_goes_on_{number:02d}" for number in range(3)]
    files = {f"digits/{split}/{one}/1.jpg": painted(1) for split in ("train", "val") for one in names}
    assert server.put(name, tar_of(files), kind=TAR).status == 200
    for width in (390, 1180):
        with watched(browser, server.url, viewport={"width": width, "height": 800}) as page:
            page.goto(f"{server.url}/#/{name}")
            bars = page.get_by_label("Images of each class", exact=True)
            expect(bars.get_by_role("listitem")).to_have_count(3)
            for number, bar in enumerate(bars.get_by_role("listitem").all()):
                expect(bar.get_by_title(names[number], exact=True)).to_be_visible()
                end = bar.locator(".end")
                expect(end).to_have_text(names[number][-8:])
                inside = (
                    "end => end.getBoundingClientRect().right <= end.parentElement.getBoundingClientRect().right + 1"
                )
                assert end.evaluate(inside)
                assert bar.locator(".name").evaluate("it => it.offsetWidth / it.parentElement.offsetWidth") <= 0.46
            assert f"listitem: {names[0]}" in bars.aria_snapshot().replace('"', "")  # the accessible name is complete
            for split in ("train", "val"):  # without the enclosing folder
                assert (
                    page.locator("summary")
                    .get_by_text(split, exact=True)
                    .evaluate("it => it.scrollWidth <= it.offsetWidth")
                )


def test_pictures_outside_folders_have_no_class(page: Page, server: Server, name: str) -> None:
    assert server.put(name, tar_of({"1.jpg": painted(1)}), kind=TAR).status == 200
    page.goto(f"{server.url}/#/{name}")
    expect(page.locator(".facts")).to_contain_text("Images")
    expect(page.get_by_text("Classes", exact=True)).to_have_count(0)
    expect(page.get_by_label("Class", exact=True)).to_have_count(0)
    assert server.put(name, tar_of({"1.jpg": painted(1), "cat/1.jpg": painted(1)}), kind=TAR).status == 200
    page.reload()
    expect(page.locator(".bars .name")).to_have_text(["cat"])


def test_a_few_pictures_are_shown_as_large_as_they_are(page: Page, server: Server, name: str) -> None:
    for kind, selector, size in (("JPEG", "img.picture", (240, 180)), ("TIFF", "img.sheet.there", (160, 160))):
        assert server.put(name, painted(1, kind=kind), filename=f"a.{kind.lower()}").status == 200
        page.goto(f"{server.url}/#/{name}?version={1 if kind == 'JPEG' else 2}")
        expect(page.locator(selector)).to_be_visible()
        box = page.locator(selector).bounding_box()
        assert box is not None
        assert (box["width"], box["height"]) == size


def test_a_dataset_that_is_missing_may_be_created(browser: Browser, server: Server) -> None:
    with watched(browser, server.url, but="status of 404") as page:
        page.goto(f"{server.url}/#/missed")
        expect(page.get_by_role("heading", level=1)).to_have_text("No such dataset")
        expect(page.locator(".trail").get_by_role("link", name="Datasets")).to_be_visible()
        page.get_by_role("button", name="Create it").click()
        expect(page.get_by_role("heading", name="missed", level=1)).to_be_focused()
        expect(page.get_by_text("Upload the first version")).to_be_visible()
        page.goto(f"{server.url}/#/missed?version=7")
        expect(page.get_by_role("alert")).to_be_visible()
        expect(page.get_by_role("button", name="Create it")).to_have_count(0)


def test_each_version_can_be_downloaded(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/#/table")
    for version, filename, body in ((1, "first.csv", b"a,b\n1,2\n"), (2, "second.csv", b"a,b\n3,4\n")):
        with page.expect_download() as coming:
            page.get_by_role("link", name=f"Download version {version} ").last.click()
        assert coming.value.suggested_filename == filename
        assert coming.value.path().read_bytes() == body
    page.get_by_role("link", name="v1", exact=True).click()
    expect(page.get_by_role("link", name="The newest is 2")).to_be_visible()


def test_a_version_that_cannot_be_read_is_deleted_or_an_older_one_restored(
    browser: Browser, server: Server, name: str
) -> None:
    for body in (b"one", b"two", b"three"):
        assert server.put(name, body, filename="a.txt").status == 200
    manifest = server.root / "datasets" / name / "versions" / "3" / "version.json"
    manifest.write_text("{")
    with watched(browser, server.url, but="Failed to load resource") as page:
        page.goto(f"{server.url}/#/{name}")
        expect(page.get_by_role("alert")).to_contain_text("Restore an older version, delete this one")
        expect(page.locator("tbody th")).to_have_text(["v3", "v2", "v1"])
        page.get_by_role("button", name="Delete version 2").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete version 2").click()
        expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("Delete that version first.")
        page.keyboard.press("Escape")
        page.get_by_role("link", name="v1", exact=True).click()
        expect(page.locator(".preview pre")).to_have_text("one")
        expect(page.get_by_role("link", name="The newest is 3")).to_be_visible()
        page.get_by_role("button", name="Restore version 1").click()
        expect(page.locator("#said")).to_contain_text("as version 4")
        expect(page.locator("tbody th")).to_have_text(["v4", "v3", "v2", "v1"])
        page.get_by_role("button", name="Delete version 3").click()
        expect(page.get_by_role("dialog")).to_contain_text("The other 3 versions stay.")
        page.get_by_role("dialog").get_by_role("button", name="Delete version 3").click()
        expect(page.locator("tbody th")).to_have_text(["v4", "v2", "v1"])
    (manifest.parent.parent / "4" / "version.json").write_text("{")
    with watched(browser, server.url, but="status of 500") as page:
        page.goto(f"{server.url}/#/{name}")
        page.get_by_role("button", name="Delete this dataset").click()
        page.get_by_role("dialog").get_by_role("textbox").fill(name)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Datasets", level=1)).to_be_visible()
    assert server.ask("GET", f"/datasets/{name}/card").status == 404


def test_the_card_says_when_it_lists_only_the_first_classes(page: Page, server: Server, name: str) -> None:
    assert server.put(name, tar_of({f"{number:04}/1.png": b"1" for number in range(2_001)}), kind=TAR).status == 200
    page.goto(f"{server.url}/#/{name}")
    expect(page.get_by_text("The first 2,000 of 2,001 classes, by name.")).to_be_visible()
    expect(page.locator("dl.facts").get_by_text("2,001").first).to_be_visible()


def test_files_are_browsed_by_the_keyboard_alone(page: Page, server: Server, name: str) -> None:
    files = {f"train/cat/{n:02d}.jpg": painted(n) for n in range(30)} | {"train/dög #1?/a b.jpg": painted(1)}
    assert server.put(name, tar_of(files | {"notes.txt": b"<b>some</b> notes"}), kind=TAR).status == 200
    page.goto(f"{server.url}/#/{name}")
    rows = page.locator(".files li")
    expect(page.locator(".cells button").first).to_have_accessible_name("Show train/cat/00.jpg")
    expect(page.locator(".cells button span").first).to_have_text("cat")

    def enter(button: str) -> None:
        page.get_by_role("button", name=button, exact=True).focus()
        page.keyboard.press("Enter")

    enter("train/")
    expect(page.locator(".levels [aria-current]")).to_be_focused()
    expect(rows).to_have_text(["cat/", "dög #1?/"])
    enter("dög #1?/")
    enter("a b.jpg")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("img", name="train/dög #1?/a b.jpg")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="a b.jpg", exact=True)).to_be_focused()
    page.locator(".levels").get_by_role("button", name=name).click()
    enter("notes.txt")
    expect(dialog.locator("pre")).to_have_text("<b>some</b> notes")
    page.keyboard.press("Escape")
    page.get_by_label("Class", exact=True).select_option("cat")
    expect(rows).to_have_count(25)
    page.get_by_role("button", name="train/cat/24.jpg", exact=True).focus()
    page.keyboard.press("Enter")
    for key, number in (("ArrowRight", "25"), ("ArrowRight", "26"), ("ArrowLeft", "25")):  # on the next page
        page.keyboard.press(key)
        expect(dialog.get_by_role("img", name=f"train/cat/{number}.jpg")).to_have_js_property("naturalWidth", 240)
    for _ in range(12):  # the focus stays in the dialog, or goes to the browser's own controls
        page.keyboard.press("Tab")
        assert page.evaluate(
            "() => document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        )
    page.keyboard.press("Escape")
    expect(rows).to_have_count(30)
    expect(page.get_by_role("button", name="More", exact=True)).to_be_hidden()


def test_folders_and_classes_have_addresses_for_back_and_for_links(
    page: Page, browser: Browser, server: Server, name: str
) -> None:
    files = {f"train/{of}/{n}.jpg": painted(n) for of in ("cat", "dög #1?") for n in range(2)}
    assert server.put(name, tar_of(files), kind=TAR).status == 200
    page.goto(f"{server.url}/#/{name}")
    rows = page.locator(".files li .name")
    for folder in ("train/", "dög #1?/"):
        page.get_by_role("button", name=folder, exact=True).press("Enter")  # pictures above move the rows under a mouse
    expect(rows).to_have_text(["0.jpg", "1.jpg"])
    link = page.url
    page.go_back()
    expect(rows).to_have_text(["cat/", "dög #1?/"])
    page.get_by_label("Class", exact=True).select_option("cat")
    expect(rows).to_have_text(["train/cat/0.jpg", "train/cat/1.jpg"])
    of_class = page.url
    page.go_back()
    expect(rows).to_have_text(["cat/", "dög #1?/"])
    page.go_back()
    expect(rows).to_have_text(["train/"])
    page.go_forward()
    expect(rows).to_have_text(["cat/", "dög #1?/"])
    with watched(browser, server.url) as other:
        other.goto(link)
        expect(other.locator(".levels")).to_have_text(f"{name} / train / dög #1?")
        expect(other.locator(".files li .name")).to_have_text(["0.jpg", "1.jpg"])
        other.goto(of_class)
        expect(other.get_by_label("Class", exact=True)).to_have_value("cat")
        expect(other.locator(".files li .name")).to_have_text(["train/cat/0.jpg", "train/cat/1.jpg"])
        other.goto(f"{server.url}/#/{name}?version=1&folder=val")
        expect(other.locator(".browser .problem")).to_have_text("This version has no folder val/.")


def test_tables_and_texts_are_previewed_as_text(page: Page, server: Server, name: str) -> None:
    rows = "".join(f'{number};"a; <i>{number}</i>"\n' for number in range(20_000))
    for body, filename in ((f'id;"a ""name"""\n{rows}', "big.csv"), ("<script>1</script>\n" * 300, "t.txt")):
        assert server.put(name, body.encode(), filename=filename).status == 200
    with page.expect_response(lambda answer: "/files/" in answer.url) as coming:
        page.goto(f"{server.url}/#/{name}?version=1")
    assert (coming.value.status, coming.value.headers["content-length"]) == (206, "65536")
    expect(page.locator(".facts")).to_contain_text("big.csv")
    expect(page.locator(".facts")).to_contain_text("Table (CSV)")
    table = page.get_by_role("region", name="The first rows")
    expect(table.get_by_role("columnheader")).to_have_text(["id", 'a "name"'])
    expect(table.get_by_role("row").nth(2).get_by_role("cell")).to_have_text(["1", "a; <i>1</i>"])
    expect(page.get_by_text("The first 50 rows.")).to_be_visible()
    page.goto(f"{server.url}/#/{name}")
    expect(page.get_by_role("region", name="The first lines")).to_contain_text("<script>1</script>")
    expect(page.get_by_text("The first 100 lines.")).to_be_visible()
    assert server.put(name, b"," * 60_000, filename="wide.csv").status == 200
    page.reload()
    expect(page.get_by_text("The first 40 of 60,001 columns.")).to_be_visible()
    assert server.put(name, b"\xff\xfe\0", filename="no.txt").status == 200
    page.reload()
    expect(page.get_by_text("This is not UTF-8 text.")).to_be_visible()


def test_versions_are_restored_and_deleted(browser: Browser, server: Server, name: str) -> None:
    for body in (b"one", b"two"):
        assert server.put(name, body, filename="a.txt").status == 200
    with watched(browser, server.url, but="status of 412", timezone_id="Asia/Tokyo") as page:
        page.goto(f"{server.url}/#/{name}")
        versions = page.get_by_role("region", name="Versions").locator("tbody tr")
        expect(versions.first).to_contain_text(re.compile(r"\d{1,2} [A-Z][a-z]+ \d{4}, \d\d:\d\d:\d\d (GMT\+9|JST)"))
        created = server.ask("GET", f"/datasets/{name}/card").json["newest"]["created"]
        expect(versions.first.locator("time")).to_have_attribute("title", created)
        page.get_by_role("button", name="Restore version 1").press("Enter")
        expect(page.locator("#said")).to_have_text("Version 1 is the newest again, as version 3")
        expect(versions).to_have_count(3)
        assert body_of(server, name) == b"one"
        page.get_by_role("button", name="Delete version 3").press("Enter")
        dialog = page.get_by_role("dialog", name=f"Delete version 3 of {name}?")
        expect(dialog).to_contain_text("a.txt, 3 bytes in 1 file, cannot be restored. Version 2 becomes the newest.")
        expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.get_by_role("button", name="Delete version 3")).to_be_focused()
        page.keyboard.press("Enter")
        dialog.get_by_role("button", name="Delete version 3").press("Enter")
        expect(versions).to_have_count(2)
        assert body_of(server, name) == b"two"
        assert server.put(name, b"of somebody else").status == 200
        page.get_by_role("button", name="Delete this dataset").press("Enter")
        dialog = page.get_by_role("dialog", name=f"Delete {name}?")
        button = dialog.get_by_role("button", name="Delete dataset")
        expect(button).to_be_disabled()
        dialog.get_by_label(f"Type {name} to confirm").fill(name)
        page.keyboard.press("Enter")
        expect(dialog.get_by_role("alert")).to_contain_text("Someone changed this dataset in the meantime.")
        page.keyboard.press("Escape")
        page.reload()
        expect(versions).to_have_count(3)
        page.get_by_role("button", name="Delete this dataset").press("Enter")
        dialog.get_by_label(f"Type {name} to confirm").fill(name)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1, name="Datasets")).to_be_focused()
        assert server.ask("GET", f"/datasets/{name}/card").status == 404


def test_a_description_is_written_and_shown(page: Page, server: Server, name: str) -> None:
    page.goto(f"{server.url}/#/{name}")
    page.get_by_role("button", name="Add a description").press("Enter")
    page.get_by_role("textbox", name="Description").fill("Cats & <b>dogs</b>\n\nTaken in 2026.")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".description .text")).to_have_text("Cats & <b>dogs</b>\n\nTaken in 2026.")
    expect(page.get_by_role("button", name="Edit description")).to_be_focused()
    page.keyboard.press("Enter")
    page.get_by_role("textbox", name="Description").fill("never saved")
    page.keyboard.press("Escape")
    page.goto(server.url)
    expect(page.get_by_role("row").filter(has_text=name)).to_contain_text("Cats & <b>dogs</b>")


def test_a_description_that_is_too_long_is_refused_and_not_cut(page: Page, server: Server, name: str) -> None:
    page.goto(f"{server.url}/#/{name}")
    page.get_by_role("button", name="Add a description").focus()
    page.keyboard.press("Enter")
    field = page.get_by_role("textbox", name="Description")
    field.fill("x" * 9_999 + "🦒🦒")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".description .problem")).to_have_text(
        "Use at most 10,000 characters in a description. This one has 10,001."
    )
    field.press("Backspace")  # counted as the service counts, not by halves of characters
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("button", name="Edit description")).to_be_focused()


def test_what_is_dropped_on_the_list_waits_for_a_name(page: Page, server: Server, tmp_path: Path) -> None:
    (tmp_path / "früh 1.csv").write_bytes(b"a,b\n")
    page.goto(server.url)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    drop(page, "h1", tmp_path / "früh 1.csv")
    expect(page.get_by_text("Choose a name for the dataset first.")).to_be_visible()
    expect(page.get_by_label("New dataset")).to_have_value("fr-h-1")
    page.keyboard.press("Enter")
    expect(page.locator("#said")).to_contain_text("is version 1 of fr-h-1")
    assert body_of(server, "fr-h-1") == b"a,b\n"


def test_a_chosen_file_is_uploaded(page: Page, server: Server, name: str, tmp_path: Path) -> None:
    file = tmp_path / "ein (schöner) Name's.csv"
    file.write_bytes(os.urandom(200_000))
    page.goto(f"{server.url}/#/{name}")
    page.get_by_label("Choose a file").set_input_files(file)
    expect(page.locator("#said")).to_contain_text(f"is version 1 of {name}")
    expect(page.locator(".heading")).to_contain_text("version 1")
    assert body_of(server, name) == file.read_bytes()
    assert paths_of(server, name) == {file.name: 200_000}


def test_a_file_dropped_by_a_script_is_uploaded(page: Page, server: Server, name: str) -> None:
    page.goto(f"{server.url}/#/{name}")
    page.locator(".drop").evaluate(
        """zone => {
            const dataTransfer = new DataTransfer();
            dataTransfer.items.add(new File(["scripted"], "scripted.txt"));
            for (const kind of ["dragenter", "dragover", "drop"])
                zone.dispatchEvent(new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true }));
        }"""
    )
    expect(page.locator("#said")).to_contain_text("is version 1")
    assert body_of(server, name) == b"scripted"


@pytest.mark.parametrize("how", ["dropped", "chosen"])
def test_a_folder_is_uploaded_as_a_tar(page: Page, server: Server, name: str, tmp_path: Path, how: str) -> None:
    folder = tmp_path / "my folder"
    long = "/".join(["a long way down"] * 12)
    wanted = {"cat/1.jpg": painted(1), "cat/ü – 2.jpg": painted(2), f"dog/{long}/3.jpg": painted(3), "empty.txt": b""}
    wanted |= {f"many/{number}.txt": b"x" * number for number in range(130)}
    for path, data in wanted.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    page.goto(f"{server.url}/#/{name}")
    if how == "dropped":
        drop(page, "h1", folder)
    else:
        page.get_by_label("Choose a folder").set_input_files(folder)
    expect(page.locator("#said")).to_contain_text("is version 1")
    assert paths_of(server, name) == {path: len(data) for path, data in wanted.items()}
    for path in ("cat/ü – 2.jpg", f"dog/{long}/3.jpg", "many/77.txt"):
        address = path.replace(" ", "%20").replace("ü", "%C3%BC").replace("–", "%E2%80%93")
        assert server.ask("GET", f"/datasets/{name}/files/{address}").body == wanted[path]
    expect(page.locator("img.sheet.there")).to_be_visible()


@pytest.mark.parametrize(("how", "kind"), [("As a folder", "folder"), ("As one file", "file")])
def test_a_tar_is_uploaded_as_a_folder_or_as_one_file(
    page: Page, server: Server, name: str, tmp_path: Path, how: str, kind: str
) -> None:
    (tmp_path / "it.tar").write_bytes(tar_of({"cat/1.jpg": painted(1)}))
    page.goto(f"{server.url}/#/{name}")
    page.get_by_label("Choose a file").set_input_files(tmp_path / "it.tar")
    expect(page.get_by_role("button", name="As a folder")).to_be_focused()
    page.get_by_role("button", name=how).click()
    expect(page.locator("#said")).to_contain_text("is version 1")
    assert server.ask("GET", f"/datasets/{name}/card").json["newest"]["kind"] == kind


def test_progress_is_shown_and_an_upload_is_cancelled(page: Page, server: Server, name: str, tmp_path: Path) -> None:
    (tmp_path / "slow.bin").write_bytes(bytes(8_000_000))
    page.goto(f"{server.url}/#/{name}")
    slow_down(page, 400_000)
    page.get_by_label("Choose a file").set_input_files(tmp_path / "slow.bin")
    page.wait_for_function("() => { const bar = document.querySelector('progress'); return bar && bar.value > 0 }")
    bar = page.get_by_role("progressbar", name=f"slow.bin to {name}")
    assert 0 < bar.evaluate("bar => bar.value / bar.max") < 1
    expect(page.locator(".state")).to_contain_text("of 8 MB")
    page.screenshot(path=tmp_path / "progress.png")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".state")).to_have_text("cancelled")
    assert server.ask("GET", f"/datasets/{name}/card").json["newest"] is None
    page.get_by_role("button", name="Dismiss").click()
    expect(page.locator("#dock section")).to_have_count(0)


def test_a_large_upload_resumes_after_the_server_is_killed(browser: Browser, tmp_path: Path) -> None:
    size = 70_000_000
    with open(tmp_path / "large.bin", "wb") as file:
        file.write(b"begin")
        file.seek(size - 3)
        file.write(b"end")
    with Server(tmp_path / "root") as first, watched(browser, first.url, but="net::ERR_") as page:
        first.create("large")
        page.goto(f"{first.url}/#/large")
        slow_down(page, 15_000_000)
        page.get_by_label("Choose a file").set_input_files(tmp_path / "large.bin")
        page.wait_for_function(f"() => document.querySelector('progress')?.value > {5 << 23}")
        first.kill()
        expect(page.locator(".state")).to_contain_text("connection lost")
        with Server(tmp_path / "root", "--port", str(first.port)) as server:
            expect(page.locator("#said")).to_contain_text("is version 1")
            newest = server.ask("GET", "/datasets/large/card").json["newest"]
            assert (newest["bytes"], newest["filename"]) == (size, "large.bin")
            for asked, found in (("bytes=0-4", b"begin"), (f"bytes={size - 4}-", b"\0end")):
                assert server.ask("GET", "/datasets/large", headers={"Range": asked}).body == found
    assert list((tmp_path / "root" / "incoming").iterdir()) == []


def test_a_large_upload_that_is_cancelled_leaves_nothing(
    browser: Browser, server: Server, name: str, tmp_path: Path
) -> None:
    with open(tmp_path / "large.bin", "wb") as file:
        file.truncate(70_000_000)
    # The service may still hold the interrupted slice; the page then asks again.
    with watched(browser, server.url, but="status of 409") as page:
        page.goto(f"{server.url}/#/{name}")
        slow_down(page, 8_000_000)
        page.get_by_label("Choose a file").set_input_files(tmp_path / "large.bin")
        page.wait_for_function(f"() => document.querySelector('progress')?.value > {1 << 24}")
        with page.expect_response(lambda answer: answer.request.method == "DELETE" and answer.status == 204):
            page.get_by_role("button", name="Cancel").click()
        expect(page.locator(".state")).to_have_text("cancelled")
        assert list((server.root / "incoming").iterdir()) == []


def test_a_refused_upload_is_shown_with_its_request(
    browser: Browser, server: Server, name: str, tmp_path: Path
) -> None:
    (tmp_path / "no.tar").write_bytes(b"this is no tar" * 100)
    with watched(browser, server.url, but="status of 400") as page:
        page.goto(f"{server.url}/#/{name}")
        page.get_by_label("Choose a file").set_input_files(tmp_path / "no.tar")
        page.screenshot(path=tmp_path / "asked.png")
        page.get_by_role("button", name="As a folder").click()
        alert = page.locator(".drop").get_by_role("alert")  # the file was dropped here
        expect(alert).to_contain_text("The service refused this data.")
        expect(alert.get_by_text("Wanted a tar. Found:")).to_be_visible()
        expect(alert).to_contain_text(re.compile(r"Request id: [0-9a-f]{16}"))
        expect(page.get_by_role("button", name="Try again")).to_have_count(0)  # the same bytes would fail again
        page.screenshot(path=tmp_path / "refused.png")
        page.get_by_role("link", name="Datasets", exact=True).click()
        expect(page.locator("#dock").get_by_role("alert")).to_be_visible()
        page.go_back()
        expect(page.locator(".drop").get_by_role("alert")).to_be_visible()
        page.get_by_role("button", name="Dismiss").click()
        expect(page.get_by_role("alert").filter(visible=True)).to_have_count(0)


def test_an_upload_is_tried_again_and_goes_away_once_it_is_done(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "file.bin").write_bytes(b"x")
    with Server(tmp_path / "root") as server, watched(browser, server.url, but="net::ERR_") as page:
        server.create("left")
        page.goto(f"{server.url}/#/left")
        expect(page.get_by_text("Upload the first version")).to_be_visible()
        page.clock.install()
        server.kill()
        page.get_by_label("Choose a file").set_input_files(tmp_path / "file.bin")
        expect(page.locator(".drop").get_by_role("alert")).to_contain_text("The service does not respond.")
        with Server(tmp_path / "root", "--port", str(server.port)) as again:
            page.get_by_role("button", name="Try again").click()
            expect(page.locator("#said")).to_contain_text("is version 1")
            assert again.ask("GET", "/datasets/left").body == b"x"
            dismiss = page.get_by_role("button", name="Dismiss")
            dismiss.focus()
            page.clock.fast_forward(20_000)
            expect(dismiss).to_be_focused()  # it stays as long as it has the focus
            page.get_by_role("link", name="Datasets", exact=True).focus()
            page.clock.fast_forward(20_000)
            expect(page.locator(".work")).to_have_count(0)


def test_a_service_with_tokens_is_used_with_one(browser: Browser, tmp_path: Path) -> None:
    root = tmp_path / "root"
    tokens = {scope: token_of(root, scope, name=scope) for scope in SCOPES}
    (tmp_path / "one.jpg").write_bytes(painted(7))
    with ServerInThread(root) as server, watched(browser, server.url, but="status of 40") as page:
        page.add_init_script("delete window.showSaveFilePicker")  # a file dialog would block the test
        page.goto(server.url)
        dialog = page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        dialog.get_by_label("Token").fill("wrong")
        dialog.get_by_role("button", name="Use token").click()
        expect(dialog.get_by_role("alert")).to_contain_text("This token is unknown")
        page.screenshot(path=tmp_path / "token.png")
        dialog.get_by_label("Token").fill(tokens["read"])
        page.keyboard.press("Enter")
        expect(page.get_by_text("There are no datasets yet")).to_be_visible()
        page.get_by_label("New dataset").fill("mine")
        page.get_by_role("button", name="Create").click()
        expect(page.get_by_role("alert").filter(has_text="Your token permits reading only.")).to_be_visible()
        page.get_by_role("button", name="Token").click()
        dialog.get_by_label("Token").fill(tokens["write"])
        page.keyboard.press("Enter")
        expect(dialog).to_be_hidden()
        expect(page.locator("main[aria-busy]")).to_have_count(0)  # the list is loaded again, with an empty field
        page.get_by_label("New dataset").fill("mine")
        page.get_by_role("button", name="Create").click()
        page.get_by_label("Choose a file").set_input_files(tmp_path / "one.jpg")
        expect(page.locator("img.picture")).to_be_visible()
        expect(page.locator(".command code").first).to_contain_text("Authorization: Bearer $TOKEN")
        with page.expect_download() as coming:
            page.get_by_role("link", name="Download version 1").first.click()
        assert coming.value.path().read_bytes() == painted(7)
        assert tokens["write"] not in page.content()
        page.get_by_role("button", name="Token").click()
        dialog.get_by_role("button", name="Remove it").click()
        expect(dialog).to_be_visible()
        assert page.evaluate("() => sessionStorage.length") == 0


def test_commands_are_copied(browser: Browser, server: Server) -> None:
    with watched(browser, server.url, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.goto(f"{server.url}/#/table")
        copied = "() => navigator.clipboard.readText()"
        page.get_by_role("button", name="Copy: Download").click()
        expect(page.locator("#said")).to_have_text("Download: copied")
        assert page.evaluate(copied) == f"curl -fLOJ {server.url}/datasets/table"
        page.get_by_role("tab", name="curl").press("ArrowLeft")
        expect(page.get_by_role("tab", name="Job")).to_be_focused()
        page.get_by_role("button", name="Copy: The dataset").click()
        expect(page.locator("#said")).to_contain_text("/datasets/table on each worker: copied")
        job = yaml.safe_load(page.evaluate(copied))
        assert (job["kind"], job["apiVersion"], job["spec"]["dataset"]) == ("TrainingJob", "breezeml.ai/v1", "table")
        assert job["spec"]["replicaSpecs"]["template"]["spec"]["containers"][0]["command"][0] == "python"
        page.get_by_role("tab", name="Python").click()
        expect(page.get_by_role("tabpanel")).to_contain_text(f'hub.connect("{server.url}").pull("table"')


def test_a_copied_job_is_valid_for_any_dataset_name(page: Page, server: Server, tmp_path: Path) -> None:
    name = "A_" + "very-long-" * 9
    server.create(name[:90].strip("-"))
    page.goto(f"{server.url}/#/{name[:90].strip('-')}")
    page.get_by_role("tab", name="Job").click()
    text = page.get_by_role("tabpanel").locator("code").inner_text()
    (tmp_path / "job.yaml").write_text(text)
    assert read_job(tmp_path / "job.yaml").dataset == name[:90].strip("-")


def test_copied_curl_commands_work(page: Page, server: Server, name: str, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("wants curl on PATH")
    filename = "Größe \"maß\" 'n'.csv"
    (tmp_path / filename).write_bytes(b"again")
    (tmp_path / "my_folder").mkdir()
    (tmp_path / "my_folder" / "a.txt").write_bytes(b"a")
    assert server.put(name, b"x", Content_Disposition=f"attachment; filename*=UTF-8''{quote(filename)}").status == 200
    page.goto(f"{server.url}/#/{name}")
    expect(page.locator(".command code").first).to_be_visible()
    download, upload, folder = page.get_by_role("tabpanel").locator("code").all_inner_texts()

    def run(command: str) -> None:
        (tmp_path / "into").mkdir(exist_ok=True)
        place = tmp_path / "into" if command == download else tmp_path
        subprocess.run(["bash", "-ec", command], cwd=place, check=True, capture_output=True, timeout=60)

    run(upload)
    newest = server.ask("GET", f"/datasets/{name}/card").json["newest"]
    assert (newest["version"], newest["filename"]) == (2, filename)
    run(download)
    assert [file.read_bytes() for file in (tmp_path / "into").iterdir()] == [b"again"]
    run(folder)
    assert paths_of(server, name) == {"a.txt": 1}


def test_the_page_runs_only_its_own_scripts(server: Server) -> None:
    answer = server.ask("GET", "/")
    policy = answer.headers["content-security-policy"]
    assert answer.headers["content-type"].startswith("text/html")
    assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= set(policy.split("; "))
    assert "unsafe" not in policy
    assert server.ask("GET", "/", headers={"If-None-Match": answer.headers["etag"]}).status == 304
    assert server.ask("GET", "/page/page.js").headers["content-type"].startswith("text/javascript")
    assert server.ask("GET", "/page/..%2fcommands.py").status == 404
    page = Path(__file__).resolve().parents[2] / "imagestrata" / "service" / "page"
    for file in page.iterdir():
        hosts = set(re.findall(r"https?://[^\s\"'`/]+", file.read_text(encoding="utf-8")))
        assert hosts <= {"http://www.w3.org"}, file  # the SVG namespace, which is not requested


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 400)])
def test_nothing_is_wider_than_the_window(
    browser: Browser, server: Server, tmp_path: Path, scheme: str, width: int
) -> None:
    size = {"width": width, "height": 800}
    with watched(browser, server.url, color_scheme=scheme, viewport=size, reduced_motion="reduce") as page:
        for name in ("", "animals", "table", "nothing-yet"):
            page.goto(f"{server.url}/#/{name}")
            expect(page.get_by_role("heading", level=1, name=name or "Datasets")).to_be_visible()
            if name == "animals":
                expect(page.locator("img.sheet.there")).to_be_visible()
                page.locator(".cells button").first.click()
                expect(page.get_by_role("dialog").get_by_role("img")).to_be_visible()
                page.screenshot(path=tmp_path / f"viewer-{scheme}-{width}.png")
                inside = (
                    "dialog => dialog.scrollWidth <= dialog.clientWidth && dialog.scrollHeight <= dialog.clientHeight"
                )
                assert page.get_by_role("dialog").evaluate(inside)
                page.keyboard.press("Escape")
                page.locator("details.split").first.locator("summary").click()
                page.get_by_role("tab", name="Job").click()
            page.screenshot(path=tmp_path / f"{name or 'list'}-{scheme}-{width}.png", full_page=True)
            assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), name
