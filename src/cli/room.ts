// drawbridge room: the rooms in which questions wait, and behind what.
import { defineCommand, OPTION, print } from "./lib/command.ts";
import { delegationTable, envelopeTable, found, inJson, onLedger, roomTable } from "./lib/waiting-work.ts";

export const listCommand = defineCommand({
  options: [OPTION.bridge, OPTION.json],
  help: `
The room whose question has waited longest comes first. HEAD: the delegation (a number) or the encrypted event whose turn
it is. SINCE: since when the question that waits longest waits for what it waits for now.`,
  async run(_, options) {
    const rooms = await onLedger(options.config, (operations) => operations.rooms());
    print(options, rooms.map(inJson), () => roomTable(rooms));
  },
});

export const showCommand = defineCommand({
  arguments: [["<room>", "the room ID"]],
  options: [OPTION.bridge, OPTION.json],
  help: `
The columns are those of the lists of rooms, delegations and encrypted events.`,
  async run([room], options) {
    const [[first], delegations, envelopes] = await onLedger(options.config, (operations, now) =>
      Promise.all([operations.rooms(room), operations.delegations(now, room), operations.envelopes(room)]),
    );
    const summary = found(first, "open work in that room", "drawbridge room list");
    const waiting = { delegations: delegations.map(inJson), envelopes: envelopes.map(inJson) };
    const tables = () => [roomTable([summary]), delegationTable(delegations), envelopeTable(envelopes)];
    print(options, { ...inJson(summary), ...waiting }, () => tables().join("\n"));
  },
});
