// The issuer as plane 5 needs it, for either program. Invariants: clients are closed before any is opened or changed;
// a client that cannot be brought to its state is named with a reason and holds up no other; no secret is revealed.
import { resolve } from "node:path";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { ClientsFile } from "../../../rendered-files/issuer-clients.ts";
import { parseYaml } from "../../../runtime/load-yaml.ts";
import { PUBLIC, readIfPresent } from "../../../runtime/write-file.ts";
import { applyFile, fileDrift } from "../file-target.ts";
import type { Drift } from "../plane.ts";

export type IssuedClient = ClientsFile["clients"][number];

export interface IssuerIntent {
  readonly owner: string;
  readonly clients: readonly IssuedClient[];
  readonly text: string;
}

/** Clients that are not in their declared state, and why: no secret can be read here, or the issuer does not take them. */
export type IssuerFailures = Map<string, "secret_unavailable" | "issuer_refused">;

export interface IssuerAdapter {
  /** Brings the issuer to these clients and reads them back. @throws DrawbridgeError `issuer_unavailable` */
  apply(intent: IssuerIntent): Promise<{ readonly changed: boolean; readonly failures: IssuerFailures }>;
  /** The issuer's clients by ID, and whether each can have a token. @throws DrawbridgeError `issuer_unavailable` */
  read(): Promise<ReadonlyMap<string, { readonly enabled: boolean }>>;
  /** Kinds: `missing`, `extra`, `enabled` (against the registry), `disabled`, `edited`. @throws as `read` does */
  drift(intent: IssuerIntent): Promise<readonly Omit<Drift, "plane">[]>;
}

/** The one-machine issuer, which reads clients.yaml at each token request, so that a whole file is in force at once. */
export function declaredClientsAdapter(
  { clientsFile }: { readonly clientsFile: string },
  directory: string,
): IssuerAdapter {
  const target = resolve(directory, clientsFile);
  return {
    apply: async ({ text }) => ({ changed: applyFile(target, text, PUBLIC), failures: new Map() }),
    read: async () => {
      try {
        const { clients } = parseYaml(ClientsFile, readIfPresent(target) ?? "", target);
        return new Map(clients.map(({ clientId, enabled }) => [clientId, { enabled }]));
      } catch (cause) {
        // The issuer has an older version in force, which nobody else knows.
        throw new DrawbridgeError("issuer_unavailable", `${target} cannot be used`, {
          hint: "Run `drawbridge reconcile`, which writes it anew.",
          cause,
        });
      }
    },
    drift: async ({ text }) => {
      const drift = fileDrift(target, text);
      return drift === undefined ? [] : [drift];
    },
  };
}
