"""The bearer tokens of a dispatcher, each with a name and permissions (DSP-12)."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from attrs import field, frozen

from wmp.errors import ConfigError
from wmp.runtime.common.checks import check_private
from wmp.runtime.common.permissions import PermissionHolder, read_permissions

_COLUMNS: Final = 3
_ONLY: Final = "token"
"""Name of a token without one."""


@frozen
class TokenTable:
    """Tokens and their holders."""

    holders: Mapping[str, PermissionHolder] = field(repr=False)
    """The holder of each token."""

    @classmethod
    def of(cls, tokens: str | TokenTable | None) -> TokenTable | None:
        """Return a table; a single token may do everything."""
        return cls({tokens: PermissionHolder(_ONLY)}) if isinstance(tokens, str) else tokens

    def holder(self, given: bytes) -> PermissionHolder | None:
        """Return the holder of a token; None for an unknown one. The time shows no token."""
        holders = [
            holder
            for token, holder in self.holders.items()
            if hmac.compare_digest(given, token.encode())
        ]
        return holders[0] if holders else None

    def token_of(self, name: str | None) -> str | None:
        """Return the token of a name; None without one. A single token is that of everybody."""
        if len(self.holders) == 1:
            return next(iter(self.holders))
        return next((token for token, holder in self.holders.items() if holder.name == name), None)


def read_tokens(path: Path) -> TokenTable:
    """Return the tokens of a file (DSP-12.1).

    Raises:
        ConfigError: The file cannot be read, other users can read it (DSP-6.13), or a line is
            neither a single token nor a name, permissions and a token.
    """
    try:
        text = path.read_text(encoding="ascii")
        check_private("the token", path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--token-file {path} cannot be read: {error}") from error
    lines = [
        (number, line.split())
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if len(lines) == 1 and len(lines[0][1]) == 1:
        return TokenTable({_checked(lines[0][1][0], path): PermissionHolder(_ONLY)})
    holders: dict[str, PermissionHolder] = {}
    for number, columns in lines:
        where = f"line {number} of --token-file {path}"
        if len(columns) != _COLUMNS:
            raise ConfigError(
                f"{where} has {len(columns)} words; expected a name, permissions and a token, for "
                "example: web submit,observe TOKEN"
            )
        name, permissions, token = columns
        if _checked(token, path) in holders or any(
            holder.name == name for holder in holders.values()
        ):
            raise ConfigError(f"{where} has a name or a token for the second time; change it")
        holders[token] = PermissionHolder(name, read_permissions(permissions, where))
    if not holders:
        raise ConfigError(f"--token-file {path} contains no token; expected one line of text")
    return TokenTable(holders)


def _checked(token: str, path: Path) -> str:
    if not token.isprintable():
        raise ConfigError(f"--token-file {path} contains no token; expected one line of text")
    return token


def read_token(path: Path | None) -> str | None:
    """Return the token of a program that sends one.

    Raises:
        ConfigError: See :func:`read_tokens`; or the file has several tokens.
    """
    if path is None:
        return None
    tokens = read_tokens(path).holders
    if len(tokens) != 1:
        raise ConfigError(
            f"--token-file {path} contains {len(tokens)} tokens; expected the one of this worker"
        )
    return next(iter(tokens))
