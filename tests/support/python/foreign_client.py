"""A client that is not the official machine: mautrix's own code over libolm, as its users would write it.

Reads one JSON object from standard input: homeserver, user, password, and questions, each with a room, a ghost
and a text. Logs in on a new device, asks each in turn, and prints for each a line of JSON with what came of it.
Room keys go to devices alone that their owner has cross-signed, as careful clients do.
"""

import asyncio
import json
import sys
from contextlib import asynccontextmanager

from mautrix.client import Client, MemorySyncStore
from mautrix.client.state_store import MemoryStateStore
from mautrix.crypto import MemoryCryptoStore, OlmMachine, StateStore
from mautrix.types import (
    EventFilter,
    EventType,
    Filter,
    MessageEvent,
    RoomFilter,
    TextMessageEventContent,
    MessageType,
    TrustState,
)

ANSWER_WITHIN_S = 90


class Keys(MemoryCryptoStore):
    """The library's store in memory, with the transactions that it lacks."""

    @asynccontextmanager
    async def transaction(self):
        yield


class RoomState(MemoryStateStore, StateStore):
    async def find_shared_rooms(self, user_id):
        return [room for room, members in self.members.items() if user_id in members]


async def main() -> None:
    wanted = json.load(sys.stdin)
    state = RoomState()
    client = Client(
        base_url=wanted["homeserver"], state_store=state, sync_store=MemorySyncStore()
    )
    await client.login(wanted["user"], password=wanted["password"], device_name="mautrix")
    crypto = OlmMachine(client, Keys(client.device_id, "pickle"), state)
    crypto.send_keys_min_trust = TrustState.CROSS_SIGNED_TOFU
    await crypto.load()
    await crypto.share_keys()
    client.crypto = crypto

    answers: asyncio.Queue[MessageEvent] = asyncio.Queue()

    async def on_message(event: MessageEvent) -> None:
        await answers.put(event)

    client.add_event_handler(EventType.ROOM_MESSAGE, on_message)
    quiet = EventFilter(not_types=[EventType.ALL])
    syncing = client.start(Filter(presence=quiet, account_data=quiet, room=RoomFilter(ephemeral=quiet)))
    try:
        for question in wanted["questions"]:
            answer = await asyncio.wait_for(ask(client, answers, question), ANSWER_WITHIN_S)
            print(json.dumps(answer), flush=True)
    finally:
        client.stop()
        await asyncio.gather(syncing, return_exceptions=True)
        await client.logout()
        await client.api.session.close()


async def ask(client: Client, answers: "asyncio.Queue[MessageEvent]", question: dict) -> dict:
    content = TextMessageEventContent(msgtype=MessageType.TEXT, body=question["text"])
    content["m.mentions"] = {"user_ids": [question["ghost"]]}
    sent = await client.send_message(question["room"], content)
    while True:
        event = await answers.get()
        if event.sender != question["ghost"] or event.content.get_reply_to() != sent:
            continue
        return {
            "question": sent,
            "answer": event.event_id,
            "body": event.content.body,
            "encrypted": event["mautrix"]["was_encrypted"],
        }


asyncio.run(main())
