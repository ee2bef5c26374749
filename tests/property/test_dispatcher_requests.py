"""A dispatcher answers every request of a client with a code below 500 (DSP-6.2)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.dispatcher.http_net import Net, dispatcher_on

ID = "0" * 23 + "1"
PATHS = [
    ("POST", "/dispatcher/jobs/"),
    ("POST", f"/dispatcher/jobs/{ID}/completion"),
    ("PUT", "/dispatcher/workers/"),
]

# Text of JSON may have half of a surrogate pair.
texts = st.text(st.characters(codec=None), max_size=8)
numbers = (
    st.integers(-(1 << 70), 1 << 70)
    | st.sampled_from([10**400, -(10**400), 1 << 63, 0])
    | st.floats()
)
dates = st.sampled_from(["0001-01-01", "9999-12-31T23:59:59-23:59", "2026-01-31T12:00:00Z"])
leaves = st.none() | st.booleans() | numbers | texts | dates
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def mostly(right: Any) -> Any:
    """Return values that are mostly right, so that requests go further."""
    return st.one_of(right, right, right, values)


def document(**fields: Any) -> Any:
    return st.fixed_dictionaries(
        {}, optional={name: mostly(strategy) for name, strategy in fields.items()}
    )


callbacks = document(
    hostname=st.sampled_from(["127.0.0.1", "::1", "a.example", "ü"]),
    port=st.integers(0, 70_000),
    path=texts,
    method=st.sampled_from(["GET", "POST", "PATCH"]),
    headers=st.dictionaries(texts | st.just("A"), texts, max_size=2),
)
bodies = st.one_of(
    document(
        type=st.sampled_from(["a", "b", "wmp.callback"]) | texts,
        payload=values,
        workflow=texts,
        run=numbers,
        priority=st.integers(-(1 << 32), 1 << 32),
        dispatcher=document(expiry=dates | st.integers()),
        execution=document(timeout=st.integers(0, 1 << 60)),
        callback=callbacks,
    ),
    document(
        hostname=st.sampled_from(["127.0.0.1", "h"]),
        port=st.integers(1, 65_535),
        maxJobs=st.integers(1, 100_000),
        handlers=st.dictionaries(texts | st.just("a"), values, max_size=3),
        jobs=values,
    ),
    document(attempt=st.just(1), status=st.sampled_from("sfx"), result=values),
    values,
)
headers = st.dictionaries(
    st.sampled_from(["Idempotency-Key", "Authorization", "Content-Type", "Content-Encoding"]),
    st.binary(max_size=6).filter(lambda text: b"\n" not in text and b"\r" not in text),
)


@pytest.mark.rule("DSP-6.2")
def test_no_request_leads_to_a_code_of_500(tmp_path: Path) -> None:
    net = Net()
    # A worker refuses connections, so jobs are placed and taken back while the test runs.
    with asyncio.Runner() as runner:
        served = dispatcher_on(net, 8081, tmp_path / "jobs.db")
        runner.run(served.__aenter__())  # type: ignore[arg-type]
        client = net.client(8081)

        async def ask(method: str, path: str, body: bytes, head: dict[str, bytes]) -> None:
            raw = [(name.encode(), value) for name, value in head.items()]
            answer = await client.request(method, path, content=body, headers=raw)
            assert answer.status_code < 500, (method, path, body, head, answer.text)
            if answer.status_code >= 400:
                assert set(answer.json()) == {"error", "field"}
            for listed in ("/dispatcher/jobs/?limit=1000", "/dispatcher/workers/"):
                response: httpx.Response = await client.get(listed)
                assert response.status_code == 200, (listed, body)

        @given(st.sampled_from(PATHS), bodies.map(json.dumps) | texts, headers)
        def check(route: tuple[str, str], body: str, head: dict[str, bytes]) -> None:
            runner.run(ask(*route, body.encode("utf-8", "surrogatepass"), head))

        try:
            check()
        finally:
            runner.run(served.__aexit__(None, None, None))  # type: ignore[arg-type]
