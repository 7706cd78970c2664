// The gateway beside a program in Envoy's place, whose admin interface answers as the test says.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { stringify } from "yaml";
import { freePort } from "../../../lab/ports.ts";
import { type Clock, systemClock } from "../../../src/domain/clock.ts";
import { serve } from "../../../src/gateway/serve.ts";
import { eventually } from "../../support/gateway.ts";
import { httpServer } from "../../support/http-server.ts";
import { recordedLog } from "../../support/recorded-log.ts";
import { temporaryFolder, writeFile } from "../../support/temporary.ts";

const SPEED = 20;
const fastClock: Clock = {
  now: () => systemClock.now() * SPEED,
  sleep: (ms, signal) => systemClock.sleep(ms / SPEED, signal),
};

const SCOPES = { cds: "cluster_manager.cds", lds: "listener_manager.lds", rds: "http.gateway.rds.agents" };

describe("serve", () => {
  it("what Envoy refuses is tried again though no file changes, and taken up once Envoy takes it [PLN-5]", async (t) => {
    const folder = temporaryFolder(t);
    const admin = await httpServer(t);
    const taken = new Map<string, string>();
    let isRefusing = false;
    let refusals = 0;
    admin.answer = (_request, response) => {
      const lines = Object.entries(SCOPES).map(([name, scope]) => {
        const file = JSON.parse(readFileSync(`${folder}/envoy/live/${name}.json`, "utf8"));
        const isRefused = isRefusing && name === "lds" && taken.get(name) !== file.version_info;
        if (isRefused) refusals += 1;
        else taken.set(name, file.version_info);
        return `${scope}.version_text: "${taken.get(name)}"`;
      });
      lines.push(`${SCOPES.lds}.update_rejected: ${refusals}`, "listener_manager.total_listeners_warming: 0");
      response.end(lines.join("\n"));
    };
    writeFile(`${folder}/envoy.sh`, '#!/bin/sh\n[ "$1" = --mode ] || exec sleep 60\n', 0o755);
    const issuer = { url: "http://127.0.0.1:9000", jwksUrl: "http://127.0.0.1:9000/jwks", audience: "urn:a" };
    const listenOn = (port: number) => {
      const gateway = { listen: { port }, adminPort: Number(new URL(admin.url).port), issuer };
      const text = stringify({ version: 1, ...gateway, envoy: { binary: "./envoy.sh" } });
      writeFile(`${folder}/gateway.yaml`, text);
    };
    listenOn(await freePort());
    writeFile(`${folder}/publication.yaml`, stringify({ version: 1, cards: {} }));
    const quotas = { default: { perMinute: 60, burst: 20 } };
    writeFile(`${folder}/invocation.yaml`, stringify({ version: 1, agents: {}, quotas }));
    const stop = new AbortController();
    const { log, events } = recordedLog();
    const configFile = `${folder}/gateway.yaml`;
    const served = serve({ configFile, clock: fastClock, log, stop: stop.signal });
    t.after(async () => {
      stop.abort();
      await served;
    });
    const logged = (event: string) => eventually(event, () => (events().includes(event) ? true : undefined));
    await logged("ready");
    isRefusing = true;
    listenOn(await freePort());
    await logged("config_refused");
    isRefusing = false;
    await logged("reloaded");
    assert.deepEqual(events(), ["ready", "config_refused", "reloaded"]);
  });
});
