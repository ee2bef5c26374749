"""Packages that import their public names at the first use (``wmp/lazy.py``)."""

from __future__ import annotations

import importlib
import re
import sys
import types
from collections.abc import Iterator

import pytest

import wmp
from tests.house import ROOT
from wmp.lazy import lazy_names


@pytest.fixture
def package() -> Iterator[types.ModuleType]:
    module = types.ModuleType("lazy_package")
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def test_a_name_is_imported_at_its_first_use_and_then_kept(package: types.ModuleType) -> None:
    get, names = lazy_names(package.__name__, {"Retry": "wmp.retry"})

    assert "Retry" in names()
    assert not hasattr(package, "Retry")
    assert get("Retry") is wmp.Retry
    assert package.Retry is wmp.Retry


def test_an_unknown_name_is_refused(package: types.ModuleType) -> None:
    get, _ = lazy_names(package.__name__, {"Retry": "wmp.retry"})

    with pytest.raises(AttributeError, match="'lazy_package' has no attribute 'Rerty'"):
        get("Rerty")


def test_the_check_comes_before_the_import(package: types.ModuleType) -> None:
    def check(name: str) -> None:
        if name == "page":
            raise wmp.ConfigError("install the extra")

    get, _ = lazy_names(
        package.__name__, {"page": "a_module_that_is_missing", "Retry": "wmp.retry"}, check
    )

    with pytest.raises(wmp.ConfigError, match="install the extra"):
        get("page")
    assert get("Retry") is wmp.Retry


def test_the_classes_of_other_protocols_stand_in_the_folders_that_the_guide_names() -> None:
    guide = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    table = guide.split("## Other protocols\n")[1].split("\n## ")[0]
    named = re.findall(r"^\| `(\w+)\.([A-Z]\w+)\(", table, re.MULTILINE)
    assert len(named) > 15
    for folder, name in named:
        package = importlib.import_module(f"wmp.gateways.{folder}")
        assert getattr(package, name) is getattr(importlib.import_module("wmp.gateways"), name)
        assert name in package.__all__
