// Plane 1 on real homeservers: A's whitelist is applied by a restart, and its partner is refused by A itself.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, describe, it } from "node:test";
import { systemClock, systemRandom } from "../../../../src/domain/clock.ts";
import { signedRequests } from "../../../../src/federation/homeserver/signed-request.ts";
import { transportRender } from "../../../../src/federation/planes/transport/render.ts";
import { transportRuntime } from "../../../../src/federation/planes/transport/runtime.ts";
import { ProbeFile } from "../../../../src/federation/probes/config.ts";
import { probeFromOutside } from "../../../../src/federation/probes/from-outside.ts";
import { type FederatedServer, type Federation, startFederation } from "../../../support/federation.ts";
import {
  type DesiredPartner,
  deployment,
  desiredPlane,
  partnerEntry,
} from "../../../support/sample-files.ts";
import { temporaryFolder, writeFile } from "../../../support/temporary.ts";

describe("the transport plane on a real homeserver", () => {
  let federation: Federation<"a" | "b">;
  before(async () => {
    federation = await startFederation(["a", "b"], {
      border: { a: (names) => JSON.stringify({ allowed_servers: Object.values(names) }) },
    });
  });
  after(() => federation?.dispose());

  it("a removed partner's signed send gets 403 M_FORBIDDEN after one restart, and passes when listed [PLN-1]", async (t) => {
    const { a, b } = federation.servers;
    const operator = await a.user("operator", true);
    let restarts = 0;
    const restarter = createServer((_request, response) => {
      restarts += 1;
      a.stop()
        .then(() => a.start())
        .catch(() => undefined);
      response.end();
    });
    await new Promise<void>((resolve) => restarter.listen(0, "127.0.0.1", resolve));
    t.after(() => restarter.close());
    const url = `http://127.0.0.1:${(restarter.address() as AddressInfo).port}`;

    const directory = temporaryFolder(t);
    const base = deployment(directory, a.url, {
      transport: {
        includeFile: a.includeFile,
        restart: { command: [process.execPath, "-e", "await fetch(process.argv[1])", url] },
      },
      border: { statusToken: { file: a.border.statusTokenFile } },
    });
    writeFile(`${directory}/operator-token`, operator.accessToken, 0o600);
    const plane = transportRuntime(base, systemClock);
    const desired = (partner: DesiredPartner) => desiredPlane(transportRender, a.name, [partner]);
    const open = { serverName: b.name };
    const closed = { serverName: b.name, planes: { transport: "closed" } } as const;
    const quiet = () => undefined;

    assert.deepEqual(await plane.apply(desired(open), quiet), { state: "in_force", changed: true });
    assert.equal((await send(b, a)).status, 200);
    assert.equal((await plane.probe(desired(open), partnerEntry(open)))[0]?.verdict, "open");
    const withoutKey = await knock(b, a, directory);
    assert.deepEqual([withoutKey?.verdict, withoutKey?.reason], ["unknown", "not_configured:signing_key"]);

    assert.deepEqual(await plane.apply(desired(closed), quiet), { state: "in_force", changed: true });
    const refused = await send(b, a);
    assert.deepEqual([refused.status, refused.errcode], [403, "M_FORBIDDEN"]);
    assert.equal((await plane.probe(desired(closed), partnerEntry(closed)))[0]?.verdict, "closed");
    const { verdict, layer, status, reason, references } = (await knock(b, a, directory)) ?? {};
    assert.deepEqual(
      [verdict, layer, status, reason, references],
      ["closed", "transport", 403, "federation_denied", ["signed_with=ed25519:moment"]],
      "without the partner's key",
    );

    assert.deepEqual(await plane.apply(desired(closed), quiet), { state: "in_force", changed: false });
    assert.deepEqual(await plane.drift(desired(closed)), []);
    assert.equal(restarts, 2, "a pass that changes nothing restarts nothing");

    assert.deepEqual(await plane.apply(desired(open), quiet), { state: "in_force", changed: true });
    assert.equal((await send(b, a)).status, 200);
  });

  /** What the probe of `to` finds whose file names no signing key of `from`. */
  async function knock(from: FederatedServer, to: FederatedServer, directory: string) {
    const { proxyUrl: federationProxy, caFile: federationCaFile } = from;
    const read = ProbeFile.parse({
      version: 1,
      target: { serverName: to.name },
      as: { serverName: from.name, federationCaFile, federationProxy },
    });
    const sources = { clock: systemClock, random: systemRandom };
    const planes = new Set(["transport"] as const);
    const items = await probeFromOutside({ ...read, directory }, sources, { planes });
    return items.find(({ probe }) => probe === "federation_send");
  }

  /**
   * An empty transaction, signed by `from`. A homeserver that has just started may not be able to fetch a key yet and
   * answers 401, which says nothing about its whitelist (that is read before the signature): asked again.
   */
  async function send(from: FederatedServer, to: FederatedServer) {
    const requests = signedRequests({
      name: from.name,
      signingKey: from.signingKey,
      proxyUrl: from.proxyUrl,
      ca: readFileSync(from.caFile, "utf8"),
    });
    try {
      for (let attempt = 0; ; attempt++) {
        const path = `/_matrix/federation/v1/send/t${systemClock.now()}`;
        const content = { origin: from.name, origin_server_ts: systemClock.now(), pdus: [] };
        const answer = await requests.request(to.name, path, content);
        if (answer.status !== 401) return answer;
        assert.ok(attempt < 20, `${JSON.stringify(answer.body)}\n${to.log().slice(-2_000)}`);
        await systemClock.sleep(500);
      }
    } finally {
      await requests.close();
    }
  }
});
