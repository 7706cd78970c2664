// What a removal is worked on with: the deployment, the keys that it signs with, and what only people can say.
import { resolve } from "node:path";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { readPublicKey } from "../../../records/format/ecdsa-p256.ts";
import type { CompletionPredicate } from "../../../records/format/predicates.ts";
import { loadTrust, type Trust } from "../../../records/format/trust.ts";
import { commandSigner, fileSigner, type Signer } from "../../../records/sign/signer.ts";
import { readInput } from "../../../runtime/read-input.ts";
import type { FederationConfig } from "../../config.ts";
import type { Federation } from "../../reconcile/context.ts";
import type { ObserveFromOutside } from "../../workflow/run-step.ts";
import type { RecordFacts } from "../private-record/consistency.ts";
import type { Run } from "./run-file.ts";

export type Residual = CompletionPredicate["residual"];

export interface OffboardingContext extends Federation {
  /** @throws DrawbridgeError `config_invalid` when the private record is incomplete */
  readonly facts: (run: Run) => RecordFacts;
  readonly residual: (context: OffboardingContext, run: Run) => Promise<Residual>;
  /** Undefined when nobody probes from outside. */
  readonly outside: ObserveFromOutside | undefined;
  /** A line of progress for a person. */
  readonly say: (text: string) => void;
}

/** One run, and what it is worked on with. */
export interface RunContext extends OffboardingContext {
  readonly run: Run;
  /** Both parties' keys, as they are pinned. */
  readonly trust: Trust;
}

/** @throws DrawbridgeError `config_invalid`, `secret_unavailable` */
export function signerOf(config: FederationConfig): Signer {
  const { signingKey } = sectionOf(config);
  if ("file" in signingKey) return fileSigner(resolve(config.directory, signingKey.file));
  const path = resolve(config.directory, signingKey.publicKeyFile);
  const pem = readInput(path, "Correct `offboarding.signingKey.publicKeyFile`.", "secret_unavailable");
  return commandSigner(signingKey.command, readPublicKey(pem.toString("utf8"), path));
}

/** Both parties' keys, as they are pinned. @throws DrawbridgeError `config_invalid`, `config_unreadable` */
export function trustOf(config: FederationConfig): Trust {
  return loadTrust(resolve(config.directory, sectionOf(config).trustFile));
}

function sectionOf(config: FederationConfig): NonNullable<FederationConfig["offboarding"]> {
  if (config.offboarding !== undefined) return config.offboarding;
  throw new DrawbridgeError("config_invalid", `${config.file} has no section \`offboarding\``, {
    hint: "Add `offboarding: {signingKey: {file: …}, trustFile: …}`; drawbridge records keygen makes the key.",
  });
}
