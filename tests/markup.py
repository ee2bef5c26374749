"""The elements of a page, and a text that must never become markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

HOSTILE = "</title><script>alert(1)</script> \"x' onload='alert(2)' &amp; --> \x00\x1b\udfff"
SHOWN = re.sub("[\x00\x1b\udfff]", "\ufffd", HOSTILE)
"""The text as a page shows it: HTML and XML cannot hold its last three characters."""
HARMLESS = re.sub(r"[^\w ]", lambda sign: "abcdefghijk"[ord(sign[0]) % 11], HOSTILE)
"""A harmless text of the same length and with the same spaces: its page has the same elements."""

_VOID = ("meta", "br", "input")


class Tags(HTMLParser):
    """Collects the elements of a page, and checks that each is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    @property
    def structure(self) -> list[tuple[str, list[str]]]:
        """Return each element with the names of its attributes."""
        return [(tag, list(given)) for tag, given in self.seen]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
