"""The program ``wmp``: its commands and their common flags."""

from __future__ import annotations

from typing import Final

import click

from wmp.cli.common.options import ProgramGroup, version

_HOMES: Final = {
    "demo": "wmp.cli.demo.command:demo",
    "dispatcher": "wmp.cli.dispatcher:dispatcher",
    "forward": "wmp.cli.forward:forward",
    "gateway": "wmp.cli.gateway:gateway",
    "jobs": "wmp.cli.jobs:jobs",
    "journal": "wmp.cli.journal.command:journal",
    "keys": "wmp.cli.keys:keys",
    "map": "wmp.cli.map.command:map_command",
    "report": "wmp.cli.report:report",
    "round-robin": "wmp.cli.round_robin:round_robin",
    "worker": "wmp.cli.worker.command:worker",
}
"""The module and the name of each command, which is imported when it is used."""


@click.group(
    cls=ProgramGroup,
    homes=_HOMES,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""
    wmp demo                          run everything once, on this machine
    wmp worker package.module:f       a worker that calls a Python function for each job
    wmp worker --role wc -- wc -w     a worker that runs a Unix command for each job
    wmp map --role wc *.txt           spread files over the workers that connect
    wmp dispatcher --store jobs.db    jobs over HTTP, one of many masters on a store
    wmp forward                       a manager that hands jobs of others to its workers
    wmp gateway --simple-pirate A B   a queue for programs of the Pirate patterns
    wmp round-robin server -d 1       a console of the round-robin system
    wmp COMMAND --help                help for one command
    """,
)
@version
def command() -> None:
    """Distribute jobs from many managers to many workers over ZeroMQ, without a broker.

    A manager holds jobs and listens, by default on tcp://127.0.0.1:5570. Workers connect to the
    manager and do the jobs, with a Python function or a Unix command. The program wmp-device passes
    messages on between managers and workers.
    """
