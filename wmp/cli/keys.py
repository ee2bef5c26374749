"""``wmp keys``: makes a pair of CURVE keys."""

from __future__ import annotations

import os
from pathlib import Path

import click
import zmq.auth

from wmp.cli.common.options import ProgramCommand
from wmp.errors import ConfigError


@click.command(
    cls=ProgramCommand,
    short_help="Make CURVE keys for a node that other machines can reach.",
    epilog="""
    wmp keys manager          makes manager.key and manager.key_secret
    wmp keys workers/ada      makes workers/ada.key and workers/ada.key_secret
    """,
)
@click.argument("name", metavar="NAME")
def keys(name: str) -> int:
    """Make a pair of CURVE keys: NAME.key to hand out, NAME.key_secret for this node alone.

    A node with keys may accept connections from other machines; see --secret, --server and
    --allowed.
    """
    public, secret = Path(f"{name}.key"), Path(f"{name}.key_secret")
    for path in (public, secret):
        if path.exists():
            raise ConfigError(f"{path} already exists; remove it first, or choose another name")
    if not public.parent.is_dir():
        raise ConfigError(f"there is no folder {public.parent}; make the folder first")
    try:
        # No other user may read the secret key at any moment.
        before = os.umask(0o077)
        try:
            zmq.auth.create_certificates(public.parent, public.stem)
        finally:
            os.umask(before)
        public.chmod(0o644)
    except OSError as error:
        raise ConfigError(f"cannot write {public}: {(error.strerror or '').lower()}") from error
    click.echo(f"{public} is for the nodes that connect to this node or admit it")
    click.echo(f"{secret} is for this node alone; keep it secret")
    return 0
