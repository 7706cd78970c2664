// What can be wrong in a registry, reported all at once. Invariant: a value that may be a secret is never repeated.
import { DrawbridgeError } from "../../domain/errors.ts";
import { printableLine } from "../../domain/printable.ts";

export interface RegistryProblem {
  readonly file: string;
  readonly line: number;
  /** Dotted path of the key, such as `gateway.invokes.0`; empty for the whole file. */
  readonly path: string;
  /** Stable name of what was broken, such as `schema`, `duplicate_azp`, `secret.pem_block`. */
  readonly rule: string;
  readonly message: string;
  readonly hint: string;
}

/** A problem between files, whose line is still to be found. */
export interface CrossProblem extends Omit<RegistryProblem, "line" | "path"> {
  readonly path: readonly (string | number)[];
}

const HINTS = {
  own_server: "Name the partner's server instead.",
  duplicate_server: "Keep one file a partner; the other one may say something else.",
  server_case: "Write the name exactly as that homeserver's own server_name is.",
  server_host: "Give one of the two servers a host name of its own.",
  ip_literal: "Name the server by a host name.",
  ambiguous_name: "Rename one of the files: a partner is called by its server name or its file's name.",
  duplicate_azp: "Give each client an ID of its own: whoever shares one shares its access.",
  duplicate_secret: "Give each client a secret of its own: with another's, each gets tokens as the other.",
  duplicate_agent: "Name it once.",
  agent_not_offered: "Offer the agent, or remove it here.",
  path_collision: "Give each card and each agent a public path of its own.",
  agent_collision: "Name it after its organisation, such as org-b-docs-qa.",
  unknown_server: "Correct the name (ports count), or register the partner first.",
  secret_of_caller: "Name the secret that the endpoint's operator gave us, in a file or variable of its own.",
  secret_endpoint: "Name a secret of this endpoint's own, or correct the endpoint.",
  retired_card_key: "Pin a fresh key: have the agent's operator rotate it, and give you the new public JWK.",
  retired_server_key:
    "Take the key ID from its operator again: after a removal, nothing of before is trusted.",
  retired_client: "Declare a client with an ID and a secret of its own, which were never used before.",
  retired_partner: "Close it, and re-admit the partner as a new one: drawbridge readmission open.",
} as const;
export type CrossRule = keyof typeof HINTS;

export function broken(rule: CrossRule, file: string, path: CrossProblem["path"], message: string) {
  return { file, path, rule, message, hint: HINTS[rule] };
}

export function renderProblem({ file, line, path, rule, message, hint }: RegistryProblem): string {
  // Git keeps any name, such as one that goes on in a line of its own.
  const where = line === 0 ? printableLine(file) : `${printableLine(file)}:${line}`;
  return `${where}: ${path === "" ? "" : `${path}: `}${message} [${rule}]\n    hint: ${hint}`;
}

export class RegistryError extends DrawbridgeError {
  readonly problems: readonly RegistryProblem[];

  constructor(problems: readonly RegistryProblem[]) {
    const sorted = [...problems].sort(
      (a, b) => compare(a.file, b.file) || a.line - b.line || compare(a.path, b.path),
    );
    super("config_invalid", sorted.map(renderProblem).join("\n"), {
      hint: "Correct what is named above; nothing was rendered or changed.",
    });
    this.name = "RegistryError";
    this.problems = sorted;
  }
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
