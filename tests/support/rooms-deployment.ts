// The rooms plane of one federated test server, configured as a deployment would be.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { systemClock } from "../../src/domain/clock.ts";
import type { FederationConfig } from "../../src/federation/config.ts";
import { type AclEnforcement, borderStatus } from "../../src/federation/planes/border/status.ts";
import type { DesiredPlane, Drift, PlaneOutcome } from "../../src/federation/planes/plane.ts";
import { ROOMS_INTENT } from "../../src/federation/planes/rooms/render.ts";
import { roomsRuntime } from "../../src/federation/planes/rooms/runtime.ts";
import type { PartnerEntry } from "../../src/federation/registry/partner.ts";
import type { EvidenceItem } from "../../src/records/format/evidence-item.ts";
import type { FederatedServer } from "./federation.ts";

export interface RoomsDeployment {
  /** What the passes told. */
  readonly notes: readonly string[];
  apply(intent: unknown): Promise<PlaneOutcome>;
  drift(intent: unknown): Promise<readonly Drift[]>;
  probe(intent: unknown, partner: string): Promise<readonly EvidenceItem[]>;
  enforcement(room: string, server: string): Promise<AclEnforcement>;
}

export function roomsDeployment(
  server: FederatedServer,
  operatorToken: string,
  folder: string,
  paceMs = 0,
): RoomsDeployment {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "operator-token"), operatorToken, { mode: 0o600 });
  const config = {
    directory: folder,
    state: "state",
    homeserver: {
      url: server.url,
      operatorToken: { file: "operator-token" },
      signingKeyFile: join(server.directory, "signing.key"),
      federationProxy: server.proxyUrl,
      federationCaFile: server.caFile,
    },
    rooms: { pace: paceMs, enforcementTimeout: 20_000 },
    border: { statusToken: { file: server.border.statusTokenFile } },
  } as unknown as FederationConfig;
  const runtime = roomsRuntime(config, { clock: systemClock });
  const notes: string[] = [];
  const desired = (intent: unknown) =>
    ({
      revision: "test",
      files: new Map([[ROOMS_INTENT, JSON.stringify(intent)]]),
    }) as unknown as DesiredPlane;
  return {
    notes,
    apply: (intent) => runtime.apply(desired(intent), { note: (text) => notes.push(text) }),
    drift: (intent) => runtime.drift(desired(intent)),
    probe: (intent, partner) =>
      runtime.probe(desired(intent), { partner: { serverName: partner } } as unknown as PartnerEntry),
    enforcement: (room, name) => borderStatus(config).enforcement(room, name),
  };
}
