// Encrypted rooms, from a person's encrypting client to the agent and back, on a real Synapse.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { type EncryptedBridge, encryptedBridge, GHOST, questionTo } from "../../support/encrypted-bridge.ts";
import { EncryptingClient, encryptedRoom } from "../../support/encrypting-client.ts";
import { startSynapse, type TestSynapse } from "../../support/synapse.ts";

let synapse: TestSynapse;
let people = 0;
before(async () => {
  synapse = await startSynapse();
});
after(() => synapse.dispose());

async function person(): Promise<EncryptingClient> {
  people += 1;
  return await EncryptingClient.start(await synapse.user(`person${people}`));
}

/** A room of a person and the ghost, in which the ghost is. */
async function roomOf(client: EncryptingClient, bridge: EncryptedBridge) {
  const room = await encryptedRoom(client.user, [GHOST]);
  await bridge.settled(room);
  return room;
}

test("ENC-5: a question in an encrypted room is answered, encrypted", async (t) => {
  const bridge = await encryptedBridge(t, synapse);
  await bridge.start();
  const alice = await person();
  t.after(() => alice.close());
  const room = await roomOf(alice, bridge);
  const question = await alice.send(room, questionTo("when does the ferry leave?"));
  const reply = await alice.reply(room, question);
  assert.equal(reply.content["body"], "the answer");
  assert.equal(reply.sender, GHOST);
  assert.deepEqual(bridge.agent.behaviour.prompts, ["when does the ferry leave?"]);
});
