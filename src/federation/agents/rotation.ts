// What is remembered of a rotation until it is proved. Invariants: a step is written before its effect and
// found again after a kill; only public keys, cards and digests stand here, never a private key.
import { z } from "zod";
import { CardIdentity } from "../../rendered-files/agents-file.ts";
import type { StateFolder } from "../state/folder.ts";

const STEPS = ["begun", "staged", "cleared", "signed", "published", "proved"] as const;

const Rotation = z.strictObject({
  version: z.literal(1),
  agent: z.string(),
  /**
   * `begun`: which key is the new one; `staged`: it lies beside the old one; `cleared`: the old one is gone; and
   * so on.
   */
  step: z.enum(STEPS),
  begunAt: z.iso.datetime(),
  fresh: CardIdentity,
  /** Keys that are given up. */
  old: z.array(CardIdentity).min(1),
  isLost: z.boolean(),
  /** Cards signed by an old key, which must fail from now on; base64. */
  oldCards: z.array(z.string()),
  keyFile: z.string(),
  cardFile: z.string(),
});
export type Rotation = z.output<typeof Rotation>;

function fileOf(agent: string): string {
  return `agents/rotate-${agent}.json`;
}

/** The last rotation, under way or proved. @throws DrawbridgeError `config_invalid` when its file is damaged */
export function readRotation(state: StateFolder, agent: string): Rotation | undefined {
  return state.read(Rotation, fileOf(agent));
}

export function writeRotation(state: StateFolder, rotation: Rotation): Rotation {
  state.write(fileOf(rotation.agent), rotation);
  return rotation;
}

/** Whether a step lies behind, or is, another one. */
export function isAt({ step }: Rotation, other: Rotation["step"]): boolean {
  return STEPS.indexOf(step) >= STEPS.indexOf(other);
}
