import assert from "node:assert/strict";
import { test } from "node:test";
import { collectStatus } from "../../../src/lab/status/collect.ts";
import { renderStatus } from "../../../src/lab/status/render.ts";
import { FedStatus } from "../../../src/lab/status/schema.ts";
import { assertGolden } from "../../support/golden.ts";
import { paperLab } from "../../support/lab.ts";

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
