"""The driver of PostgreSQL, its errors in the words of this library, and the URL of a store."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from attrs import field, frozen

from wmp.errors import ConfigError, StoreError, StoreFull, StoreUnavailable, StoreUnusable

SCHEMA: Final = "wmp"
"""Default of the schema that has the tables of a store."""

_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")
_PORTS: Final = re.compile(r"[0-9,]*\Z")
_EXPECTED: Final = (
    "expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE; in a password, write %2F for /, %3A "
    "for :, %40 for @, %3F for ?, %23 for # and %25 for %"
)


def load_driver() -> Any:
    """Return the module psycopg.

    Raises:
        ConfigError: The extra is not installed.
    """
    try:
        import psycopg
    except ImportError as error:
        raise ConfigError(
            f"a store on PostgreSQL needs psycopg 3, which cannot be imported ({error}); "
            "pip install 'worker-manager-protocol[postgres]'"
        ) from error
    return psycopg


@frozen
class StoreUrl:
    """The URL of a store: ``postgresql://user@host:5432/database?schema=wmp``."""

    conninfo: str = field(repr=False)
    """The arguments for libpq."""
    schema: str
    name: str
    """The URL without a password, for people."""

    @staticmethod
    def of(url: str) -> StoreUrl:
        """Read a URL.

        Raises:
            ConfigError: The URL is wrong, or the extra is not installed.
        """
        psycopg = load_driver()
        try:
            parts = urlsplit(url)
        except ValueError:
            raise ConfigError(f"the URL of the store is wrong; {_EXPECTED}") from None
        if parts.scheme not in ("postgresql", "postgres"):
            raise ConfigError(
                f"the URL of a store begins with {parts.scheme!r}; expected postgresql://"
            )
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        schema = dict(pairs).get("schema", SCHEMA)
        if not _NAME.match(schema):
            raise ConfigError(
                f"the schema of a store is {schema!r}; expected at most 63 small letters, digits "
                "and _, not beginning with a digit"
            )
        query = urlencode([(key, value) for key, value in pairs if key != "schema"])
        conninfo = urlunsplit(("postgresql", parts.netloc, parts.path, query, ""))
        try:
            parameters = psycopg.conninfo.conninfo_to_dict(conninfo)
        except psycopg.ProgrammingError as error:
            # libpq quotes the part that is wrong, which may be the password.
            text = _one_line(error).partition(': "')[0]
            raise ConfigError(f"the URL of the store is wrong: {text}; {_EXPECTED}") from None
        host = parameters.get("host") or parameters.get("hostaddr") or ""
        shown = _quoted(host)
        if parameters.get("port"):
            if not _PORTS.match(parameters["port"]):
                raise ConfigError(f"the port in the URL of the store is not a number; {_EXPECTED}")
            shown += f":{parameters['port']}"
        name = f"postgresql://{shown}/{parameters.get('dbname', '')}"
        return StoreUrl(conninfo, schema, name if schema == SCHEMA else f"{name}?schema={schema}")


def _quoted(host: str) -> str:
    """Return a host as it stands in a URL."""
    return host.replace("/", "%2F")


def unreachable(error: Exception, name: str) -> StoreError:
    """Return the error of the library for a connection that was refused."""
    text = _one_line(error)
    if isinstance(error, StoreError):
        return error
    remedy = "start the server, or check host and port of the URL"
    if "does not exist" in text or "authentication failed" in text or "pg_hba.conf" in text:
        remedy = "check user, password and database of the URL"
    return StoreUnavailable(f"the store {name} cannot be opened: {text}; {remedy}")


def in_words(error: Exception, name: str) -> StoreError:
    """Return the error of the library for an error of psycopg."""
    if isinstance(error, StoreError):
        return error
    code = getattr(error, "sqlstate", None) or ""
    text = _one_line(error)
    if code in ("53100", "54000"):
        return StoreFull(
            f"there is no space for the store {name}: {text}; make space on the server, purge "
            "ended jobs, or keep results for a shorter time"
        )
    if code == "55P03":
        return StoreUnavailable(
            f"another transaction has locked the store {name} for too long; end it: the view "
            "pg_stat_activity lists it"
        )
    if code == "25006":
        return StoreUnavailable(
            f"the server of the store {name} takes no writes: {text}; connect to the primary server"
        )
    if code == "42501":
        return StoreUnusable(
            f"the role may not use the store {name}: {text}; let an administrator GRANT the "
            "privilege, or make the schema"
        )
    if code in ("42P01", "42703", "3F000"):
        return StoreUnusable(f"{name} is not a store of wmp ({text}); restore a backup")
    if code.startswith(("08", "57P")) or code in ("", "25P03"):
        return StoreUnavailable(
            f"the server of the store {name} cannot be reached, or closed the connection: {text}; "
            "start the server, or check the URL; the outcome of the last write is not known, and "
            "the same write can be made again"
        )
    return StoreUnavailable(
        f"the store {name} failed: {text} ({code}); the outcome of the last write is not known, "
        "and the same write can be made again"
    )


def _one_line(error: Exception) -> str:
    # The indented lines of libpq are guesses at the cause; the remedies are those of this library.
    lines = [line for line in str(error).splitlines() if not line.startswith("\t")]
    return " ".join(" ".join(lines).split()) or type(error).__name__
