"""What several tests of the border module need."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, TypeVar

from synapse.api.room_versions import RoomVersions
from synapse.events import EventBase, make_event_from_dict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence
    from pathlib import Path

OWN = "a.test:8448"
PARTNER = "b.test:8448"
THIRD = "d.test:8448"
ROOM = "!room:a.test:8448"

Value = TypeVar("Value")


def now(awaitable: Awaitable[Value]) -> Value:
    """The result of what waits for nothing."""
    try:
        awaitable.__await__().send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("it waits for something")


def policy_text(servers: Sequence[str], **more: object) -> bytes:
    return json.dumps({"allowed_servers": list(servers), **more}).encode()


def replace(path: Path, data: bytes) -> None:
    """Write a file as the reconciler does: whole, by a rename."""
    staging = path.with_name(f"{path.name}.new")
    staging.write_bytes(data)
    os.replace(staging, path)


def event(
    sender: str,
    kind: str = "m.room.message",
    *,
    state_key: str | None = None,
    content: dict[str, object] | None = None,
    room_id: str = ROOM,
) -> EventBase:
    """A real event of the homeserver's."""
    return make_event_from_dict(
        {
            "type": kind,
            "sender": sender,
            "room_id": room_id,
            "content": content or {},
            "origin_server_ts": 1,
            "auth_events": [],
            "prev_events": [],
            "depth": 1,
            "hashes": {"sha256": "x"},
            "signatures": {},
            **({} if state_key is None else {"state_key": state_key}),
        },
        RoomVersions.V10,
    )


def member(sender: str, membership: str, target: str | None = None) -> EventBase:
    return event(sender, "m.room.member", state_key=target or sender, content={"membership": membership})


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")


def logger_into(lines: Lines, name: str) -> logging.Logger:
    logger = logging.getLogger(name)
    logger.handlers = [lines]
    logger.propagate = False
    logger.setLevel(logging.INFO)
    return logger
