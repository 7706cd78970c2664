import assert from "node:assert/strict";
import { test } from "node:test";
import { stringify } from "yaml";
import { collectStatus } from "../../../src/lab/status/collect.ts";
import { renderStatus } from "../../../src/lab/status/render.ts";
import { FedStatus } from "../../../src/lab/status/schema.ts";
import { assertGolden } from "../../support/golden.ts";
import { paperLab } from "../../support/lab.ts";
import { temporaryFolder, writeFile } from "../../support/temporary.ts";

test("the status of a lab that does not run says so, and keeps to its schema", async () => {
  const status = FedStatus.parse(await collectStatus(paperLab("/nonexistent/lab/default")));
  assert.equal(status.healthy, false);
  assert.equal(status.supervisor.pid, null);
  assertGolden("lab/status-stopped.txt", renderStatus(status));
});

test("every path in a status is absolute, whatever the folder's name", async () => {
  const status = await collectStatus(paperLab("/nonexistent/a folder/lab/default"));
  const paths = [
    ...JSON.stringify(status).matchAll(
      /"(?:\w+(?:File|Directory)|directory|accessLog|documents)":"([^"]+)"/g,
    ),
  ];
  assert.ok(paths.length > 40);
  for (const [, path] of paths) assert.match(path ?? "", /^\/nonexistent\/a folder\//);
});

test("the clients of an organisation are those that its issuer has in force, also after a re-admission", async (t) => {
  const folder = temporaryFolder(t);
  const lab = paperLab(folder);
  const { clientsFile, clientSecret } = lab.paths.organisation("org-a");
  const listed = async () => (await collectStatus(lab)).organisations["org-a"].clients;
  assert.deepEqual(await listed(), [], "nothing is declared before the lab was first started");
  const declared = (clientId: string, partner?: string) => ({
    ...{ clientId, secret: { file: `secrets/${clientId}.secret` } },
    ...(partner === undefined ? {} : { partner }),
  });
  const clients = [
    declared("org-a-bridge"),
    declared("org-c-applicant", lab.serverNames["org-c"]),
    declared("org-b-bridge-2", lab.serverNames["org-b"]),
  ];
  writeFile(clientsFile, stringify({ version: 1, clients }));
  const [own, applicant, theirs] = clients.map(({ clientId, partner }) => ({
    ...{ clientId, secretFile: clientSecret(clientId), partner: partner ?? null },
  }));
  assert.deepEqual(await listed(), [own, theirs, applicant]);
  writeFile(clientsFile, "version: 1\nclients: [");
  assert.deepEqual(await listed(), [], "which of them the issuer goes on with, nobody else knows");
});

test("org-c has a homeserver and credentials, and nothing else", async () => {
  const { organisations } = await collectStatus(paperLab("/nonexistent"));
  const outsider = organisations["org-c"];
  assert.equal(outsider.bridge ?? outsider.gateway ?? outsider.issuer ?? outsider.agent, undefined);
  assert.deepEqual(
    outsider.clients.map((client) => client.clientId),
    ["org-c-bridge", "org-c-applicant", "org-c-applicant"],
  );
  assert.deepEqual(outsider.rooms, []);
});
