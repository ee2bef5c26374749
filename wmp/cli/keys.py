"""``wmp keys``: makes a pair of CURVE keys."""

from __future__ import annotations

import os
from pathlib import Path

import click
import zmq.auth

from wmp.cli.common.options import ProgramCommand
from wmp.errors import ConfigError
from wmp.runtime.common.permissions import listed_permissions, read_permissions


@click.command(
    cls=ProgramCommand,
    short_help="Make CURVE keys for a node that other machines can reach.",
    epilog="""
    wmp keys manager          makes manager.key and manager.key_secret
    wmp keys workers/ada      makes workers/ada.key and workers/ada.key_secret
    wmp keys --permissions work allowed/gpu
    """,
)
@click.option(
    "--permissions",
    metavar="LIST",
    help=(
        "What the holder of the keys may do: submit, work, observe, steer, admin, with commas "
        "between. NAME.key contains the list; default: everything."
    ),
)
@click.argument("name", metavar="NAME")
def keys(name: str, permissions: str | None) -> int:
    """Make a pair of CURVE keys: NAME.key to hand out, NAME.key_secret for this node alone.

    A node with keys may accept connections from other machines; see --secret, --server and
    --allowed.
    """
    metadata = "metadata\n"
    if permissions is not None:
        listed = read_permissions(permissions, "--permissions")
        metadata += f'    permissions = "{listed_permissions(listed)}"\n'
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
        text = public.read_text(encoding="utf-8")
        public.write_text(text.replace("metadata\n", metadata, 1), encoding="utf-8")
        public.chmod(0o644)
    except OSError as error:
        raise ConfigError(f"cannot write {public}: {(error.strerror or '').lower()}") from error
    click.echo(f"{public} is for the nodes that connect to this node or admit it")
    click.echo(f"{secret} is for this node alone; keep it secret")
    return 0
