// An operator of one organisation who removes the other, or is removed: types the product's own commands about
// one deployment, and passes files on. Invariant: nothing of the other organisation is reached but by a file.
import { join } from "node:path";
import { z } from "zod";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import type { Lab } from "../lab.ts";
import { type CompleteOrganisation, partnerOf } from "../organisations.ts";
import { typed } from "../programs.ts";

const Block = z.object({
  stage: z.string().nullable(),
  plane: z.string().nullable(),
  condition: z.string(),
  probe: z.string(),
  found: z.string(),
  hint: z.string(),
});

/** Of `drawbridge offboarding status`, what the lab goes by. */
export const RunStatus = z.object({
  run: z.string(),
  kind: z.string(),
  remover: z.string(),
  partner: z.string(),
  self: z.string(),
  openedAt: z.string(),
  /** Of an emergency: when planes 5, 4, 2 and 3 were closed at once. */
  containedAt: z.string().nullable(),
  ended: z.object({ how: z.enum(["completed", "aborted"]) }).nullable(),
  stages: z.array(
    z.object({
      stage: z.string(),
      planeNumber: z.int().nullable(),
      own: z.object({ state: z.string() }),
      openedAt: z.string().nullable(),
      provedAt: z.string().nullable(),
      blocks: z.array(Block),
    }),
  ),
  next: z.array(z.string()),
  waiting: z.object({ for: z.string(), what: z.string(), stage: z.string().nullable() }).nullable(),
  recordFile: z.string().nullable(),
});
export type RunStatus = z.output<typeof RunStatus>;

export interface Said {
  readonly code: number;
  readonly said: unknown;
  readonly stderr: string;
}

export class Operator {
  readonly organisation: CompleteOrganisation;
  readonly counterparty: CompleteOrganisation;
  readonly #lab: Lab;

  constructor(lab: Lab, organisation: CompleteOrganisation) {
    this.#lab = lab;
    this.organisation = organisation;
    this.counterparty = partnerOf(organisation);
  }

  /** How this organisation is looked at as the counterparty. */
  get probeFile(): string {
    return this.#lab.paths.organisation(this.organisation).probeFile(this.counterparty);
  }

  /** Where a file for the counterparty is put. */
  get outbox(): string {
    return join(this.#lab.paths.organisation(this.organisation).federation, `for-${this.counterparty}.json`);
  }

  /**
   * Types a command that prints JSON about this deployment.
   * @throws DrawbridgeError `program_failed` when it prints none, with what it said instead
   */
  async type(...words: readonly string[]): Promise<Said> {
    const { federation, federationConfig } = this.#lab.paths.organisation(this.organisation);
    const args = [...words, "--config", federationConfig, "--json"];
    const { code, stdout, stderr } = await typed(args, federation, "pipe");
    try {
      return { code, said: JSON.parse(stdout), stderr };
    } catch {
      throw failed(this.organisation, words, { code, stderr });
    }
  }

  /** The same where nothing but success will do. */
  async must(...words: readonly string[]): Promise<unknown> {
    const answer = await this.type(...words);
    if (answer.code !== 0) throw failed(this.organisation, words, answer);
    return answer.said;
  }
}

/** What a command of an operator's ended with, where it should not have. */
export function failed(
  organisation: CompleteOrganisation,
  words: readonly string[],
  { code, stderr }: Pick<Said, "code" | "stderr">,
): DrawbridgeError {
  const lines = stderr.trimEnd().split("\n").slice(-30);
  return new DrawbridgeError(
    "program_failed",
    [
      `${organisation}: drawbridge ${words.slice(0, 2).join(" ")} ended with ${code}`,
      ...lines.map((line) => `  | ${line}`),
    ].join("\n"),
    { hint: "Do what it says; then run the same task again: it goes on where it stopped." },
  );
}
