// What a look for drift says while the program that it would ask is down: transport, card and gateway. The
// programs are ports where nobody listens, or one that answers as the test says.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { stringify } from "yaml";
import { systemClock } from "../../../../src/domain/clock.ts";
import { sha256Tagged } from "../../../../src/domain/digest.ts";
import { DrawbridgeError } from "../../../../src/domain/errors.ts";
import type { FederationConfig } from "../../../../src/federation/config.ts";
import { CARD_AGENTS, CARD_PUBLICATION, cardRender } from "../../../../src/federation/planes/card/render.ts";
import { cardRuntime } from "../../../../src/federation/planes/card/runtime.ts";
import {
  GATEWAY_CLIENTS,
  GATEWAY_INVOCATION,
  gatewayRender,
} from "../../../../src/federation/planes/gateway/render.ts";
import { gatewayRuntime } from "../../../../src/federation/planes/gateway/runtime.ts";
import type { DesiredPlane, PlaneRender, PlaneRuntime } from "../../../../src/federation/planes/plane.ts";
import { TRANSPORT_INCLUDE, transportRender } from "../../../../src/federation/planes/transport/render.ts";
import { transportRuntime } from "../../../../src/federation/planes/transport/runtime.ts";
import { scriptedHomeserver } from "../../../support/http-server.ts";
import { deployment, desiredPlane } from "../../../support/sample-files.ts";
import { temporaryFolder, writeFile } from "../../../support/temporary.ts";

const OWN = "a.test:8448";

/** An address where nobody listens any more. */
async function closedPort(): Promise<string> {
  const server = createServer();
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const { port } = server.address() as AddressInfo;
  await new Promise((closed) => server.close(closed));
  return `http://127.0.0.1:${port}`;
}

function wanted(render: PlaneRender): DesiredPlane {
  return desiredPlane(render, OWN, [{ serverName: "b.test:8448" }]);
}

function textOf({ files }: DesiredPlane, path: string): string {
  const text = files.get(path);
  assert.ok(text !== undefined, path);
  return text;
}

const isNot = (code: string) => (error: unknown) =>
  error instanceof DrawbridgeError && error.code === code && error.hint !== undefined;

async function kinds(plane: PlaneRuntime, desired: DesiredPlane): Promise<readonly string[]> {
  return (await plane.drift(desired)).map(({ subject, kind }) => [subject.split("/").at(-1), kind].join(" "));
}

