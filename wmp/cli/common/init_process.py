"""The first process of a container: it reaps processes that have lost their parent.

In a container without an init, the entry point is process 1. The kernel gives it every process
whose parent has ended, such as the children of a command that was ended at its time limit, and a
process 1 that does not wait for them keeps a zombie for each. Process 1 also ignores each signal
without a handler. So process 1 forks here: the fork is the program, and process 1 passes signals on
and reaps.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Final, NoReturn

_SIGNALLED: Final = 128
"""As in shells, the exit code after a signal is this value plus the number of the signal."""

_PASSED: Final = frozenset(
    {
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGCONT,
        signal.SIGWINCH,
    }
)
"""The signals that the first process passes on to the program."""


def leave_first_process() -> None:
    """Continue in a fork if this is process 1; the first process never returns.

    Call this before the program has threads, files or imports worth the memory of a second process.
    """
    if os.getpid() != 1:
        return
    waited = _PASSED | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    program = os.fork()
    if program:
        _serve(program, waited)
    # A terminal sends Ctrl-C to the group in front. Process 1 must not pass on a second one.
    with suppress(OSError):
        os.setpgid(0, 0)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.tcsetpgrp(0, os.getpgrp())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(program: int, waited: frozenset[signal.Signals]) -> NoReturn:
    """Pass signals on and reap until the program ends; exit as the program does."""
    while True:
        number = signal.sigwait(waited)
        if number != signal.SIGCHLD:
            with suppress(ProcessLookupError):
                os.kill(program, number)
            continue
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                if pid == program:
                    code = os.waitstatus_to_exitcode(status)
                    # The kernel ends all other processes of the container together with this one.
                    os._exit(code if code >= 0 else _SIGNALLED - code)
