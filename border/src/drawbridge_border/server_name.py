"""Server names, as the project's other half reads them (src/domain/identifiers.ts).

Names are compared exactly, the port included: `a.test` and `a.test:8448` are two servers.
"""

import re

_SERVER_NAME = re.compile(r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[0-9A-Za-z.-]{1,230})(?::[0-9]{1,5})?")
_IDENTIFIER = re.compile(r"[\x21-\x7e]{1,255}")


def is_server_name(value: str) -> bool:
    """Whether this is a server name by the Matrix grammar ("Server name", appendices)."""
    return _SERVER_NAME.fullmatch(value) is not None


def server_of(identifier: str) -> str:
    """The server part of a user ID, or of a room ID that has one.

    Raises ValueError when there is none.
    """
    return identifier[identifier.index(":") + 1 :]


def as_identifier(value: object) -> str | None:
    """The identifier itself if a record may hold it: visible ASCII, at most 255; else None."""
    return value if isinstance(value, str) and _IDENTIFIER.fullmatch(value) else None
