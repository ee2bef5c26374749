"""A Lazy Pirate client reports each try without a reply."""

from __future__ import annotations

import pytest

from wmp import NoReply
from wmp.gateways import LazyClient

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("fails", [False, True])
def test_each_further_try_is_logged_and_reported(fails, caplog):
    numbers = []

    def retry(number):
        numbers.append(number)
        if fails:
            raise ValueError("a defect of the application")

    address = "ipc://@wmp-nobody-listens"
    with (
        LazyClient(address, timeout=0.02, tries=3, on_retry=retry) as client,
        pytest.raises(NoReply, match="3 tries"),
    ):
        client.request(b"hello")

    assert numbers == [2, 3]
    lines = [logged.getMessage() for logged in caplog.records]
    assert f"lazy client: no reply from {address} in 0.02 s; try 2 of 3 follows" in lines
    assert ("lazy client: on_retry raised; the request goes on" in lines) is fails
