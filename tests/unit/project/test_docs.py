"""The documents match the project: links, commands, the map of the code."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

from tests.house import ROOT, house_files


def anchors(document: Path) -> set[str]:
    """Return the anchors that a forge gives to the headings of a document."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "document", house_files(".md"), ids=lambda path: path.relative_to(ROOT).as_posix()
)
def test_links_between_files_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = document.parent / name if name else document

        assert path.exists(), f"{document.name} links to {target}"
        if anchor:
            assert anchor in anchors(path), f"{document.name} links to {target}"


def test_ci_runs_the_test_command_of_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^```sh\n(.+)\n```$", readme, re.MULTILINE)
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()

    assert len(commands) == 2
    assert commands[0].endswith("wmp demo")
    assert commands[1].endswith("-m pytest")
    assert commands[1] in [line.strip() for line in script]


def test_lanes_and_budgets_of_the_documents_are_those_of_ci():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    document = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    lanes = re.findall(r"^lane (\w+) (\d+)$", script, re.MULTILINE)

    assert lanes == re.findall(r"^\| `(\w+)` \| (\d+) \|", document, re.MULTILINE)
    total = sum(int(minutes) for _, minutes in lanes)
    assert total <= 25
    assert f"The budgets add up to {total} minutes." in document
    assert all(f"\nlane_{name}() {{\n" in script for name, _ in lanes)


def test_named_lanes_are_environments_of_tox():
    environments = configparser.ConfigParser()
    environments.read(ROOT / "tox.ini", encoding="utf-8")
    document = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`tox -e (\w+)", document))

    assert {"deep", "soak", "mutants", "bench"} <= named
    assert {f"testenv:{name}" for name in named} <= set(environments.sections())


def test_one_lane_installs_every_extra():
    settings = configparser.ConfigParser()
    settings.read([ROOT / "setup.cfg", ROOT / "tox.ini"], encoding="utf-8")
    extras = set(settings["options.extras_require"])
    (listed,) = re.findall(r"-e '\.\[([\w,]+,[\w,]+,[\w,]+)\]'", (ROOT / ".ci" / "run").read_text())

    assert set(listed.split(",")) == extras
    assert set(settings["testenv:extras"]["extras"].split()) == extras


def test_the_map_of_the_code_is_complete():
    drawing = (ROOT / "docs" / "map.md").read_text(encoding="utf-8")
    drawn = {name.removesuffix(".py") for name in re.findall(r"`([\w/]+?)/?(?:\.py)?`", drawing)}
    modules = {f"wmp/{path.stem}" for path in (ROOT / "wmp").glob("[!_]*.py")}
    packages = {
        path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("wmp/**/__init__.py")
    }
    inside = (modules | packages) - {"wmp"}
    beside = {
        path.name
        for path in ROOT.iterdir()
        if path.is_dir()
        and not path.name.startswith((".", "_"))
        and not path.name.endswith(".egg-info")
        and path.name not in ("wmp", "build", "dist")
    }

    assert not (inside | beside) - drawn, "docs/map.md does not show these"
    assert not {name for name in drawn if name.startswith("wmp/")} - inside, "these are not there"
