// A client with which an organisation had applied, and which it still has as a partner: closed with the partner.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { GATEWAY_CLIENTS, GATEWAY_INVOCATION } from "../../../../src/federation/planes/gateway/render.ts";
import { renderAll } from "../../../../src/federation/planes/render.ts";
import { directionOf } from "../../../../src/federation/reconcile/pass.ts";
import { loadRegistry } from "../../../../src/federation/registry/load.ts";
import { applicantsOf } from "../../../../src/federation/registry/partner.ts";
import { ClientsFile } from "../../../../src/rendered-files/issuer-clients.ts";
import { parseYaml } from "../../../../src/runtime/load-yaml.ts";
import { problemsOf, registryFiles } from "../../../support/sample-files.ts";

const ORGANISATION = "registry/organisation.yaml";
const PARTNER = "registry/partners/salvage.yaml";
const CLIENT = "salvage-applicant";

/** The sample registry with a client of this applicant's. */
function withApplicant(applicant: string, partner = (text: string) => text): Map<string, string> {
  const files = new Map(registryFiles());
  const declared = `clients:
  - clientId: ${CLIENT}
    applicant: ${applicant}
    secret: {file: client-secrets/${CLIENT}}
    invokes: [docs-qa]
    quota: {perMinute: 7, burst: 7}
`;
  files.set(ORGANISATION, (files.get(ORGANISATION) ?? "").replace("clients:\n", declared));
  return files.set(PARTNER, partner(files.get(PARTNER) ?? ""));
}

const open = (text: string) => text.replaceAll(": closed", ": open");
const contained = (text: string) => open(text).replace("classification:", "contained: true\nclassification:");

describe("a client with which a partner had applied", () => {
  it("a client with which a partner had applied is closed in every rendered file while the partner's gateway plane is [OFF-5]", () => {
    const serverName =
      loadRegistry(registryFiles()).partners.find(({ file }) => file === PARTNER)?.partner.serverName ?? "";
    const host = serverName.split(":")[0] ?? "";
    for (const [applicant, partner, isCaller] of [
      [serverName, undefined, false],
      [`${host}:9999`, undefined, false],
      [`${host}.`, undefined, false],
      [serverName, contained, false],
      [serverName, open, true],
      ["matrix.nobody.example", undefined, true],
    ] as const) {
      const registry = loadRegistry(withApplicant(applicant, partner));
      const rendered = renderAll(registry);
      const named = [...rendered].filter(([, text]) => text.includes(CLIENT)).map(([path]) => path);
      const clients = `rendered/${GATEWAY_CLIENTS}`;
      const { clients: declared } = parseYaml(ClientsFile, rendered.get(clients) ?? "", clients);
      assert.equal(declared.find(({ clientId }) => clientId === CLIENT)?.enabled, isCaller, applicant);
      assert.equal(named.includes(`rendered/${GATEWAY_INVOCATION}`), isCaller, applicant);
      if (!isCaller) assert.deepEqual(named, [clients], "no route, policy or limit names it");
    }
  });

  it("a change that closes such a client with its partner is a closing one [OFF-5]", () => {
    const serverName = loadRegistry(registryFiles()).partners.find(({ file }) => file === PARTNER)?.partner
      .serverName;
    const [before, after] = [open, undefined].map((partner) =>
      loadRegistry(withApplicant(serverName ?? "", partner)),
    );
    assert.ok(before !== undefined && after !== undefined);
    assert.equal(directionOf(before, after), "closing");
    assert.deepEqual(
      applicantsOf(after, { serverName: serverName as never }).map(({ clientId }) => clientId),
      [CLIENT],
    );
  });

  it("such a client is retired with its partner, stays declared, and lets no plane be opened again [OFF-5]", () => {
    const serverName = loadRegistry(registryFiles()).partners.find(({ file }) => file === PARTNER)?.partner
      .serverName;
    const retired = (text: string) => `${text}retired: {clients: [salvage-co, ${CLIENT}]}\n`;
    const rulesOf = (applicant: string, partner: (text: string) => string) =>
      problemsOf(withApplicant(applicant, partner)).map(({ rule }) => rule);
    assert.deepEqual(rulesOf(serverName ?? "", retired), []);
    assert.ok(rulesOf(serverName ?? "", (text) => retired(open(text))).includes("retired_client"));
    assert.ok(rulesOf("matrix.nobody.example", retired).includes("retired_client"));
  });
});
