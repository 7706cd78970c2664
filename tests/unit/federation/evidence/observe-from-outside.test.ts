import assert from "node:assert/strict";
import { join } from "node:path";
import { it } from "node:test";
import { violationOf } from "../../../../src/federation/evidence/observe-from-outside.ts";
import { temporaryFolder, writeFile } from "../../../support/temporary.ts";

it("violationOf finds the line of an event below any number of later ones [OFF-4]", async (t) => {
  const file = join(temporaryFolder(t), "violations.jsonl");
  const line = (event: string) => {
    const about = { reason: "server_not_allowed", server: "b.test", room: "!room", event };
    const rest = { policy_digest: null, at: "2026-01-01T00:00:00.000Z" };
    return `${JSON.stringify({ schema: "svc_federation_policy_violation", ...about, ...rest })}\n`;
  };
  writeFile(file, line("$probe") + line("$flood").repeat(5_000));
  const partner = { serverName: "b.test", azp: "b" };
  const found = await violationOf(file, partner, "$probe");
  assert.deepEqual(found, { layer: "border", reason: "server_not_allowed", references: [] });
  assert.equal(await violationOf(file, partner, "$other"), undefined);
});
