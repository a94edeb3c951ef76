"""The small pieces that a split's page is built of: text, tables, keys, colours. Pure."""

import html
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_LONG = 28
_SHADES = ("{}", "color-mix(in srgb,{} 55%,var(--paper))", "color-mix(in srgb,{} 60%,var(--ink))")
_HUES = 7


class OfClass(NamedTuple):
    """A class: its images and its ideal by split, the images that there are, in how many splits each stands."""

    name: str
    images: Sequence[int]
    ideal: Sequence[float]
    there: int
    copies: int

    @property
    def used(self) -> float:
        """Images in a split."""
        return sum(self.images) / self.copies

    @property
    def left_out(self) -> int:
        """Images in no split; negative where images stand in several splits and nobody said so."""
        return self.there - sum(self.images) // self.copies

    def off(self, split: int) -> float:
        """Images away from the ideal, without the last digits of a quotient, which are noise."""
        return round(abs(self.images[split] - self.ideal[split]), 6)


def table(css: str, heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already; the first of each line names it."""
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    body = ""
    for first, *cells in lines:
        body += f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
    head = f"<thead><tr>{head}</tr></thead>" if head else ""
    return f'<div class="across"><table class="{css}">{head}<tbody>{body}</tbody></table></div>'


def text(text: str) -> str:
    """Text for anywhere in the page; what is no Unicode, as bytes in old file names, becomes a question mark."""
    return html.escape(text.encode("utf-8", "replace").decode())


def number(number: int, one: str, many: str) -> str:
    """A number with its noun."""
    return f"{number:,} {one if number == 1 else many}"


def short(name: str) -> str:
    """The two ends of a long name."""
    return name if len(name) <= 2 * _LONG else f"{name[:_LONG]}…{name[-_LONG:]}"


def hint(name: str) -> str:
    """The attribute that tells a whole name where it may not be seen whole."""
    return f' title="{text(name)}"' if len(name) > _LONG else ""


def key(names: Sequence[str], split: int) -> str:
    """The name of a split with its colour."""
    return f'<span class="key c{split}"></span>{text(names[split])}'


def colours(splits: int) -> str:
    """A colour a split, for its bars and its column: the hues, then these paler, then darker."""
    colours = (_SHADES[split // _HUES % len(_SHADES)].format(f"var(--h{split % _HUES})") for split in range(splits))
    return "\n".join(f".c{at},.cells td:nth-child({at + 2}){{--c:{colour}}}" for at, colour in enumerate(colours))
