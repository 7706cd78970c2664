// The shared rooms as one organisation has them now: a containment or a removal leaves some, and puts another in
// the place of some of those. Invariant: by the rooms plane's own journal, which is only read.
import { join } from "node:path";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import {
  journaledPartners,
  type RoomRecord,
  readJournal,
} from "../../src/federation/planes/rooms/journal.ts";
import type { Lab } from "../lab.ts";
import { ADMITTED_ORGANISATIONS, isComplete, type OrganisationName } from "../organisations.ts";
import type { Seed } from "../seed/seed.ts";
import type { OrganisationStatus } from "./schema.ts";

/** The organisation's own room first, then the others', then the same in their encrypted form. */
export async function roomsOf(
  lab: Lab,
  seed: Seed | undefined,
  name: OrganisationName,
): Promise<OrganisationStatus["rooms"]> {
  if (seed === undefined || !ADMITTED_ORGANISATIONS.includes(name)) return [];
  const left = isComplete(name)
    ? await leftRooms(join(lab.paths.organisation(name).federationState, "rooms"))
    : NONE;
  return seed.rooms
    .toSorted(
      (a, b) =>
        Number(a.encrypted) - Number(b.encrypted) ||
        Number(b.createdBy === name) - Number(a.createdBy === name),
    )
    .map(({ roomId, alias, encrypted }) => {
      const record = left.get(roomId);
      return {
        ...{ roomId, alias, encrypted },
        left: record === undefined ? null : (record.gone?.how ?? "replaced"),
        replacedBy: record?.replacement?.to ?? null,
      };
    });
}

const NONE: ReadonlyMap<string, RoomRecord> = new Map();

async function leftRooms(folder: string): Promise<ReadonlyMap<string, RoomRecord>> {
  const found = new Map<string, RoomRecord>();
  try {
    for (const partner of await journaledPartners(folder)) {
      for (const record of readJournal(folder, partner).rooms) {
        if (record.gone !== undefined || record.replacement !== undefined) found.set(record.room, record);
      }
    }
  } catch (error) {
    // A journal that cannot be read is the reconciler's to tell.
    if (!(error instanceof DrawbridgeError)) throw error;
  }
  return found;
}
