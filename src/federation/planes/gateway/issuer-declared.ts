// The one-machine issuer: clients.yaml beside it, which it reads at each token request, so that a whole file is in force
// at once.
import { resolve } from "node:path";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { ClientsFile } from "../../../rendered-files/issuer-clients.ts";
import { parseYaml } from "../../../runtime/load-yaml.ts";
import { PUBLIC, readIfPresent } from "../../../runtime/write-file.ts";
import { applyFile, fileDrift } from "../file-target.ts";
import type { IssuerAdapter } from "./issuer-adapter.ts";

/** @param directory where a relative path starts */
export function declaredClientsAdapter(
  { clientsFile }: { readonly clientsFile: string },
  directory: string,
): IssuerAdapter {
  const target = resolve(directory, clientsFile);
  return {
    apply: async ({ text }) => ({ changed: applyFile(target, text, PUBLIC), failures: [] }),
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
