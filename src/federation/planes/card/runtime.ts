// Plane 4 on the real parts: which cards the gateway publishes, whose cards the bridge trusts.
// Invariants: each file counts as applied only when the program that reads it says so by its digest; neither is
// left out because the other's program could not be reached.
import { resolve } from "node:path";
import type { Clock } from "../../../domain/clock.ts";
import { sha256Tagged } from "../../../domain/digest.ts";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { PUBLIC } from "../../../runtime/write-file.ts";
import type { FederationConfig } from "../../config.ts";
import { readGatewayState, untilInForce } from "../await-gateway.ts";
import { applyFile, fileDrift } from "../file-target.ts";
import {
  type Drift,
  type PlaneOutcome,
  type PlaneProgress,
  type PlaneRuntime,
  type RuntimeDependencies,
  renderedText,
  unmanagedPlane,
} from "../plane.ts";
import { bridgeAgentsDigest, untilAgentsInForce } from "./bridge-health.ts";
import { cardEvidence } from "./operator-evidence.ts";
import { CARD_AGENTS, CARD_PUBLICATION } from "./render.ts";

const RETRY_MS = 5_000;

/** A file of this plane, and the program that reads it. */
interface Part {
  /** Below `rendered/`. */
  readonly path: string;
  readonly target: string;
  readonly name: string;
  /** Digest of what the program has in force; undefined when it does not run. */
  digest(): Promise<string | undefined>;
  /**
   * @returns false when the program does not run
   * @throws DrawbridgeError when it refuses the file
   */
  untilInForce(text: string): Promise<boolean>;
  /** Why the plane waits when the program does not run. */
  readonly absent: string;
}

/** The card plane of one deployment. */
export function cardRuntime(config: FederationConfig, { clock }: RuntimeDependencies): PlaneRuntime {
  const parts = [...gatewayPart(config, clock), ...bridgePart(config, clock)];
  if (parts.length === 0) return unmanagedPlane("card");
  return {
    name: "card",

    async apply(desired, progress): Promise<PlaneOutcome> {
      const texts = parts.map((part) => ({ part, text: renderedText(desired, part.path) }));
      // All files are written first: each program loads its own while the other is waited for.
      const changes = texts.map(({ part, text }) => applyFile(part.target, text, PUBLIC));
      const waits = await Promise.allSettled(texts.map(({ part, text }) => wait(part, text, progress)));
      const failed = waits.find((result) => result.status === "rejected");
      if (failed !== undefined) throw failed.reason;
      const absent = waits.find((result) => result.status === "fulfilled" && result.value !== undefined);
      return absent?.status === "fulfilled" && absent.value !== undefined
        ? { state: "deferred", reason: absent.value, retryAfterMs: RETRY_MS }
        : { state: "in_force", changed: changes.includes(true) };
    },

    async drift(desired): Promise<readonly Drift[]> {
      const found: Drift[] = [];
      const unknown: Part[] = [];
      for (const part of parts) {
        const text = renderedText(desired, part.path);
        const file = fileDrift(part.target, text);
        if (file !== undefined) {
          found.push({ plane: "card", ...file });
          continue;
        }
        const digest = await part.digest();
        if (digest === undefined) unknown.push(part);
        else if (digest !== sha256Tagged(text)) {
          found.push({ plane: "card", subject: part.name, kind: "not_in_force", found: digest });
        }
      }
      const [absent] = unknown;
      if (found.length > 0 || absent === undefined) return found;
      throw new DrawbridgeError(
        "not_running",
        `the program that reads the ${absent.name} file is not running`,
        {
          hint: `Start the program that reads ${absent.target}.`,
        },
      );
    },

    probe: (desired, partner) => cardEvidence({ config, desired, partner, clock }),
  };
}

/** The reason to come back later, if there is one. */
async function wait(part: Part, text: string, progress: PlaneProgress): Promise<string | undefined> {
  if (!(await part.untilInForce(text))) return part.absent;
  progress.note(`${part.name} ${sha256Tagged(text)} is in force`);
  return undefined;
}

function gatewayPart({ gateway, directory }: FederationConfig, clock: Clock): Part[] {
  if (gateway === undefined) return [];
  const stateFile = resolve(directory, gateway.stateFile);
  return [
    {
      path: CARD_PUBLICATION,
      target: resolve(directory, gateway.publicationFile),
      name: "publication",
      digest: async () => readGatewayState(stateFile)?.publication,
      untilInForce: (text) => untilInForce({ stateFile, file: "publication", text }, clock),
      absent: "gateway_not_running",
    },
  ];
}

function bridgePart({ card, directory }: FederationConfig, clock: Clock): Part[] {
  if (card === undefined) return [];
  return [
    {
      path: CARD_AGENTS,
      target: resolve(directory, card.agentsFile),
      name: "agents",
      digest: () => bridgeAgentsDigest(card.bridgeHealthUrl),
      untilInForce: async (text) => {
        const found = await untilAgentsInForce(card.bridgeHealthUrl, sha256Tagged(text), clock);
        if (found !== "another") return found === "in_force";
        throw new DrawbridgeError("program_failed", "the bridge has another agents.yaml in force", {
          hint: "Compare card.agentsFile with agentsFile in bridge.yaml; the bridge's log says at agents_file_rejected why it refuses one.",
        });
      },
      absent: "bridge_not_running",
    },
  ];
}
