// What both organisations' registries say becomes of shared rooms at a removal, as their operators would have
// agreed and written it before. Invariants: both sides say the same: a room that one of them leaves for good is
// blocked at its server, and opened again by nobody; the rest of an entry is left as it stands.
import { systemClock } from "../../src/domain/clock.ts";
import { editFile, type FileEdit } from "../../src/federation/change/edit-file.ts";
import type { Partner } from "../../src/federation/registry/partner.ts";
import { changeRegistry } from "../configuration/control-repository.ts";
import type { Lab } from "../lab.ts";
import { COMPLETE_ORGANISATIONS, partnerOf } from "../organisations.ts";

export const KEPT_OR_REPLACED = ["keep", "replace"] as const;
export type KeptOrReplaced = (typeof KEPT_OR_REPLACED)[number];

/** `keep`: read-only, and what cannot be closed is listed; `replace`: what an entry says that says nothing. */
const ROOMS: Readonly<Record<KeptOrReplaced, Readonly<Record<string, string>>>> = {
  keep: { whenRemoved: "read_only", whenUnclosable: "list" },
  replace: { whenRemoved: "replace", whenUnclosable: "replace" },
};

/** Whether an entry says so already. */
export function isDeclared(entry: Pick<Partner, "rooms">, rooms: KeptOrReplaced): boolean {
  return Object.entries(ROOMS[rooms]).every(
    ([key, value]) => new Map(Object.entries(entry.rooms)).get(key) === value,
  );
}

/** Commits it at both; nothing where it stands there already. */
export async function declareRooms(lab: Lab, rooms: KeptOrReplaced): Promise<void> {
  for (const organisation of COMPLETE_ORGANISATIONS) {
    const partner = partnerOf(organisation);
    const file = `registry/partners/${partner}.yaml`;
    const edits = Object.entries(ROOMS[rooms]).map(
      ([key, value]): FileEdit => ({ path: ["rooms", key], value }),
    );
    await changeRegistry(
      lab,
      organisation,
      `At a removal of ${partner}: ${rooms} shared rooms`,
      systemClock,
      (found) => new Map([...found, [file, editFile(found.get(file) ?? "", edits)]]),
    );
  }
}
