"""A wrong setting is refused at once; the error has its name, its value and the expected values."""

from __future__ import annotations

from typing import Any

import pytest

import wmp
from wmp.message import Limits

WORKER = "tcp://127.0.0.1:5570"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_silence", float("nan")),
        ("max_silence", float("inf")),
        ("max_silence", 0),
        ("max_silence", "6"),
        ("max_silence", None),
        ("max_jobs", "5"),
        ("max_jobs", 0),
        ("max_jobs", 1.5),
        ("max_worker_losses", -1),
        ("max_worker_losses", "3"),
        ("label", "ä" * 513),
        ("label", 5),
        ("identity", 5),
        ("wake_scan", 0),
        ("policy", 3),
        ("bundle", 0),
        ("bundle", 4096),
        ("resend", float("nan")),
    ],
)
def test_of_a_manager(name: str, value: Any) -> None:
    with pytest.raises(wmp.ConfigError, match=f"{name}.*(got|has|is)"):
        wmp.Manager(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hold", float("inf")),
        ("hold", -1),
        ("hold", None),
        ("window", "3"),
        ("window", 1.5),
        ("window", True),
        ("ping", 0),
        ("ping", float("nan")),
        ("jitter", 1),
        ("jitter", float("nan")),
        ("lane_max", 0),
        ("silence", 0),
        ("label", "x" * 1025),
        ("identity", 5),
    ],
)
def test_of_a_worker(name: str, value: Any) -> None:
    with pytest.raises(wmp.ConfigError, match=f"{name}.*(got|is)"):
        wmp.Worker(WORKER, handlers=bytes.upper, **{name: value})


def test_settings_that_may_be_none_or_zero() -> None:
    wmp.Worker(WORKER, handlers=bytes.upper, window=None, hold=0, jitter=0, lane_time=0)
    wmp.Worker(WORKER, handlers=bytes.upper, window=0, label="x" * 1024)
    wmp.Manager(reply_margin=0, max_silence=1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("high_water_mark", -1),
        ("high_water_mark", 0),
        ("high_water_mark", 2**31),
        ("high_water_mark", 10.5),
        ("max_frame", Limits.COLUMNS - 1),
        ("linger", -1),
        ("linger", float("nan")),
        ("linger", 1e7),
        ("heartbeat", 3000),
        ("heartbeat", "2"),
        ("reconnect", float("inf")),
        ("handshake", -0.1),
        ("parked", -1),
        ("parked_bytes", 0.5),
    ],
)
def test_of_a_transport(name: str, value: Any) -> None:
    with pytest.raises(wmp.ConfigError, match=f"{name} is .*; expected"):
        wmp.Transport(**{name: value})


def test_roles_and_resources_fit_a_message() -> None:
    def many(count: int) -> dict[str, Any]:
        return {f"{number:0240}": bytes.upper for number in range(count)}

    wmp.Worker(WORKER, handlers=many(30))
    with pytest.raises(wmp.ConfigError, match=r"roles and resources take .* at most 8192"):
        wmp.Worker(WORKER, handlers=many(40))
    with pytest.raises(wmp.ConfigError, match=r"roles and resources take .* at most 8192"):
        wmp.Worker(WORKER, handlers=bytes.upper, resources=dict.fromkeys(many(40), 1))
    with pytest.raises(wmp.ConfigError, match="257 roles; expected at most 256"):
        wmp.Worker(WORKER, handlers={str(number): bytes.upper for number in range(257)})
    register = wmp.Worker(WORKER, handlers=many(32)).handler("y" * 240)
    with pytest.raises(wmp.ConfigError, match="roles and resources"):
        register(bytes.upper)


@pytest.mark.parametrize(
    "headers",
    [
        5,
        {5: "x"},
        {"": "x"},
        {"rack": ["r7"]},
        {"rack": 2**63},
        {"rack": float("nan")},
        {"rack": "\ud800"},
        {"rack": "x" * 1024},
    ],
)
def test_headers_of_a_worker(headers: Any) -> None:
    with pytest.raises(wmp.ConfigError, match="headers"):
        wmp.Worker(WORKER, handlers=bytes, headers=headers)


@pytest.mark.parametrize("key", ["k" * 40, b"k" * 40])
def test_one_key_is_no_allow_list(key: str | bytes) -> None:
    with pytest.raises(wmp.ConfigError, match=r"allowed is one key; .* for example \[key\]"):
        wmp.Security.generate(allowed=key)
