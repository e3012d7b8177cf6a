"""Small tables as aligned text and as HTML, and numbers of bytes in words."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def in_units(n_bytes: int) -> str:
    """Return a number of bytes in the largest binary unit that keeps it at 1 or more.

    >>> in_units(233_318_400)  # 1,550 images of 3 x 112 x 112 as float32
    '222.5 MiB'
    >>> in_units(12_400)
    '12.1 KiB'
    """
    for unit, size in _UNITS:
        if abs(n_bytes) >= size:
            return f"{n_bytes / size:,.1f} {unit}"
    return f"{n_bytes:,} bytes"


def in_bytes_and_units(n_bytes: int) -> str:
    """Return a number of bytes exactly, and in words where that says more.

    >>> in_bytes_and_units(58_329_600)
    '58,329,600 bytes (55.6 MiB)'
    """
    exact = f"{n_bytes:,} bytes"
    return exact if abs(n_bytes) < 1 << 10 else f"{exact} ({in_units(n_bytes)})"


@dataclass(frozen=True)
class Table:
    """Rows of text under optional headings, with an optional title and a note below.

    Args:
        rows: each a tuple of strings, all of one length.
        headings: one string a column, or empty for none.
        title: a line above the table.
        note: text below the table.
        right: the columns to be set flush right (numbers), by position.

    >>> print(Table((("images", "1,550"), ("classes", "10")), right=(1,)))
    images   1,550
    classes     10
    """

    rows: tuple[tuple[str, ...], ...]
    headings: tuple[str, ...] = ()
    title: str = ""
    note: str = ""
    right: tuple[int, ...] = ()

    def __str__(self) -> str:
        rows = ((self.headings,) if self.headings else ()) + self.rows
        widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))] if rows else []
        lines = [self._line(row, widths) for row in rows]
        if self.headings:
            lines.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join(part for part in (self.title, *lines, self.note) if part)

    def _line(self, row: tuple[str, ...], widths: list[int]) -> str:
        cells = (
            cell.rjust(width) if column in self.right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(cells).rstrip()

    def _repr_html_(self) -> str:
        head = "".join(self._cell("th", c, text) for c, text in enumerate(self.headings))
        body = "".join(
            f"<tr>{''.join(self._cell('td', c, text) for c, text in enumerate(row))}</tr>"
            for row in self.rows
        )
        return (
            (f"<p><strong>{escape(self.title)}</strong></p>" if self.title else "")
            + "<table>"
            + (f"<thead><tr>{head}</tr></thead>" if head else "")
            + f"<tbody>{body}</tbody></table>"
            + (f"<p>{escape(self.note)}</p>" if self.note else "")
        )

    def _cell(self, tag: str, column: int, text: str) -> str:
        side = "right" if column in self.right else "left"
        return f'<{tag} style="text-align: {side}">{escape(text)}</{tag}>'


def counted(n: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it is not one.

    >>> counted(1, "photo"), counted(1550, "photo"), counted(2, "class")
    ('1 photo', '1,550 photos', '2 classes')
    """
    ending = "es" if noun.endswith(("ss", "tch")) else "s"
    return f"{n:,} {noun}{'' if n == 1 else ending}"
