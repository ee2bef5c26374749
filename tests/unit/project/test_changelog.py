"""The changelog: its sections, and only what a user of a release can have seen."""

from __future__ import annotations

import configparser
import re

import pytest

from tests.house import ROOT

TEXT = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")

SECTIONS = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)


def test_the_first_section_is_what_is_not_released():
    assert SECTIONS[0] == "Unreleased"


def test_releases_have_a_version_and_a_date_newest_first():
    versions = []
    for section in SECTIONS[1:]:
        name = re.fullmatch(r"(\d+)\.(\d+)\.(\d+) - \d{4}-\d\d-\d\d", section)
        assert name, f"{section!r} is not VERSION - DATE"
        versions.append([int(part) for part in name.groups()])

    assert versions == sorted(versions, reverse=True)


def test_before_its_first_release_the_changelog_tells_no_history():
    """Nobody has seen what was mended before the first release."""
    if len(SECTIONS) > 1:
        pytest.skip("a version has been released")
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")

    assert f"The first release will be {setup['metadata']['version']}." in TEXT
    assert not re.findall(r"^.*(?:\bBefore,|\bis gone\b|\bdid before\b).*$", TEXT, re.MULTILINE)


def test_every_line_of_a_list_belongs_to_a_subject():
    subject = ""
    for line in TEXT.splitlines():
        if line.startswith("#"):
            subject = line if line.startswith("### ") else ""
        assert subject or not line.startswith("- "), line
