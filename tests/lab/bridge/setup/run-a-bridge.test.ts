// docs/operating/run-a-bridge.md, step by step, with the real programs: what an operator would type.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { freePort } from "../../../../lab/ports.ts";
import { systemClock } from "../../../../src/domain/clock.ts";
import type { RoomId } from "../../../../src/domain/identifiers.ts";
import { testDatabase } from "../../../support/database.ts";
import { startSynapse, type TestUser } from "../../../support/synapse.ts";
import { ROOT, run, start, temporaryFolder } from "../../../support/temporary.ts";

const DRAWBRIDGE = join(ROOT, "bin", "drawbridge");
const PATIENCE_MS = 60_000;
const GHOST = "@agent_docs:a.test";

// The key of RFC 7515, appendix A.3; nothing answers at the address, so the agent stays unverified.
const AGENTS_YAML = `version: 1
agents:
  docs:
    cardUrl: http://127.0.0.1:9/card
    cardIdentity:
      keyId: key-1
      jwk:
        kty: EC
        crv: P-256
        x: f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU
        y: x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0
    allowedServers: [a.test]
    allowedSenders: ["@alice:a.test"]
`;

async function until<T>(what: string, poll: () => Promise<T | undefined>): Promise<T> {
  const deadline = systemClock.now() + PATIENCE_MS;
  while (systemClock.now() < deadline) {
    const found = await poll().catch(() => undefined);
    if (found !== undefined) return found;
    await systemClock.sleep(50);
  }
  throw new Error(`waited in vain: ${what}`);
}

describe("the guide to running a bridge", () => {
  it("a bridge set up as the operating guide says joins, answers !agents, and ends in order", async (t) => {
    const directory = join(temporaryFolder(t), "bridge");
    const { url } = await testDatabase(t, { migrated: false });
    const env = { ...process.env, DATABASE_URL: url };
    const config = join(directory, "bridge.yaml");
    const observePort = await freePort();
    const drawbridge = async (...words: string[]) => {
      const ended = await run(DRAWBRIDGE, words, { env });
      assert.equal(ended.code, 0, `drawbridge ${words.join(" ")}: ${ended.stderr}${ended.stdout}`);
      return ended.stdout;
    };

    const synapse = await startSynapse({
      register: async (homeserverUrl, bridgePort) => {
        await drawbridge(
          ...["bridge", "init", "--directory", directory, "--server-name", "a.test"],
          ...["--homeserver-url", homeserverUrl, "--listen-port", String(bridgePort)],
          ...["--observe-port", String(observePort)],
        );
        return (await drawbridge("bridge", "registration", "--config", config)).trim();
      },
    });
    t.after(() => synapse.dispose());
    writeFileSync(join(directory, "agents.yaml"), AGENTS_YAML);

    const bridge = start(DRAWBRIDGE, ["bridge", "--config", config], { env });
    t.after(() => bridge.child.kill("SIGKILL"));
    const readyz = `http://127.0.0.1:${observePort}/readyz`;
    await until("the bridge is ready", async () => ((await fetch(readyz)).ok ? true : undefined));
    const doctor = await run(DRAWBRIDGE, ["doctor", "--config", config], { env });
    assert.match(doctor.stdout, /^ok {7}bridge: running and ready$/m);
    assert.match(
      doctor.stdout,
      /^PROBLEM {2}agent docs: no card at http:\/\/127\.0\.0\.1:9\/card: unreachable$/m,
    );
    assert.equal(doctor.code, 1, "nobody serves the agent's card");

    const alice = await synapse.user("alice");
    const mallory = await synapse.user("mallory");
    const membership = async (user: TestUser, room: RoomId) => {
      const path = ["rooms", room, "state", "m.room.member", GHOST].map(encodeURIComponent).join("/");
      return (await user.call("GET", `/${path}`))["membership"];
    };
    const room = await alice.createRoom({ invite: [GHOST] });
    await until("the ghost joins", async () =>
      (await membership(alice, room)) === "join" ? true : undefined,
    );
    const other = await mallory.createRoom({ invite: [GHOST] });
    await until("it refuses a stranger", async () =>
      (await membership(mallory, other)) === "leave" ? true : undefined,
    );

    const path = ["rooms", room, "send", "m.room.message", "1"].map(encodeURIComponent).join("/");
    await alice.call("PUT", `/${path}`, { msgtype: "m.text", body: "!agents" });
    const said = await until("the directory", async () =>
      (await alice.messages(room)).find(({ content }) => content["msgtype"] === "m.notice"),
    );
    assert.equal(said.sender, GHOST);
    assert.match(String(said.content["body"]), /- docs: @agent_docs:a\.test \(not available now/);

    bridge.child.kill("SIGTERM");
    const { code, stdout, stderr } = await bridge.finished;
    assert.equal(code, 0);
    const asToken = readFileSync(join(directory, "secrets/as-token"), "utf8").trim();
    assert.doesNotMatch(stdout + stderr, new RegExp(asToken));
    assert.doesNotMatch(stdout + stderr, /!agents/);
  });
});
