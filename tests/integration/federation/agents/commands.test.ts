// The commands about identities and re-admission as an operator runs them: exit codes, JSON, what they print.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { stringify } from "yaml";
import { systemClock } from "../../../../src/domain/clock.ts";
import { runCliHere } from "../../../support/cli-in-process.ts";
import { cardKey, FRESH, removedPartner } from "../../../support/readmission.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

/** A deployment without bridge and gateway, whose homeserver is down and whose partner was removed. */
async function deployment(t: TestContext) {
  const directory = temporaryFolder(t);
  const repository = await removedPartner(directory, systemClock);
  const down = "http://127.0.0.1:9";
  writeFileSync(join(directory, "token"), "not-a-token\n", { mode: 0o600 });
  writeFileSync(join(directory, "signing.key"), `ed25519 a_1 ${"A".repeat(43)}\n`, { mode: 0o600 });
  writeFileSync(join(directory, "fresh.yaml"), stringify(FRESH));
  const config = join(directory, "federation.yaml");
  const text = stringify({
    version: 1,
    repository: { path: "control" },
    homeserver: { url: down, operatorToken: { file: "token" }, signingKeyFile: "signing.key" },
    transport: { includeFile: "real/include.yaml", restart: { command: ["false"] } },
    border: {
      policyFile: "real/policy.json",
      statusToken: { file: "token" },
      violationsFile: "real/violations",
    },
  });
  writeFileSync(config, text);
  const drawbridge = (...args: readonly string[]) => runCliHere([...args, "--config", config]);
  return { directory, repository, drawbridge };
}

describe("readmission and agent commands", () => {
  it("the readmission commands report the state of a re-admission by exit code and text [RDM-1]", async (t) => {
    const { directory, drawbridge } = await deployment(t);
    const fresh = join(directory, "fresh.yaml");
    assert.equal((await drawbridge("readmission", "status", "lighthouse")).code, 2, "none was opened");
    const refused = await drawbridge(
      "readmission",
      "open",
      "pilot-station",
      "--approval",
      "CHG-1",
      "--new-identities",
      fresh,
    );
    assert.equal(refused.code, 4, refused.stderr);
    assert.match(refused.stderr, /\[not_removed\]\nhint: Re-admission follows a removal/);

    const opened = await drawbridge(
      "readmission",
      "open",
      "lighthouse",
      "--approval",
      "CHG-1",
      "--new-identities",
      fresh,
    );
    assert.equal(opened.code, 0, opened.stderr);
    assert.match(opened.stdout, /next: drawbridge readmission next lighthouse .* # opens plane 1 transport/);
    const next = await drawbridge("readmission", "next", "lighthouse");
    assert.equal(next.code, 5, next.stderr);
    assert.match(next.stdout, /1 transport is NOT OBSERVED OPEN YET/);
    assert.match(next.stdout, /NO +in_force +program_failed/);
    const status = await drawbridge("readmission", "status", "lighthouse", "--json");
    assert.equal(status.code, 5);
    const { steps } = JSON.parse(status.stdout);
    assert.deepEqual([steps[0].step, steps[0].own.state, steps[0].provedAt], ["transport", "proving", null]);
    assert.match(steps[0].commit, /^[0-9a-f]{40}$/);
  });

  it("agent pin and agent withdraw report the kind of refusal by exit code [PRT-1]", async (t) => {
    const { directory, drawbridge } = await deployment(t);
    const { identity } = await cardKey("harbour-card-9");
    const jwk = join(directory, "new.jwk");
    writeFileSync(jwk, JSON.stringify({ kty: "EC", crv: "P-256", ...identity.jwk, kid: identity.keyId }));
    const pin = ["agent", "pin", "matrix.harbour.example", "docs-qa", "--jwk", jwk];
    const refused = await drawbridge(...pin);
    assert.equal(refused.code, 4, refused.stderr);
    assert.match(
      refused.stderr,
      /docs-qa is pinned to harbour-card-2026 already; nothing was changed \[pinned_jwk\]/,
    );
    assert.equal((await drawbridge("agent", "pin", "lighthouse", "nobody", "--jwk", jwk)).code, 2);
    const withdrawn = await drawbridge("agent", "withdraw", "lighthouse", "lighthouse-weather", "--json");
    assert.equal(withdrawn.code, 0, withdrawn.stderr);
    const result = JSON.parse(withdrawn.stdout);
    assert.deepEqual(
      result.untouched.map(({ plane, before, after }: Record<string, string>) => [plane, before === after]),
      [
        ["transport", true],
        ["rooms", true],
        ["border", true],
      ],
    );
  });

  it("agent pin refuses an --old-card without a signature, and changes nothing [PRT-1]", async (t) => {
    const { directory, repository, drawbridge } = await deployment(t);
    const head = await repository.requireHead();
    const card = join(directory, "card.json");
    const jwk = join(directory, "key.jwk");
    const { identity } = await cardKey("lighthouse-card-3");
    writeFileSync(jwk, JSON.stringify({ kty: "EC", crv: "P-256", ...identity.jwk }));
    for (const text of ['{"name":"Weather"}', '{"name":"Weather","signatures":[]}', "no card"]) {
      writeFileSync(card, text);
      const pinned = await drawbridge(
        ...["agent", "pin", "lighthouse", "weather", "--jwk", jwk, "--key-id", "lighthouse-card-3"],
        ...["--replaces", "lighthouse-card-1", "--old-card", card],
      );
      const rotated = await drawbridge(
        ...[
          "agent",
          "rotate",
          "handbook",
          "--key",
          jwk,
          "--card",
          card,
          "--key-id",
          "next",
          "--old-card",
          card,
        ],
      );
      for (const { code, stderr } of [pinned, rotated]) {
        assert.equal(code, 2, stderr);
        assert.match(stderr, /card\.json is no signed Agent Card; nothing was changed\nhint: Name the card/);
      }
    }
    assert.equal(await repository.head(), head);
  });
});
