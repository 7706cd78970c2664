// Refuses what was retired wherever it would be used again, a registry that has forgotten some of it, and a removed
// partner that comes back without the record of a re-admission.
// Invariants: linear in the number of partners; a retired identity is allowed in its own entry while the plane that
// it is for is closed, and nowhere else; an organisation's list of retired identities never becomes shorter.
import { parseJson } from "../../domain/json.ts";
import { PLANE_NAMES } from "../plane-order.ts";
import { applicantsOf, type PartnerEntry, type Registry } from "./partner.ts";
import type { CrossProblem } from "./problems.ts";
import { ReadmissionRecord } from "./readmission-record.ts";
import {
  type PinnedIdentity,
  type Retired,
  type RetiredCardKey,
  type RetiredOwn,
  thumbprintOf,
  withCardKeys,
} from "./retired-identities.ts";

type Path = CrossProblem["path"];

/** The file that has retired each identity. */
interface Owners {
  readonly thumbprints: Map<string, string>;
  readonly clients: Map<string, string>;
}

/** Thumbprints of the card keys that other entries than this file's pin. */
export function thumbprintsElsewhere({ organisation, partners }: Registry, file: string): Set<string> {
  const consumed = [
    ...Object.values(organisation.consumes),
    ...partners.flatMap((one) => (one.file === file ? [] : Object.values(one.partner.card.consumes))),
  ].flatMap(({ cardIdentity }) => cardIdentity ?? []);
  const offered = Object.values(organisation.agents).flatMap(({ cardKeys }) => cardKeys);
  return new Set([...consumed, ...offered].map(({ jwk }) => thumbprintOf(jwk)));
}

export function checkRetired({ organisation, partners }: Registry, own: string): CrossProblem[] {
  const owners: Owners = { thumbprints: new Map(), clients: new Map() };
  const addKeys = (keys: readonly RetiredCardKey[], file: string) => {
    for (const { thumbprint } of keys) if (thumbprint !== undefined) owners.thumbprints.set(thumbprint, file);
  };
  addKeys(organisation.retired.cardKeys, own);
  for (const { file, partner } of partners) {
    addKeys(partner.retired.cardKeys, file);
    for (const client of partner.retired.clients) owners.clients.set(client, file);
  }

  const problems: CrossProblem[] = [];
  /** @param unused whether the entry's own plane is closed, so that nothing of it is in force */
  const key = (
    identity: PinnedIdentity | undefined,
    retired: readonly RetiredCardKey[],
    at: { readonly file: string; readonly path: Path; readonly unused: boolean },
  ) => {
    if (identity === undefined) return;
    const owner =
      owners.thumbprints.get(thumbprintOf(identity.jwk)) ??
      (retired.some(({ keyId }) => keyId === identity.keyId) ? at.file : undefined);
    if (owner === undefined || (at.unused && owner === at.file)) return;
    problems.push(
      problem(at.file, at.path, "retired_card_key", `pins a key that ${owner} has retired`, CARD),
    );
  };
  const client = (clientId: string, file: string, path: Path, unused: boolean) => {
    const owner = owners.clients.get(clientId);
    if (owner === undefined || (unused && owner === file)) return;
    problems.push(problem(file, path, "retired_client", `is a client that ${owner} has retired`, CLIENT));
  };

  const ownKeys = organisation.retired.cardKeys;
  for (const [agent, { cardKeys }] of Object.entries(organisation.agents)) {
    cardKeys.forEach((one, index) => {
      key(one, ownKeys, { file: own, path: ["agents", agent, "cardKeys", index], unused: false });
    });
  }
  for (const [agent, { cardIdentity }] of Object.entries(organisation.consumes)) {
    key(cardIdentity, ownKeys, { file: own, path: ["consumes", agent, "cardIdentity"], unused: false });
  }
  const closing = new Map(
    partners
      .filter(({ partner }) => partner.planes.gateway === "closed")
      .flatMap(({ file, partner }) => applicantsOf({ organisation }, partner).map((one) => [one, file])),
  );
  organisation.clients.forEach((one, index) => {
    // It stays declared and disabled, as the partner's own client does.
    if (closing.has(one) && owners.clients.get(one.clientId) === closing.get(one)) return;
    client(one.clientId, own, ["clients", index, "clientId"], false);
  });
  for (const { file, partner } of partners) {
    const { planes, retired, keyIds } = partner;
    for (const [agent, { cardIdentity }] of Object.entries(partner.card.consumes)) {
      const path = ["card", "consumes", agent, "cardIdentity"];
      key(cardIdentity, retired.cardKeys, { file, path, unused: planes.card === "closed" });
    }
    client(partner.azp, file, ["azp"], planes.gateway === "closed");
    const open = PLANE_NAMES.find((plane) => planes[plane] === "open");
    if (planes.gateway === "closed" && open !== undefined && retired.clients.includes(partner.azp)) {
      const message = "opens a plane to a partner that was removed";
      problems.push(problem(file, ["planes", open], "retired_partner", message, REMOVED));
    }
    const named = (ids: readonly string[], gone: readonly string[], plane: "server" | "card") => {
      const isUnused = planes[plane === "server" ? "transport" : "card"] === "closed";
      ids.forEach((id, index) => {
        if (isUnused || !gone.includes(id)) return;
        const rule = plane === "server" ? "retired_server_key" : "retired_card_key";
        problems.push(
          problem(file, ["keyIds", plane, index], rule, "names a key ID that is retired", KEY_ID),
        );
      });
    };
    named(keyIds.server, retired.serverKeys, "server");
    named(
      keyIds.card,
      retired.cardKeys.map(({ keyId }) => keyId),
      "card",
    );
  }
  return problems;
}

