// A partner that was removed, and everything for its re-admission over planes and rooms that tests script.
import { join } from "node:path";
import type { TestContext } from "node:test";
import { type Clock, systemRandom } from "../../src/domain/clock.ts";
import { writeStage } from "../../src/federation/offboarding/run/progress.ts";
import { type Run, writeRun } from "../../src/federation/offboarding/run/run.ts";
import { NewIdentities } from "../../src/federation/readmission/new-identities.ts";
import type { TouchedRoom } from "../../src/federation/readmission/readmission.ts";
import type { ReadmissionRooms } from "../../src/federation/readmission/rooms.ts";
import type { WorkflowContext } from "../../src/federation/readmission/workflow.ts";
import { runPass } from "../../src/federation/reconcile/pass.ts";
import type { Repository } from "../../src/federation/repository/repository.ts";
import type { StateFolder } from "../../src/federation/state/folder.ts";
import { editYaml } from "../../src/runtime/edit-yaml.ts";
import { commitRegistry, controlRepository, LIGHTHOUSE, openControl } from "./control-repository.ts";
import { HastyClock } from "./identities.ts";
import { registryFiles } from "./registry-folder.ts";
import { AT } from "./repository.ts";
import { temporaryFolder } from "./temporary.ts";

export const SERVER = "matrix.lighthouse.example:8448";
export const APPROVAL = "CHG-2041";
const ALL_CLOSED = {
  transport: "closed",
  rooms: "closed",
  border: "closed",
  card: "closed",
  gateway: "closed",
};

/** What the sample partner brings anew. */
export const FRESH: NewIdentities = NewIdentities.parse({
  version: 1,
  azp: "lighthouse-bridge-2",
  clientSecret: { file: "secrets/lighthouse-bridge-2" },
  serverKeys: ["ed25519:a_New1"],
  agents: {
    "lighthouse-weather": {
      cardIdentity: {
        keyId: "lighthouse-card-4",
        jwk: {
          kty: "EC",
          crv: "P-256",
          x: "zjvmdgmjf8N-7es89cvuKS2STP1mNugyRlOv34M37is",
          y: "jaLs0WzS1Ga_4WaIRQZEVZ_o-r8YTDV5r11WTgMN2Pc",
        },
      },
    },
  },
});

/** A repository in which the sample partner is removed; a reconciler had it in force. */
export async function removedPartner(directory: string, clock: Clock): Promise<Repository> {
  const repository = await controlRepository(join(directory, "control"));
  const { federation } = await openControl(directory, repository, clock);
  await runPass(federation);
  const text = editYaml(registryFiles().get(LIGHTHOUSE) ?? "", [{ path: ["planes"], value: ALL_CLOSED }]);
  await commitRegistry(repository, new Map([[LIGHTHOUSE, text]]));
  await runPass(federation);
  return repository;
}

/** Of what the sample partner brings, everything exchanged for something that was never used. */
export const FRESHER: NewIdentities = NewIdentities.parse({
  version: 1,
  azp: "lighthouse-bridge-3",
  clientSecret: { file: "secrets/lighthouse-bridge-3" },
  serverKeys: ["ed25519:a_New2"],
});

/** A removal of the sample partner that has begun its first stage. */
export function begunRemoval(state: StateFolder, opened_at: string): Run {
  const run = writeRun(state, {
    ...{ version: 1, run: "5".repeat(32), kind: "full", trigger: "contract_end" },
    ...{ remover: "harbour.example", partner: SERVER, self: "harbour.example" },
    ...{ private_record_file: "/nowhere", opened_at, ended: null },
    baseline: { revision: "0".repeat(40), policy_digest: null, policy_excluded: false },
  });
  writeStage(run, {
    ...{
      version: 1,
      stage: "a2a_stop",
      opened_at,
      countersignature_skipped: null,
      homeserver_started_at: null,
    },
    ...{ commit: null, proof: null },
  });
  return run;
}

export function kept(room: string, repairable: TouchedRoom["repairable"] = "yes"): TouchedRoom {
  return { room, state: "kept", replacement: null, repairable };
}

export interface ScriptedRooms extends ReadmissionRooms {
  /** As they are now; a replacement changes them. */
  touched: TouchedRoom[];
  /** Every room that was replaced, in order. */
  readonly replaced: string[];
}

export function scriptedRooms(...touched: readonly TouchedRoom[]): ScriptedRooms {
  const replaced: string[] = [];
  const rooms: ScriptedRooms = {
    touched: [...touched],
    replaced,
    observe: async () => rooms.touched,
    replace: async (_desired, _partner, names) => {
      replaced.push(...names);
      rooms.touched = rooms.touched.map((one) =>
        names.includes(one.room)
          ? { room: one.room, state: "replaced", replacement: `${one.room}-new`, repairable: "yes" }
          : one,
      );
      return rooms.touched.filter(({ room }) => names.includes(room));
    },
  };
  return rooms;
}

/** The walk's context over a repository, with planes of files. */
export async function walkIn(
  directory: string,
  repository: Repository,
  clock: Clock,
  rooms: ReadmissionRooms = scriptedRooms(),
) {
  const opened = await openControl(directory, repository, clock);
  const said: string[] = [];
  const context: WorkflowContext = {
    ...opened.federation,
    config: {},
    random: systemRandom,
    rooms,
    say: (text) => said.push(text),
  };
  return { ...opened, context, said, repository };
}

export async function readmission(t: Pick<TestContext, "after">, rooms?: ReadmissionRooms) {
  const directory = temporaryFolder(t);
  const clock = new HastyClock(AT);
  const repository = await removedPartner(directory, clock);
  return { ...(await walkIn(directory, repository, clock, rooms)), directory, clock };
}
