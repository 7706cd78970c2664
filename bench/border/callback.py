"""Times the border module's callback against an empty one, on real events of the homeserver's.

Prints one JSON line: nanoseconds a call, for each number of allowed servers. Batches of both take turns and
the fastest of each counts, so that what else the machine does touches both alike.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from drawbridge_border.border import Border
from drawbridge_border.callbacks import Callbacks
from drawbridge_border.policy_in_force import WatchedPolicy
from drawbridge_border.violations import ViolationLog
from synapse.api.room_versions import RoomVersions
from synapse.events import EventBase, make_event_from_dict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

OWN, PARTNER = "a.test:8448", "b.test:8448"
# A batch takes less than a time slice of a busy machine, so that some batch is not interrupted.
CALLS, BATCHES = 100, 1_500


class NoHomeserver:
    def forget(self, room_id: str) -> None:
        raise NotImplementedError

    async def inviter_of(self, user_id: str, room_id: str) -> str | None:
        raise NotImplementedError


async def empty(_event: EventBase) -> bool:
    return False


def batch(callback: Callable[[EventBase], Awaitable[bool]], event: EventBase) -> float:
    started = time.perf_counter_ns()
    for _ in range(CALLS):
        try:
            callback(event).__await__().send(None)
        except StopIteration as end:
            assert end.value is False
    return (time.perf_counter_ns() - started) / CALLS


def measure(folder: Path, servers: int, event: EventBase) -> dict[str, float]:
    policy_file = folder / "policy.json"
    names = [OWN, PARTNER, *(f"s{index}.example:8448" for index in range(servers - 2))]
    policy_file.write_text(json.dumps({"allowed_servers": names}))
    time.sleep(0.05)  # Until the file system's clock has moved on; then the file counts as settled.
    violations = ViolationLog(str(folder / "violations"), logging.getLogger("bench"), time.time_ns)
    policy = WatchedPolicy(str(policy_file), OWN, clock_ns=time.time_ns, on_change=lambda _: None)
    no_homeserver = NoHomeserver()
    border = Border(OWN, policy, violations)
    callback = Callbacks(border, no_homeserver, no_homeserver, rejects_relayed_events=True)
    rounds = [
        (batch(empty, event), batch(callback.should_drop_federated_event, event)) for _ in range(BATCHES)
    ]
    return {"empty": min(one for one, _ in rounds), "border": min(one for _, one in rounds)}


def main() -> None:
    event = make_event_from_dict(
        {
            "type": "m.room.message",
            "sender": f"@bob:{PARTNER}",
            "room_id": f"!room:{OWN}",
            "content": {},
            "origin_server_ts": 1,
            "auth_events": [],
            "prev_events": [],
            "depth": 1,
            "hashes": {"sha256": "x"},
            "signatures": {},
        },
        RoomVersions.V10,
    )
    with tempfile.TemporaryDirectory() as folder:
        found = {size: measure(Path(folder), size, event) for size in (10, 100_000)}
    sys.stdout.write(f"{json.dumps(found)}\n")


main()