/**
 * The files of partners that were removed, have a new client since, and have a plane open: each needs the record of a
 * re-admission with that client.
 */
export function readmitted({ partners }: Registry): readonly PartnerEntry[] {
  return partners.filter(
    ({ partner: { planes, retired, azp } }) =>
      retired.clients.length > 0 &&
      !retired.clients.includes(azp) &&
      PLANE_NAMES.some((plane) => planes[plane] === "open"),
  );
}

/**
 * Those of them whose re-admission is not recorded.
 * @param records the texts of the repository's records of re-admissions; what is no such record counts as none
 */
export function withoutReadmission(registry: Registry, records: Iterable<string>): string[] {
  const opened = new Set(
    [...records].flatMap((text) => {
      const { success, data } = ReadmissionRecord.safeParse(parseJson(text));
      return success && data.act === "opened" ? [JSON.stringify([data.server_name, data.azp])] : [];
    }),
  );
  return readmitted(registry).flatMap(({ file, partner: { serverName, azp } }) =>
    opened.has(JSON.stringify([serverName, azp])) ? [] : [file],
  );
}

/** What one file has retired. */
export interface Retirement {
  readonly file: string;
  /** The partner; null for the organisation itself. */
  readonly serverName: string | null;
  readonly retired: RetiredOwn & Partial<Retired>;
}

export function retirementsIn({ organisation, partners }: Registry, own: string): readonly Retirement[] {
  return [
    { file: own, serverName: null, retired: organisation.retired },
    ...partners.map(({ file, partner: { serverName, retired } }) => ({ file, serverName, retired })),
  ];
}

/**
 * The files of earlier retirements that a later registry does not hold completely. Entries are compared by server name,
 * so that a file may be renamed, and never deleted while it retires anything.
 */
export function lostRetirement(earlier: readonly Retirement[], later: Registry): string[] {
  const now = new Map(retirementsIn(later, "").map(({ serverName, retired }) => [serverName, retired]));
  return earlier.flatMap(({ file, serverName, retired }) =>
    holdsAll({ ...NOTHING, ...now.get(serverName) }, { ...NOTHING, ...retired }) ? [] : [file],
  );
}

const NOTHING: Retired = { cardKeys: [], clients: [], serverKeys: [] };

function holdsAll(now: Retired, before: Retired): boolean {
  return (
    withCardKeys(now.cardKeys, before.cardKeys).length === now.cardKeys.length &&
    before.clients.every((client) => now.clients.includes(client)) &&
    before.serverKeys.every((keyId) => now.serverKeys.includes(keyId))
  );
}

const CARD = "Pin a fresh key: have the agent's operator rotate it, and give you the new public JWK.";
const CLIENT = "Declare a client with an ID and a secret of its own, which were never used before.";
const REMOVED = "Close it, and re-admit the partner as a new one: drawbridge readmission open.";
const KEY_ID = "Take the key ID from its operator again: after a removal, nothing of before is trusted.";

function problem(file: string, path: Path, rule: string, message: string, hint: string): CrossProblem {
  return { file, path, rule, message, hint };
}
