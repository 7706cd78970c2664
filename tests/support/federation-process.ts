// One procedure of federation control in a process of its own that tests can kill: real git, real files, real keys.
// Arguments: the procedure's name, then its own. Prints `begun`, and `done` when it has ended as it should.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import { rotateAgent } from "../../src/federation/agents/rotate.ts";
import type { FederationConfig } from "../../src/federation/config.ts";
import { applyPlanes, performAct } from "../../src/federation/containment/contain-or-restore.ts";
import { runPurge } from "../../src/federation/offboarding/duties/purge.ts";
import { findRun } from "../../src/federation/offboarding/run/run-file.ts";
import { nextStep } from "../../src/federation/readmission/next-step.ts";
import { openReadmission } from "../../src/federation/readmission/readmission.ts";
import { Repository } from "../../src/federation/repository/repository.ts";
import { openStateFolder } from "../../src/federation/state/folder.ts";
import { openControl } from "./control-repository.ts";
import type { FederatedServer } from "./federation.ts";

const say = (line: string) => process.stdout.write(`${line}\n`);

const PROCEDURES: Readonly<Record<string, (...args: string[]) => Promise<void>>> = {
  async containment(folder = "", partner = "") {
    const repository = await Repository.open(join(folder, "control"), "main");
    const { federation, events } = await openControl(folder, repository, systemClock);
    say("begun");
    const { partner: entry } = await performAct(federation, "contain", partner);
    const applied = await applyPlanes(federation, "contain", entry);
    if (events.some(({ event }) => event === "drift")) say("drift");
    say(applied.every(({ done }) => done) ? "done" : "left");
  },

  /** Both sides of a removal, until both hold the record. */
  async offboarding(folder = "") {
    const { openSide } = await import("./offboarding.ts");
    const { A, B } = await import("./offboarding-planes.ts");
    const { driveToEnd } = await import("./offboarding-steps.ts");
    const sides = [await openSide(folder, A), await openSide(folder, B)];
    say("begun");
    await driveToEnd(folder, sides);
    say("done");
  },

  /** On a real homeserver; prints each step as it begins. @param text JSON */
  async purge(text = "") {
    const { config, state, run, digest } = JSON.parse(text) as {
      /** The parts of federation.yaml that a purge uses. */
      readonly config: FederationConfig;
      readonly state: string;
      readonly run: string;
      readonly digest: string;
    };
    const context = { config, clock: systemClock, say };
    await runPurge(context, findRun(openStateFolder(state, systemRandom), run), digest);
    say("done");
  },

  async readmission(folder = "") {
    const { APPROVAL, FRESH, kept, scriptedRooms, workflowIn } = await import("./readmission.ts");
    const repository = await Repository.open(join(folder, "control"), "main");
    const rooms = scriptedRooms(kept("!a"));
    // Rooms that were replaced before a kill stay replaced.
    const memory = join(folder, "replaced");
    const { replace, observe } = rooms;
    rooms.observe = async (...args) => {
      if (existsSync(memory)) {
        await replace(args[0], args[1], readFileSync(memory, "utf8").trim().split("\n"));
      }
      return observe(...args);
    };
    rooms.replace = async (desired, partner, names) => {
      writeFileSync(memory, `${names.join("\n")}\n`, { flag: "a" });
      return replace(desired, partner, names);
    };
    const { context, events } = await workflowIn(folder, repository, systemClock, rooms);
    say("begun");
    await openReadmission(context, { partner: "lighthouse", approval: APPROVAL, identities: FRESH });
    let done = false;
    for (let steps = 0; !done && steps < 10; steps++) {
      ({ done } = await nextStep(context, { partner: "lighthouse" }));
    }
    if (events.some(({ event }) => event === "drift")) say("drift");
    say(done ? "done" : "left");
  },

  /** One rotation of an agent's key, until it is proved. */
  async rotation(folder = "") {
    const repository = await Repository.open(join(folder, "control"), "main");
    const { federation } = await openControl(folder, repository, systemClock);
    say("begun");
    const parts = {
      fetch: async () => ({ fetched: false, failure: "unreachable", status: undefined }) as const,
      clock: systemClock,
    };
    const { complete } = await rotateAgent(federation, parts, {
      agent: "docs-qa",
      keyFile: join(folder, "secrets", "docs-qa.jwk"),
      cardFile: join(folder, "docs-qa", "agent-card.json"),
      keyId: "harbour-card-2",
      isLost: false,
      cardUrl: () => undefined,
    });
    say(complete ? "done" : "left");
  },

  /** The rooms plane, applied once. @param text JSON */
  async rooms(text = "") {
    const { roomsDeployment } = await import("./rooms-deployment.ts");
    const { server, operatorToken, folder, intent } = JSON.parse(text) as {
      server: FederatedServer;
      operatorToken: string;
      folder: string;
      intent: unknown;
    };
    say(JSON.stringify(await roomsDeployment(server, operatorToken, folder).apply(intent)));
  },
};

const [procedure = "", ...args] = process.argv.slice(2);
const run = PROCEDURES[procedure];
if (run === undefined) throw new TypeError(`there is no procedure ${procedure}`);
await run(...args);
