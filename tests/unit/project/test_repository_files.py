"""The files for contributors and forges: templates, workflow, hooks, policies, changelog."""

from __future__ import annotations

import configparser
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.house import ROOT, house_files

TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))

FORMS = [path for path in TEMPLATES if path.name != "config.yml"]
"""Issue templates with fields."""

ELEMENTS = {"checkboxes", "dropdown", "input", "markdown", "textarea"}
"""The kinds of elements that a form may have."""


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def metadata() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


# --- metadata ---


def test_every_address_of_the_metadata_is_one_that_the_readme_names():
    """An address of a host that nobody has set up would lead to a stranger."""
    lines = metadata()["metadata"]["project_urls"].strip().splitlines()
    urls = dict(line.split(" = ") for line in lines)

    assert "Specification" in urls
    for label, url in urls.items():
        assert f"({url})" in text_of("README.md"), label


# --- YAML ---


def yaml_files() -> list[Path]:
    return [
        *house_files(".yml"),
        *house_files(".yaml"),
        ROOT / ".pre-commit-config.yaml",
    ]


@pytest.mark.parametrize("path", yaml_files(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_yaml_file_can_be_read(path):
    assert list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def test_the_yaml_files_of_the_forge_are_among_them():
    names = {path.relative_to(ROOT).as_posix() for path in yaml_files()}

    assert ".github/workflows/ci.yml" in names
    assert ".github/ISSUE_TEMPLATE/config.yml" in names
    assert len(FORMS) >= 2


# --- the workflow ---


def workflow() -> Any:
    return load(ROOT / ".github" / "workflows" / "ci.yml")


def test_the_workflow_runs_the_checks_of_every_change():
    (job,) = workflow()["jobs"].values()

    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    # YAML 1.1 reads the key `on` as a boolean.
    assert {"push", "pull_request"} <= workflow()[True].keys()


def test_the_workflow_may_only_read_and_ends():
    assert workflow()["permissions"] == {"contents": "read"}
    budgets = re.findall(r"^lane \w+ (\d+)$", text_of(".ci/run"), re.MULTILINE)

    for job in workflow()["jobs"].values():
        assert "permissions" not in job
        assert sum(map(int, budgets)) < job["timeout-minutes"] <= 120


def test_the_workflow_uses_the_oldest_python_and_only_supported_ones():
    (job,) = workflow()["jobs"].values()
    pythons = job["strategy"]["matrix"]["python"]
    settings = metadata()
    supported = re.findall(r":: (3\.\d+)$", settings["metadata"]["classifiers"], re.MULTILINE)

    # Unquoted, 3.10 would be read as the number 3.1.
    assert all(isinstance(python, str) for python in pythons)
    assert set(pythons) <= set(supported)
    assert settings["options"]["python_requires"] == f">={pythons[0]}"
    assert len(pythons) <= 3, "each entry runs all lanes"


# --- hooks and editors ---


def test_hooks_run_the_checks_of_contributing_without_a_download():
    repositories = load(ROOT / ".pre-commit-config.yaml")["repos"]
    hooks = [hook for repository in repositories for hook in repository["hooks"]]
    contributing = text_of("CONTRIBUTING.md")

    assert [repository["repo"] for repository in repositories] == ["local"]
    assert all(hook["language"] == "system" for hook in hooks)
    entries = [re.sub(r" --force-exclude$", "", hook["entry"]) for hook in hooks]
    assert len(entries) == len({hook["id"] for hook in hooks}) == 4
    for entry in entries:
        assert entry in contributing, f"CONTRIBUTING.md does not name {entry}"


def test_editors_break_lines_where_ruff_does():
    ruff = tomllib.loads(text_of("ruff.toml"))

    assert f"max_line_length = {ruff['line-length']}\n" in text_of(".editorconfig")


def test_files_have_the_form_that_editors_are_told():
    wrong = []
    for path in house_files():
        try:
            text = path.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            continue
        if "\r" in text:
            wrong.append(f"{path}: a line ends in CR LF")
        if text and not text.endswith("\n"):
            wrong.append(f"{path}: the last line has no line feed")
        if re.search(r"[ \t]$", text, re.MULTILINE):
            wrong.append(f"{path}: a line ends in white space")

    assert not wrong, "\n".join(wrong)


# --- issues and change requests ---


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_a_form_has_what_a_forge_needs(path):
    form = load(path)
    fields = [element for element in form["body"] if element["type"] != "markdown"]

    assert form["name"]
    assert form["description"]
    assert {element["type"] for element in form["body"]} <= ELEMENTS
    ids = [element["id"] for element in fields]
    assert len(ids) == len(set(ids))
    for element in fields:
        assert element["attributes"]["label"]
        assert element["type"] not in ("dropdown", "checkboxes") or element["attributes"]["options"]


def test_the_form_of_a_bug_sends_vulnerabilities_elsewhere():
    assert "SECURITY.md" in text_of(".github/ISSUE_TEMPLATE/bug.yml")


def test_the_template_of_a_change_names_the_checks_of_contributing():
    template = text_of(".github/pull_request_template.md")

    for command in re.findall(r"`([a-z-]+(?: [a-z-]+)*(?: \.)?)`", template):
        assert command in text_of("CONTRIBUTING.md").replace(".venv/bin/", ""), command
    assert "CHANGELOG.md" in template


@pytest.mark.parametrize("name", ["SECURITY.md", "CODE_OF_CONDUCT.md"])
def test_reports_go_to_the_host_and_to_no_invented_address(name):
    text = text_of(name)

    assert "private report function" in text
    assert not re.search(r"[\w.]+@[\w.]+|https?:", text)


def test_the_security_policy_leads_to_the_threat_model():
    assert "(specs/security.md)" in text_of("SECURITY.md")
