// An operator of one organisation, who types the product's own commands about its own deployment.
// Invariant: nothing of the other organisation is reached but by a file that is passed on.
import { join } from "node:path";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import type { Lab } from "../lab.ts";
import { type CompleteOrganisation, partnerOf } from "../organisations.ts";
import { type RunOptions, runDrawbridge } from "../programs.ts";

/** The exit code of a command and its JSON. */
export interface CommandResult {
  readonly code: number;
  readonly output: unknown;
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

  /** How this organisation is probed as the counterparty. */
  get probeFile(): string {
    return this.#lab.paths.organisation(this.organisation).probeFile(this.counterparty);
  }

  /** Where a file for the counterparty is put. */
  get outbox(): string {
    return join(this.#lab.paths.organisation(this.organisation).federation, `for-${this.counterparty}.json`);
  }

  /**
   * Runs a command that prints JSON about this deployment.
   * @throws DrawbridgeError `program_failed` when it prints no JSON, with what it printed instead
   */
  async run(words: readonly string[], options: RunOptions = {}): Promise<CommandResult> {
    const { federation, federationConfig } = this.#lab.paths.organisation(this.organisation);
    const args = [...words, "--config", federationConfig, "--json"];
    const ended = await runDrawbridge(args, federation, options);
    try {
      return { code: ended.code, output: JSON.parse(ended.stdout), stderr: ended.stderr };
    } catch {
      throw commandFailed(this.organisation, words, ended);
    }
  }

  /** The same where any exit code but 0 is an error. */
  async mustRun(...words: readonly string[]): Promise<unknown> {
    const result = await this.run(words);
    if (result.code !== 0) throw commandFailed(this.organisation, words, result);
    return result.output;
  }
}

/** A command of an operator ended with an exit code that it should not have. */
export function commandFailed(
  organisation: CompleteOrganisation,
  words: readonly string[],
  { code, stderr }: Pick<CommandResult, "code" | "stderr">,
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
