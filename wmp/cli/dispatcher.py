"""``wmp dispatcher``: one of many masters on a store, with an HTTP API."""

from __future__ import annotations

import asyncio
import functools
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from wmp.cli.common.entry_point import complain
from wmp.cli.common.options import ProgramCommand, check_addresses, security_of, verbose
from wmp.cli.common.options import journal as journal_flag
from wmp.cli.common.options import keys as key_flags
from wmp.cli.common.store_flags import store_flags
from wmp.errors import ConfigError

_PROGRAM: Final = "wmp"

_NEEDED: Final = ("fastapi", "uvicorn", "httpx")


def check_extra() -> None:
    """Check that the extra ``dispatcher`` is installed.

    Raises:
        ConfigError: A package is missing.
    """
    for name in _NEEDED:
        if find_spec(name) is None:
            raise ConfigError(
                f"the package {name} is missing; run: pip install "
                "'worker-manager-protocol[cli,dispatcher]'"
            )


def _settings(context: click.Context, given: tuple[str, ...], profile: str | None) -> object:
    from wmp.dispatcher.settings import SEED_PROFILE, settings_of

    values = dict(SEED_PROFILE) if profile == "seed" else {}
    for setting in given:
        name, equals, value = setting.partition("=")
        if not equals or not value.lstrip("-").isdigit():
            raise click.UsageError(
                f"--set is {setting!r}; expected NAME=MILLISECONDS, for example "
                "workers.ping_interval=5000",
                context,
            )
        values[name] = int(value)
    return settings_of(values)


@click.command(
    cls=ProgramCommand,
    short_help="Serve jobs over HTTP, one of many masters on a store.",
    epilog="""
    wmp dispatcher --store jobs.db
    wmp dispatcher --store jobs.db --http 127.0.0.1:8091
    wmp dispatcher --store postgresql://user@host/database
    wmp dispatcher --store jobs.db --bind tcp://127.0.0.1:5570
    wmp dispatcher --store jobs.db --http 0.0.0.0:8081 --token-file token
    wmp dispatcher --store jobs.db --allow-target 10.1.0.0/16:8000-8999
    wmp dispatcher --store jobs.db --reserve 67108864 --group jobs
    wmp dispatcher --store jobs.db --journal journal
    """,
)
@click.option(
    "--store",
    metavar="STORE",
    required=True,
    help="The store: a file, or postgresql://…; made if it is missing.",
)
@store_flags
@click.option(
    "--http",
    metavar="HOST:PORT",
    default="127.0.0.1:8081",
    show_default=True,
    help="Address of the HTTP API.",
)
@click.option(
    "--bind",
    metavar="ENDPOINT",
    multiple=True,
    help="Address for WMP workers, which do jobs of the same queue; repeat for each.",
)
@click.option(
    "--address", metavar="URL", help="URL of this dispatcher for its workers; default: --http."
)
@click.option(
    "--allow-host",
    metavar="HOST",
    multiple=True,
    help=(
        "Further name or address by which clients reach the HTTP API, besides loopback, --http "
        "and --address; repeat for each."
    ),
)
@click.option(
    "--allow-target",
    metavar="HOST|NETWORK[:PORTS]",
    multiple=True,
    help=(
        "Workers and callbacks at this host or network are allowed, besides those at the address "
        "from which a request came; repeat for each."
    ),
)
@click.option(
    "--open-registration",
    is_flag=True,
    help="Accept workers that do not send the secret of their registration.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help=(
        "File with the bearer token that requests need, or a line NAME PERMISSIONS TOKEN for each "
        "token; permissions: submit, work, observe, steer, admin, with commas between."
    ),
)
@click.option(
    "--set",
    "given",
    metavar="NAME=MS",
    multiple=True,
    help="Setting of specs/dispatcher.md section 8; repeat for each.",
)
@click.option(
    "--profile",
    type=click.Choice(("seed",)),
    help=(
        "seed: the settings of the original design, with its cooldown of 2 s, and "
        "--open-registration."
    ),
)
@key_flags(connects=False, binds=True)
@journal_flag
@verbose
@click.pass_context
def dispatcher(
    context: click.Context,
    store: str,
    reserve: int | None,
    group: str | None,
    http: str,
    bind: tuple[str, ...],
    address: str | None,
    allow_host: tuple[str, ...],
    allow_target: tuple[str, ...],
    open_registration: bool,
    token_file: Path | None,
    given: tuple[str, ...],
    profile: str | None,
    secret: str | None,
    allowed: str | None,
    journal: str | None,
) -> int:
    """Take jobs over HTTP, keep them in a store, and give them to workers.

    Any number of dispatchers share one store on one host. HTTP workers register at any of them
    (wmp worker --dispatcher). WMP workers connect to the addresses of --bind. Ctrl-C or SIGTERM
    ends the dispatcher; the others take over what runs.
    """
    check_extra()
    from wmp.dispatcher.serving import serve_dispatcher
    from wmp.dispatcher.settings import DispatcherSettings
    from wmp.dispatcher.tokens import read_tokens

    settings = _settings(context, given, profile)
    assert isinstance(settings, DispatcherSettings)
    security = security_of(secret, allowed=allowed)
    check_addresses(security, bind=bind)
    return asyncio.run(
        serve_dispatcher(
            store,
            http,
            settings,
            reserve=reserve,
            group=group,
            bind=bind,
            address=address,
            allow_hosts=allow_host,
            allow_targets=allow_target,
            open_registration=open_registration or profile == "seed",
            token=None if token_file is None else read_tokens(token_file),
            security=security,
            journal=journal,
            report=functools.partial(complain, _PROGRAM),
        )
    )
