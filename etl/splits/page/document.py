"""The report of a split as one HTML page without scripts and external resources. Pure: facts in, text out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jinja2

from etl.splits.page.classes import OfClass, bars, listed_ends, outline

_NAMED_BARS = 60  # with more classes, the page shows one outline


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFacts:
    """The contents of the page, as plain text without escapes. ``rows``, ``ideal_rows`` (from the ratios) and
    ``fingerprints`` have one entry per split, like ``split_names``. ``classes`` has name, images by split, ideal by
    split and images in all, in any order; it is empty for images without classes. ``leaks`` has numbers by what they
    count, for each kind of leak; a kind without numbers was not checked. ``copies`` is the number of splits that an
    image is in: the number of folds.
    """

    title: str
    facts: Mapping[str, str]
    split_names: Sequence[str]
    rows: Sequence[int]
    ideal_rows: Sequence[float]
    fingerprints: Sequence[str]
    classes: Sequence[tuple[str, Sequence[int], Sequence[float], int]]
    leaks: Mapping[str, Mapping[str, int]]
    warnings: Sequence[str]
    copies: int = 1


def render(facts: PageFacts) -> str:
    """Render the page as HTML, in light and dark. It needs neither scripts nor a network. Classes are sorted from the
    largest to the smallest; classes of equal size keep their order. If there are very many, the table has only the
    largest and the smallest and says so; totals cover all classes.
    """
    loader = jinja2.PackageLoader("etl.splits.page", ".")  # also works if the package is in a zip
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["as"] = format
    names = facts.split_names
    classes = sorted((OfClass(*found, facts.copies) for found in facts.classes), key=lambda one: -one.there)
    judged = classes or [OfClass("", facts.rows, facts.ideal_rows, sum(facts.rows), facts.copies)]
    deviations = [(off, one.name, name) for one in judged for name, off in zip(names, one.off, strict=True)]
    # The page stays below a few megabytes.
    ends = listed_ends(len(classes), len(names))
    listed = classes if ends is None else [*classes[:ends], *classes[-ends:]]
    page = environment.get_template("page.html.j2").render(
        facts=facts,
        names=names,
        classes=classes,
        far=sum(off >= 1 for off, _, _ in deviations),
        worst=max(deviations, key=lambda found: found[0]),
        bars=bars(names, classes) if len(classes) <= _NAMED_BARS else None,
        outline=outline(classes) if len(classes) > _NAMED_BARS else None,
        ends=ends,
        splits=range(len(names)),
        listed=listed,
        is_whole=all(round(ideal, 6) % 1 == 0 for one in listed for ideal in one.ideal),
    )
    # Text that is not Unicode, such as bytes in old file names, becomes question marks.
    return page.encode("utf-8", "replace").decode()
