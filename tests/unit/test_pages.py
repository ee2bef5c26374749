"""Pages: text is never markup; drawings; amounts in words."""

from __future__ import annotations

import re
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
    assert [one.get("class") for one in drawn] == [SHOWN] * 5
    assert [one.findtext("title") for one in drawn] == [SHOWN] * 4 + [None]
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


def test_an_axis_of_time_has_a_handful_of_round_ticks() -> None:
    scale = TimeScale(5e6, 5e6 + 3.7e6, 100, 200)

    assert [scale.at(5e6), scale.at(8.7e6)] == [100, 200]
    assert scale.ticks() == pytest.approx([0, 5e5, 1e6, 1.5e6, 2e6, 2.5e6, 3e6, 3.5e6])
    assert TimeScale(5, 5, 100, 200).ticks() == [0]
