// A thread of machines in which certain inputs make the library panic, as a defect of its own would: a real
// panic, by a call that the library's documentation says panics. Everything else is the thread itself.
import { OlmMachine, RoomId } from "@matrix-org/matrix-sdk-crypto-wasm";

/** In a to-device message's type, or in an event's ciphertext. */
const MARK = "PANIC";

const { receiveSyncChangesMsc4186, decryptRoomEvent } = OlmMachine.prototype;

const panic = (machine: OlmMachine) => machine.encryptRoomEvent(new RoomId("!none:a.test"), "m.test", "{}");

OlmMachine.prototype.receiveSyncChangesMsc4186 = async function (messages, ...rest) {
  if (messages.includes(MARK)) await panic(this);
  return await receiveSyncChangesMsc4186.call(this, messages, ...rest);
};
OlmMachine.prototype.decryptRoomEvent = async function (event, ...rest) {
  if (event.includes(MARK)) await panic(this);
  return await decryptRoomEvent.call(this, event, ...rest);
};

await import("../../../../src/bridge/crypto/machine-thread-entry.ts");