describe("drift of planes whose programs are down", () => {
  it("transport drift is unknown while the homeserver is down, and an edited file is still drift [PLN-1]", async (t) => {
    const folder = temporaryFolder(t);
    const desired = wanted(transportRender);
    const down = transportRuntime(deployment(folder, await closedPort()), systemClock);
    const file = join(folder, "include/transport.yaml");
    assert.deepEqual(await kinds(down, desired), ["transport.yaml missing"]);
    writeFile(file, textOf(desired, TRANSPORT_INCLUDE));
    await assert.rejects(down.drift(desired), isNot("homeserver_unavailable"));
    writeFile(file, "federation_domain_whitelist: []\n");
    assert.deepEqual(await kinds(down, desired), ["transport.yaml edited"]);

    // It answers, and something in front of it does.
    writeFile(file, textOf(desired, TRANSPORT_INCLUDE));
    const ill = await scriptedHomeserver(t, () => ({ status: 502, body: "bad gateway" }));
    await assert.rejects(
      transportRuntime(deployment(folder, ill.url), systemClock).drift(desired),
      isNot("homeserver_unavailable"),
    );
    // It runs with another list than its file has.
    const other = await scriptedHomeserver(t, () => ({
      body: { whitelist_enabled: true, whitelist: ["c.test"] },
    }));
    assert.deepEqual(await kinds(transportRuntime(deployment(folder, other.url), systemClock), desired), [
      "federation_domain_whitelist not_in_force",
    ]);
  });

  const CARD_FILES = { agents: "bridge/agents.yaml", publication: "gateway/publication.yaml" } as const;

  async function withGateway(
    folder: string,
    more: { readonly health?: string; readonly keycloak?: string } = {},
  ): Promise<FederationConfig> {
    const nobody = await closedPort();
    writeFile(join(folder, "keycloak-secret"), "secret\n", 0o600);
    return {
      ...deployment(folder, nobody),
      card: {
        agentsFile: CARD_FILES.agents,
        bridgeAuditFile: "bridge/audit.jsonl",
        bridgeHealthUrl: `${more.health ?? nobody}/readyz`,
      },
      gateway: {
        publicationFile: CARD_FILES.publication,
        invocationFile: "gateway/invocation.yaml",
        stateFile: "gateway/state.json",
        accessLog: "gateway/access.jsonl",
        url: nobody,
        issuer:
          more.keycloak === undefined
            ? { adapter: "declared_clients", clientsFile: "issuer/clients.yaml" }
            : {
                adapter: "keycloak",
                url: more.keycloak,
                realm: "agents",
                adminClientId: "drawbridge",
                adminClientSecret: { file: "keycloak-secret" },
                adminRealm: "master",
                audience: "https://agents.a.test",
                secretsDirectory: ".",
              },
      },
    };
  }

  /** A gateway says that it has these files in force. */
  function gatewayRuns(folder: string, publication: string, invocation: string): void {
    const state = {
      ...{ version: 1, publication: sha256Tagged(publication), invocation: sha256Tagged(invocation) },
      ...{ since: "2026-01-02T03:04:05.000Z", refused: null },
    };
    writeFile(join(folder, "gateway/state.json"), JSON.stringify(state));
  }

  function bridgeRuns(t: TestContext, agents: string) {
    return scriptedHomeserver(t, () => ({ body: { agents: { digest: sha256Tagged(agents) } } }));
  }

  it("card drift is unknown while its programs are down, and known drift is reported all the same [PLN-4]", async (t) => {
    const folder = temporaryFolder(t);
    const desired = wanted(cardRender);
    const texts = { agents: textOf(desired, CARD_AGENTS), publication: textOf(desired, CARD_PUBLICATION) };
    const down = cardRuntime(await withGateway(folder), systemClock);
    assert.deepEqual(await kinds(down, desired), ["publication.yaml missing", "agents.yaml missing"]);
    for (const name of ["agents", "publication"] as const)
      writeFile(join(folder, CARD_FILES[name]), texts[name]);
    await assert.rejects(down.drift(desired), isNot("not_running"));

    gatewayRuns(folder, texts.publication, "");
    await assert.rejects(down.drift(desired), isNot("not_running"), "the bridge is down still");
    gatewayRuns(folder, "another", "");
    assert.deepEqual(await kinds(down, desired), ["publication not_in_force"]);

    const bridge = await bridgeRuns(t, texts.agents);
    const running = cardRuntime(await withGateway(folder, { health: bridge.url }), systemClock);
    gatewayRuns(folder, texts.publication, "");
    assert.deepEqual(await running.drift(desired), []);
    writeFile(join(folder, "gateway/state.json"), "{ cut off");
    await assert.rejects(running.drift(desired), isNot("not_running"), "what the gateway says is no state");
  });

  it("gateway drift is unknown while the gateway is down, and known drift is reported all the same [PLN-5]", async (t) => {
    const folder = temporaryFolder(t);
    const desired = wanted(gatewayRender);
    const invocation = textOf(desired, GATEWAY_INVOCATION);
    const down = gatewayRuntime(await withGateway(folder), systemClock);
    writeFile(join(folder, "gateway/invocation.yaml"), invocation);
    assert.deepEqual(await kinds(down, desired), ["clients.yaml missing"]);
    writeFile(join(folder, "issuer/clients.yaml"), textOf(desired, GATEWAY_CLIENTS));
    await assert.rejects(down.drift(desired), isNot("not_running"));
    gatewayRuns(folder, "", "another");
    assert.deepEqual(await kinds(down, desired), ["invocation not_in_force"]);
    gatewayRuns(folder, "", invocation);
    assert.deepEqual(await down.drift(desired), []);
  });

  it("client drift is unknown while the issuer is down, and the gateway's drift is reported all the same [PLN-5]", async (t) => {
    const folder = temporaryFolder(t);
    const desired = wanted(gatewayRender);
    const invocation = textOf(desired, GATEWAY_INVOCATION);
    const file = join(folder, "gateway/invocation.yaml");
    const plane = gatewayRuntime(await withGateway(folder, { keycloak: await closedPort() }), systemClock);
    writeFile(file, invocation);
    gatewayRuns(folder, "", invocation);
    await assert.rejects(plane.drift(desired), isNot("issuer_unavailable"));
    writeFile(file, stringify({ version: 1, agents: {} }));
    assert.deepEqual(await kinds(plane, desired), ["invocation.yaml edited"]);
  });
});
