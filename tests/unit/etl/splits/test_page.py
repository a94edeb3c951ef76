"""The page of a split: its contents, escaped names, and no external resources."""

import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.splits.page.document import PageFacts, render

VOID = {"meta"}
EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&amp;</title></style>"


class Page(HTMLParser):
    """A parsed page: its tags and attributes, its text, and unbalanced tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.wrong: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        self.wrong += [f"{tag} stays open" for tag in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.wrong.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text += data

    def paths(self) -> dict[str, list[int]]:
        """The height of each outline, from 0 at the bottom to 1000, by its class."""
        found = [attributes for tag, attributes in self.tags if tag == "path"]
        return {str(path["class"]): [1000 - int(y) for y in re.findall(r"V(\d+)h1", str(path["d"]))] for path in found}


def facts_of(
    classes: Sequence[tuple[str, Sequence[int], Sequence[float], int]], *, splits: int = 2, copies: int = 1
) -> PageFacts:
    return PageFacts(
        title="splits/pets",
        facts={"ratios": "8 : 2", "seed": "7"},
        split_names=[f"split {split}" for split in range(splits)],
        rows=[sum(images[split] for _, images, _, _ in classes) for split in range(splits)],
        ideal_rows=[sum(ideal[split] for _, _, ideal, _ in classes) for split in range(splits)],
        fingerprints=[f"{split:02x}" * 32 for split in range(splits)],
        classes=classes,
        leaks={},
        warnings=[],
        copies=copies,
    )


def zipf(classes: int, *, splits: int) -> PageFacts:
    """Very even shares; names as long as those of ImageNet."""
    found = []
    for number in range(classes):
        there = 100_000 // (number + 1) + 2
        images = [there // splits + (split < there % splits) for split in range(splits)]
        found.append((f"n{number:08} of a usual length", images, [there / splits] * splits, there))
    return facts_of(found, splits=splits)


PETS = facts_of(
    [
        ("dog", (81, 20), (80.8, 20.2), 150),
        ("axolotl", (3, 1), (3.2, 0.8), 4),
        ("cat", (1600, 400), (1600.0, 400.0), 2000),
    ]
)


def test_the_page_shows_every_class_split_number_and_fact() -> None:
    text = Page(render(PETS)).text
    for shown in ("splits/pets", "dog", "axolotl", "cat", "split 0", "split 1", "ratios", "8 : 2", "seed"):
        assert shown in text
    for shown in ("1,684", "421", "80.00%", "20.00%", "010101010101", "1,600", "80.8", "2,000"):
        assert shown in text
    assert "0101010101010" not in text
    assert "2,105 images of 3 classes in 2 splits." in text


def test_classes_are_sorted_by_size_and_ties_keep_their_order() -> None:
    same = facts_of([(name, (1, 1), (1.0, 1.0), 2) for name in "cab"] + [("large", (2, 2), (2.0, 2.0), 4)])
    names = re.findall(r'<th scope="row">(\w+)</th>', render(same))
    assert names[-4:] == ["large", "c", "a", "b"]


def test_left_out_images_are_shown() -> None:
    page = render(PETS)
    assert "<td>49</td><td>150</td>" in page
    assert "<td>0</td><td>4</td>" in page
    assert "101 <i>of 150</i>" in page
    assert 'class="key rest"' in page
    all_used = replace(PETS, classes=PETS.classes[1:])
    assert 'class="key rest"' not in render(all_used)


def test_bars_are_as_long_as_their_share_of_the_largest_class() -> None:
    rects = [attributes for tag, attributes in Page(render(PETS)).tags if tag == "rect"]
    ends = {css: float(str(one["x"])) + float(str(one["width"])) for one in rects[:2] for css in [one["class"]]}
    assert ends["c0"] == pytest.approx(800, abs=2)
    assert ends["c1"] == pytest.approx(1000, abs=2)


def test_deviations_from_the_requested_balance_are_reported() -> None:
    page = Page(render(PETS)).text
    assert "In every split, every class deviates by less than one image from its target." in page
    assert "The largest deviation is 0.20" in page
    off = replace(PETS, classes=[("dog", (85, 16), (80.8, 20.2), 150), *PETS.classes[1:]])
    page = render(off)
    assert "In <b>2 of 6</b> cases, a class in a split is <b>off by one image or more</b>." in page
    assert "The largest deviation is 4.20: dog in split" in page
    assert "<td>4.20</td><td>1.467</td><td>1</td>" in page
    assert page.count("<b>85</b>") == 1
    assert "<b>1,600</b>" not in page


def test_rounding_noise_is_not_a_deviation() -> None:
    page = render(facts_of([("cat", (3, 1), (2.0000000001, 1.9999999999), 4)]))
    assert "In <b>2 of 2</b> cases" in page
    assert "<td>1.00</td><td>1.000</td><td>1</td>" in page
    assert "<b>3</b>" in page


def test_warnings_come_before_anything_else() -> None:
    assert 'class="warnings"' not in render(PETS)
    page = render(replace(PETS, warnings=["3 groups lie in two splits", "1 class is small"]))
    assert page.index("2 warnings") < page.index("1 class is small") < page.index("Source and options")
    assert "⚠ 1 warning<" in render(replace(PETS, warnings=["one"]))


def test_leaks_are_shown_as_numbers_or_none_found_or_not_checked() -> None:
    unchecked = "not checked: the metadata has no such column"
    assert unchecked in Page(render(PETS)).text
    leaks = {"exact duplicates": {"groups": 0, "images": 0}, "look-alikes": {"groups": 3, "images": 1007, "labels": 0}}
    text = Page(render(replace(PETS, leaks=leaks))).text
    assert "exact duplicatesnone found" in text
    assert "look-alikes⚠ groups: 3; images: 1,007; labels: 0" in text
    assert unchecked not in text
    assert f"persons{unchecked}" in Page(render(replace(PETS, leaks={**leaks, "persons": {}}))).text


def test_images_without_classes_have_a_page() -> None:
    none = replace(PETS, classes=[], rows=[801, 200], ideal_rows=[800.8, 200.2])
    page = Page(render(none))
    assert "The images have no classes. No split deviates by more than 0.20 rows from its target." in page.text
    assert "1,001 images without classes in 2 splits." in page.text
    assert not page.wrong


def test_folds_count_an_image_once() -> None:
    found = facts_of([("cat", (6, 4, 4, 6), (6.0, 4.0, 4.0, 6.0), 13)], splits=4, copies=2)
    page = render(found)
    assert "10 images of 1 class, each in 2 of 4 splits, once per fold." in page
    assert "<td>60.00%</td><td>60.00%</td>" in page
    assert "<td>3</td><td>13</td>" in page
    assert "10 <i>of 13</i>" in page
    assert '<rect class="rest" x="769.2"' in page
    outline = Page(render(replace(found, classes=[*found.classes] * 61))).paths()
    assert outline["c3"] == [769] * 61
    assert "<td>–</td><td>13</td>" in render(replace(found, copies=1))


@pytest.mark.parametrize("classes", [3, 61, 1_500])
def test_nothing_in_a_name_becomes_html(classes: int) -> None:
    evil = replace(
        PETS,
        title=EVIL,
        facts={EVIL: EVIL},
        split_names=[EVIL, EVIL * 3],
        fingerprints=["<b>" * 9, EVIL],
        classes=[(f"{EVIL * (number % 3)}{number}", (1, 2), (1.4, 1.6), 3) for number in range(classes)],
        leaks={EVIL: {EVIL: 1}},
        warnings=[EVIL],
    )
    text = render(evil)
    assert "&amp;lt;" not in text
    page = Page(text)
    assert not page.wrong
    assert not {"script", "img"} & {tag for tag, _ in page.tags}
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert page.text.count(EVIL) > 10


def test_a_lone_surrogate_in_a_name_is_rendered() -> None:
    assert b"cat?" in render(facts_of([("cat\udcff", (1, 1), (1.0, 1.0), 2)])).encode()


@pytest.mark.parametrize("facts", [PETS, zipf(200, splits=20)], ids=["bars", "outline"])
def test_the_page_is_self_contained(facts: PageFacts) -> None:
    page = render(facts)
    assert not re.search(r"https?:|//|<script|\b(src|href)=|url\(|@import", page)
    assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page
    assert Page(page).tags[0] == ("html", {"lang": "en"})
    assert "prefers-color-scheme: dark" in page


def test_no_text_is_small() -> None:
    sizes = re.findall(r"font(?:-size)?: ?([\d.]+)(px|rem)", render(PETS))
    assert sizes
    assert min(float(size) * (16 if unit == "rem" else 1) for size, unit in sizes) >= 12


def test_many_classes_are_drawn_as_an_outline_with_labelled_ends() -> None:
    page = Page(render(zipf(1_000, splits=3)))
    assert not page.wrong
    outline = page.paths()
    assert list(outline) == ["rest", "c2", "c1", "c0"]
    assert [len(heights) for heights in outline.values()] == [1_000] * 4
    assert outline["rest"] == outline["c2"] == sorted(outline["c2"], reverse=True)
    assert outline["c2"][0] == 1000
    assert outline["c0"][0] == pytest.approx(333, abs=1)
    assert "largest: n00000000 of a usual length, 100,002" in page.text
    assert "smallest: n00000999 of a usual length, 102" in page.text
    assert "1. n00000000 of a usual length: 33,334 + 33,334 + 33,334" in page.text


@pytest.mark.parametrize(("smallest", "scale"), [(20, "linear scale"), (19, "log scale")])
def test_the_axis_is_logarithmic_when_sizes_differ_much_and_says_so(smallest: int, scale: str) -> None:
    sizes = [1_000] + [smallest] * 80 + [0]
    page = Page(render(facts_of([(f"{size}", (size, 0), (float(size), 0.0), size) for size in sizes])))
    assert f"images per class ({scale}" in page.text
    *_, height, of_none = page.paths()["c0"]
    assert height == pytest.approx(20 if scale == "linear scale" else 149, abs=1)
    assert of_none == 0


def test_very_many_classes_are_listed_by_the_largest_and_smallest() -> None:
    page = render(zipf(5_000, splits=2))
    assert "The table lists the 2,000 largest and the 2,000 smallest of 5,000 classes." in page
    assert "1,000 classes between these are not listed." in page
    for number, listed in ((1_999, True), (2_000, False), (2_999, False), (3_000, True)):
        assert (f'row" title="n{number:08} of a usual length"' in page or f'row">n{number:08} of' in page) is listed
    assert "The table lists" not in render(zipf(4_000, splits=2))


@pytest.mark.parametrize(
    ("classes", "splits", "most"), [(1_000, 3, 600_000), (20_000, 3, 2_000_000), (3_000, 20, 4_000_000)]
)
def test_pages_stay_small(classes: int, splits: int, most: int) -> None:
    assert len(render(zipf(classes, splits=splits)).encode()) < most


@settings(max_examples=30, deadline=None)
@given(data=st.data(), splits=st.integers(1, 4), classes=st.integers(0, 70), copies=st.integers(1, 3))
def test_any_numbers_give_a_valid_page(data: st.DataObject, splits: int, classes: int, copies: int) -> None:
    images = st.sampled_from([0, 1, 2, 9, 1_000, 10**9])
    found = []
    for number in range(classes):
        row = data.draw(st.lists(images, min_size=splits, max_size=splits))
        found.append((f"class {number}", row, [float(one) for one in row], data.draw(images)))
    facts = facts_of(found, splits=splits, copies=copies)
    page = Page(render(facts))
    assert not page.wrong
    assert not re.search(r"\b(nan|inf)\b", page.text)
    assert all(0 <= height <= 1000 for heights in page.paths().values() for height in heights)
    assert render(facts) == render(facts)
