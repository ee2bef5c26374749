"""Wrong arguments of one job are refused where they are passed, and end no node."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import wmp
from tests.waiting import WAIT
from wmp.errors import ConfigError

NAME = os.fsdecode(b"invoice-\xff.pdf")
"""The name of a file that is not UTF-8, as Python decodes it."""

pytestmark = pytest.mark.interop

WRONG: dict[str, dict[str, Any]] = {
    "key": {"key": NAME},
    "key with NUL": {"key": "a\0b"},
    "role": {"role": NAME},
    "needs": {"needs": {NAME: 1}},
    "priority": {"priority": 2**63},
    "result_ttl": {"result_ttl": float("nan")},
    "expires": {"expires": 1e300},
    "max_worker_losses": {"max_worker_losses": 2**63},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_argument_ends_no_manager(wrong: str, tmp_path: Path) -> None:
    with (
        wmp.Manager(store=tmp_path / "jobs.db") as manager,
        wmp.Worker(*manager.endpoints, handlers=bytes.upper),
    ):
        with pytest.raises(ConfigError) as caught:
            manager.submit(b"wrong", **WRONG[wrong])
        assert manager.submit(b"right").result(timeout=WAIT) == b"RIGHT"

    str(caught.value).encode()  # the error can be printed


def test_a_payload_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    with (
        wmp.Manager(store=tmp_path / "jobs.db") as manager,
        wmp.Worker(*manager.endpoints, handlers=bytes.upper),
    ):
        with pytest.raises(TypeError, match="UTF-8"):
            manager.submit(NAME)
        with pytest.raises(TypeError, match="UTF-8"):
            list(manager.map(["right", NAME]))
        assert manager.submit(b"right").result(timeout=WAIT) == b"RIGHT"


@pytest.mark.parametrize("option", ["identity", "label"])
def test_a_node_refuses_a_name_that_is_not_utf8(option: str) -> None:
    with pytest.raises(ConfigError, match="surrogate pair"):
        wmp.Manager(**{option: NAME})
    with pytest.raises(ConfigError, match="surrogate pair"):
        wmp.Worker("tcp://127.0.0.1:1", handlers=bytes.upper, **{option: NAME})


def test_a_worker_refuses_a_role_that_is_not_utf8() -> None:
    with pytest.raises(ConfigError, match="surrogate pair"):
        wmp.Worker("tcp://127.0.0.1:1", handlers={NAME: bytes.upper})


def test_results_refuse_a_key_and_a_role_that_are_not_utf8(tmp_path: Path) -> None:
    with wmp.Manager(store=tmp_path / "jobs.db"):
        pass
    with wmp.results(tmp_path / "jobs.db") as results:
        with pytest.raises(ConfigError, match="surrogate pair"):
            results.get(key=NAME)
        with pytest.raises(ConfigError, match="surrogate pair"):
            results.get(key="known", role=NAME)


@pytest.mark.parametrize("address", ["ipc://\udcff", "inproc://\udcff", "tcp://\udcff:5570"])
@pytest.mark.parametrize("nul", [False, True])
def test_an_address_that_no_node_can_have_is_refused(address: str, nul: bool) -> None:
    if nul:
        address = address.replace("\udcff", "\0")
    with pytest.raises(ConfigError, match=r"cannot bind to .* at position"):
        wmp.Manager(address)
    with pytest.raises(ConfigError, match=r"cannot connect to .* at position"):
        wmp.Manager(connect=address)
    with pytest.raises(ConfigError, match=r"cannot connect to .* at position"):
        wmp.Worker(address, handlers=bytes.upper)


def test_an_address_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot bind to 5570: expected text"):
        wmp.Manager(5570)  # type: ignore[arg-type]
