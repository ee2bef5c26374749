"""The program ``wmp``: its commands and their common flags."""

from __future__ import annotations

import click

from wmp.cli.common.options import ProgramGroup, version
from wmp.cli.demo.command import demo
from wmp.cli.dispatcher import dispatcher
from wmp.cli.gateway import gateway
from wmp.cli.jobs import jobs
from wmp.cli.journal.command import journal
from wmp.cli.keys import keys
from wmp.cli.map.command import map_command
from wmp.cli.report import report
from wmp.cli.round_robin import round_robin
from wmp.cli.worker.command import worker


@click.group(
    cls=ProgramGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""
    wmp demo                          run everything once, on this machine
    wmp worker package.module:f       a worker that calls a Python function for each job
    wmp worker --role wc -- wc -w     a worker that runs a Unix command for each job
    wmp map --role wc *.txt           spread files over the workers that connect
    wmp dispatcher --store jobs.db    jobs over HTTP, one of many masters on a store
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


for one in (
    demo,
    worker,
    map_command,
    dispatcher,
    gateway,
    round_robin,
    jobs,
    journal,
    report,
    keys,
):
    command.add_command(one)
