"""Testees of the kit that start quickly."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import IO

import pytest

from tests.interop.programs.forks import forks
from wmp.conformance.wire.process import PeerProcess


class ForkedPeer(PeerProcess):
    """A testee; a program of Python is a fork of a process that has imported the library."""

    def _start(self, errors: IO[bytes]) -> subprocess.Popen[bytes]:
        if self.arguments[0] != sys.executable:
            return super()._start(errors)
        return forks().start(  # type: ignore[return-value]
            *self.arguments, env=os.environ, errors=errors.fileno(), alone=True
        )


@pytest.fixture(scope="session", autouse=True)
def forked_testees() -> Iterator[None]:
    """Fork the testees, since the start of a testee takes longer than a case needs.

    Where all cases are played (``tox -e conformance``), each testee is started as a user does.
    """
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("WMP_CONFORMANCE") != "full":
            patch.setattr("wmp.conformance.engine.socket_plays.PeerProcess", ForkedPeer)
        yield
