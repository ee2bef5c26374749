"""Pages: text is never markup; drawings; amounts in words."""

from __future__ import annotations

import re
from datetime import datetime
from importlib import resources
from xml.etree import ElementTree

import pytest
from jinja2 import UndefinedError

from tests.markup import HARMLESS, HOSTILE, SHOWN, Tags
from wmp.pages.sequence import Lifeline, SequenceDiagram
from wmp.pages.svg import Drawing, TimeScale, clip
from wmp.pages.template import amount, duration, render


def drawing(text: str) -> str:
    sheet = Drawing(100, 100)
    sheet.text(1, 2, text, text, "end", text)
    sheet.rect(1, 2, 3, 4, text, title=text)
    sheet.path([(0, 0), (1, 1)], text, title=text)
    sheet.circle(1, 2, 3, text, title=text)
    sheet.line(1, 2, 3, 4, text)
    return sheet.svg(text, text)


def test_text_and_attributes_of_a_drawing_are_no_markup() -> None:
    drawn = ElementTree.fromstring(drawing(HOSTILE))

    assert Tags(drawing(HOSTILE)).structure == Tags(drawing(HARMLESS)).structure
    assert drawn.get("aria-label") == SHOWN
    assert [element.get("class") for element in drawn] == [SHOWN] * 5
    assert [element.findtext("title") for element in drawn] == [SHOWN] * 4 + [None]
    assert drawn[0][0].tail == SHOWN


def test_no_template_takes_text_for_markup() -> None:
    folder = resources.files("wmp.pages").joinpath("templates")
    texts = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}

    assert len(texts) > 6
    assert not [name for name, text in texts.items() if re.search(r"\bsafe\b|autoescape", text)]


def test_a_missing_value_of_a_template_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        render("badge.svg", left="a", right="b")


def test_a_message_is_an_arrow_and_an_event_a_dot() -> None:
    diagram = SequenceDiagram([Lifeline("a"), Lifeline("b", "of b")], spacing=200, margin=100)
    diagram.time(0, "now")
    diagram.message(0, 0, [(1, 2)], "later")
    diagram.message(1, 1, [(0, 1)], "at once")
    diagram.event(2, 1, "it is there")
    diagram.sent(3, 1, "to nobody")
    diagram.received(4, 0, "from nobody")
    diagram.band(5, "much " * 40, "remark")
    drawn = ElementTree.fromstring(diagram.svg("a talk"))

    lines = [line for line in drawn.iter("line") if "arrow" in line.get("class", "")]
    ends = [[float(line.get(name, "")) for name in ("x1", "y1", "x2", "y2")] for line in lines]
    first, second = (float(line.get("x1", "")) for line in drawn.iter("line") if line not in lines)
    assert second - first == 200
    later, at_once, sent, received = ends
    assert later[0] == first
    assert 0 < second - later[2] < 16
    assert later[3] > later[1]
    assert at_once[0] == second
    assert 0 < at_once[2] - first < 16
    assert at_once[1] == at_once[3]
    assert sent[2] < sent[0] == second
    assert received[0] > received[2] > first
    assert len(list(drawn.iter("circle"))) == 2
    bottom = float(drawn.get("viewBox", "").split()[3])
    assert max(float(text.get("y", "")) for text in drawn.iter("text")) < bottom
    assert len([text for text in drawn.iter("text") if text.get("class") == "remark"]) > 1


def test_a_shortened_text_is_whole_in_its_tooltip() -> None:
    diagram = SequenceDiagram([Lifeline("a"), Lifeline("b")], spacing=200, margin=100)
    diagram.message(0, 0, [(1, 0)], "x" * 100)
    drawn = ElementTree.fromstring(diagram.svg("a talk"))

    (title,) = drawn.iter("title")
    assert title.text == "x" * 100
    assert len(title.tail or "") < 30
    assert clip("abcd", 3) == "ab…"


def test_words_for_amounts() -> None:
    assert [duration(x) for x in (None, 0, 850, 1234, 2.5e6, 9e7, 7.2e9)] == [
        "–", "0 µs", "850 µs", "1.23 ms", "2.5 s", "1.5 min", "2 h",
    ]  # fmt: skip
    assert [amount(x).replace("\u202f", " ") for x in (None, 0, 12345, 0.4212, 12345.6)] == [
        "–", "0", "12 345", "0.421", "12 346",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("low", "seconds", "shown"),
    [
        ("2026-11-27 00:47:00.283", 0.5, ["00:47:00.300", "00:47:00.400", "00:47:00.500",
                                          "00:47:00.600", "00:47:00.700"]),
        ("2026-11-27 00:47:00", 0.001, ["00:47:00.000000", "00:47:00.000200", "00:47:00.000400",
                                        "00:47:00.000600", "00:47:00.000800", "00:47:00.001000"]),
        ("2026-11-27 00:47:03", 100, ["00:47:15", "00:47:30", "00:47:45", "00:48:00", "00:48:15",
                                      "00:48:30"]),
        ("2026-11-27 23:10", 3 * 3600, ["23:30:00", "00:00:00", "00:30:00", "01:00:00", "01:30:00",
                                        "02:00:00"]),
        ("2026-12-31 20:10", 86_400, ["12-31 21:00", "01-01 00:00", "01-01 03:00", "01-01 06:00",
                                      "01-01 09:00", "01-01 12:00", "01-01 15:00", "01-01 18:00"]),
        ("2026-11-27", 86_400 * 9, ["2026-11-27", "2026-11-29", "2026-12-01", "2026-12-03",
                                    "2026-12-05"]),
        ("2026-11-27", 0, ["00:00:00.000000"]),
    ],
)  # fmt: skip
def test_an_axis_of_time_has_a_handful_of_ticks_that_a_clock_shows(low, seconds, shown) -> None:
    begin = int(datetime.fromisoformat(f"{low}+00:00").timestamp() * 1e6)
    scale, sheet = TimeScale(begin, begin + int(seconds * 1e6), 100, 200), Drawing(200, 20)
    sheet.time_axis(scale, 0, 10)

    assert [shape.text for shape in sheet.shapes if shape.tag == "text"] == shown
    assert [scale(begin - 1), scale(begin)] == [100, 100]
    assert scale(begin + 10**12) == (200 if seconds else 100)
